#include "coordinator/node/task_claim.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

Status TakenStatus(const char* by, const std::string& name) {
  return Status(StatusCode::kAlreadyExists, fmt::format("there is a {} {} already", by, name));
}

Status MakeFolder(const std::string& folder, const char* of, const std::string& name) {
  if (mkdir(folder.c_str(), 0700) == 0) return Status();
  return errno == EEXIST ? TakenStatus(of, name) : ErrnoStatus(errno, "create " + folder);
}

// NAME.R while there is a job NAME.
Status CheckNoRank(const Folders& folders, const std::string& name) {
  size_t dot = name.rfind('.');
  if (dot == std::string::npos || dot + 1 == name.size()) return Status();
  if (name.find_first_not_of("0123456789", dot + 1) != std::string::npos) return Status();
  std::string job = name.substr(0, dot);
  if (!Exists(JobFolder(folders, job))) return Status();
  return Status(StatusCode::kAlreadyExists,
                fmt::format("{} is a name for a rank of the job {}, which is there already", name, job));
}

}  // namespace

Result<TaskClaim> TaskClaim::MakeFolder(const Folders& folders, const std::string& name) {
  RETURN_IF_ERROR(MakeFolders(folders.state + "/tasks"));
  TaskPaths paths(folders, name);
  RETURN_IF_ERROR(stasis::MakeFolder(paths.folder, "task", name));
  TaskClaim claim(paths);
  std::error_code error;
  // Sockets of an earlier task of this name.
  std::filesystem::remove_all(paths.run, error);
  RETURN_IF_ERROR(MakeFolders(paths.ctl));
  return claim;
}

// Each kind makes its own folder before it looks for the other's: of two at once one finds the other.
Result<TaskClaim> TaskClaim::Make(const Folders& folders, const std::string& name) {
  ASSIGN_OR_RETURN(TaskClaim claim, MakeFolder(folders, name));
  if (Exists(JobFolder(folders, name))) return TakenStatus("job", name);
  RETURN_IF_ERROR(CheckNoRank(folders, name));
  return claim;
}

TaskClaim::~TaskClaim() {
  if (!paths_) return;
  std::error_code error;
  std::filesystem::remove_all(paths_->folder, error);
  std::filesystem::remove_all(paths_->run, error);
}

Result<JobClaim> JobClaim::Make(const Folders& folders, const std::string& name, int ranks) {
  RETURN_IF_ERROR(CheckTaskName(RankName(name, ranks - 1)));
  RETURN_IF_ERROR(MakeFolders(folders.state + "/jobs"));
  std::string folder = JobFolder(folders, name);
  RETURN_IF_ERROR(MakeFolder(folder, "job", name));
  JobClaim claim(folder, name);
  if (Exists(TaskPaths(folders, name).folder)) return TakenStatus("task", name);
  RETURN_IF_ERROR(CheckNoRank(folders, name));
  for (int rank = 0; rank < ranks; rank++) {
    ASSIGN_OR_RETURN(TaskClaim task, TaskClaim::MakeFolder(folders, RankName(name, rank)));
    claim.tasks_.push_back(std::move(task));
  }
  return claim;
}

JobClaim::~JobClaim() {
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

void JobClaim::Keep() {
  folder_.clear();
  for (TaskClaim& task : tasks_) task.Keep();
}

std::string NameStem(const std::string& program) {
  std::string stem;
  for (char c : program.substr(program.rfind('/') + 1)) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (plain && stem.size() < 32) stem += c;
  }
  return stem.empty() ? "task" : stem;
}

std::string ClashRemedy(const Folders& folders, const std::string& name) {
  if (Exists(JobFolder(folders, name))) {
    return fmt::format(
        "choose another --name, or end it (`stasis cancel {0}`) and forget it (`stasis rm {0}`)", name);
  }
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, name));
  if (!facts.ok() && !Exists(TaskPaths(folders, name).folder)) return "choose another --name";
  if (!facts.ok()) return "`stasis rm " + name + "` removes what is left of it";
  TaskCondition condition = DeriveCondition(*facts).condition;
  if (IsLive(condition)) return "choose another --name, or end it with `stasis cancel " + name + "`";
  return fmt::format("it is {}; choose another --name, or forget it with its images: `stasis rm {}`",
                     TaskConditionName(condition), name);
}

}  // namespace stasis

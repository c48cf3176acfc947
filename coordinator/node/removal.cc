#include "coordinator/node/removal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "coordinator/job_record.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"
#include "ghost/scratch.h"

namespace stasis {
namespace {

uint64_t BytesBelow(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

bool HasStoredImages(const TaskPaths& paths, const Folders& folders) {
  Result<std::vector<std::string>> files = ListFolder(StoreRoot(folders) + "/images/" + paths.name);
  return files.ok() && !files->empty();
}

// The room comes back with the collection; where that is not possible now, the next one does it.
void GiveBackRoom(Store& store, Removed* removed) {
  Result<GcReport> report = store.CollectGarbage();
  if (report.ok()) {
    removed->bytes += report->bytes_before - std::min(report->bytes_before, report->bytes_after);
  } else {
    removed->notes.push_back("the room that its images take is given back by the next `stasis images gc`: " +
                             std::string(report.status().message()));
  }
}

Status RemoveStored(const TaskPaths& paths, const Folders& folders, Removed* removed) {
  if (!HasStoredImages(paths, folders)) return Status();
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenStore(folders));
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(*store, paths.name));
  for (const std::string& id : ids) {
    Status gone = RemoveImage(*store, paths.name, id);
    if (!gone.ok() && gone.code() != StatusCode::kNotFound) return gone;
  }
  removed->images = ids.size();
  if (!ids.empty()) GiveBackRoom(*store, removed);
  return Status();
}

Status RemoveFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return error ? ErrnoStatus(error.value(), "remove " + folder) : Status();
}

// The record last: what fails before leaves a task that can be removed again.
Status RemoveTask(const TaskPaths& paths, bool images, const Folders& folders, Removed* removed) {
  removed->bytes += BytesBelow(paths.folder);
  if (images) {
    removed->had_old = removed->had_old || Exists(paths.old_images);
    removed->bytes += BytesBelow(paths.old_images);
    RETURN_IF_ERROR(RemoveStored(paths, folders, removed));
    RETURN_IF_ERROR(RemoveFolder(paths.old_images));
  }
  RETURN_IF_ERROR(RemoveFolder(paths.run));
  // What a ghost that was killed has left may be in memory.
  for (const char* left : {"/dump.partial", "/restore.partial"})
    RETURN_IF_ERROR(RemoveScratch(paths.folder + left));
  return RemoveFolder(paths.folder);
}

// The job's images first: without those of a rank they are of no use.
Status RemoveRecorded(const JobRecord& record, const std::vector<std::string>& images, const Folders& folders,
                      Removed* removed) {
  for (const std::string& id : images) {
    RETURN_IF_ERROR(RemoveJobImage(folders.state, record.name, id));
  }
  for (int rank = 0; rank < record.ranks(); rank++) {
    RETURN_IF_ERROR(RemoveTask(TaskPaths(folders, record.TaskOf(rank)), true, folders, removed));
  }
  removed->images = images.size();
  std::string folder = JobFolder(folders, record.name);
  removed->bytes += BytesBelow(folder);
  return RemoveFolder(folder);
}

Status RefuseLive(const std::string& name, const std::string& state, std::string* remedy) {
  *remedy = "end it first: `stasis cancel " + name + "`";
  return Errorf(StatusCode::kFailedPrecondition, "%s is %s", name.c_str(), state.c_str());
}

Result<Removed> Explained(Status status, Removed removed, std::string* remedy) {
  if (status.code() == StatusCode::kCorrupt) *remedy = "`stasis images verify` says what is wrong";
  if (!status.ok()) return status;
  return removed;
}

Result<Removed> RemoveJob(const std::string& name, bool images, const Folders& folders, std::string* remedy) {
  ASSIGN_OR_RETURN(Fd lock, LockJob(folders.run, name));
  Result<JobFacts> read = ReadJobFacts(folders, name);
  *remedy = RemedyOfDamage(name, read.status());
  ASSIGN_OR_RETURN(JobFacts job, std::move(read));
  JobView view = DeriveJobView(job.ranks);
  if (view.live) return RefuseLive(name, view.text, remedy);
  ASSIGN_OR_RETURN(std::vector<std::string> list, ListJobImageIds(folders.state, name));
  if (!images && !list.empty()) {
    *remedy = "remove it with its images, or leave it";
    return Status(
        StatusCode::kFailedPrecondition,
        fmt::format("job {} has {} images, which are of no use without its record", name, list.size()));
  }
  Removed removed;
  Status status = RemoveRecorded(job.record, list, folders, &removed);
  return Explained(std::move(status), std::move(removed), remedy);
}

// What is left of a job that is not on record any more is nobody's but its own.
Status RefuseRankOfJob(const TaskPaths& paths, const TaskFacts& facts, const Folders& folders,
                       std::string* remedy) {
  std::optional<RankPlace> place = PlaceOf(facts.task);
  if (!place || !IsJob(folders, place->job)) return Status();
  *remedy = RankRemedy(facts.task, "rm");
  return RefuseRank(paths, facts.task, "rm");
}

}  // namespace

Result<Removed> RemoveByName(const std::string& name, bool images, const Folders& folders,
                             std::string* remedy) {
  remedy->clear();
  RETURN_IF_ERROR(CheckTaskName(name));
  if (IsJob(folders, name)) return RemoveJob(name, images, folders, remedy);
  TaskPaths paths(folders, name);
  const std::string job = JobFolder(folders, name);
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  // Something may be left of a task, or of a job, without a record: whoever removed it was killed.
  bool left_over = !facts.ok() && facts.status().code() == StatusCode::kNotFound &&
                   (Exists(paths.folder) || Exists(job) ||
                    (images && (Exists(paths.old_images) || HasStoredImages(paths, folders))));
  if (!facts.ok() && !left_over) {
    *remedy = RemedyOfDamage(name, facts.status());
    return facts.status();
  }
  if (facts.ok()) RETURN_IF_ERROR(RefuseRankOfJob(paths, *facts, folders, remedy));
  TaskCondition condition = facts.ok() ? DeriveCondition(*facts).condition : TaskCondition::kCreated;
  if (IsLive(condition)) return RefuseLive(name, TaskConditionName(condition), remedy);
  Removed removed;
  Status status = RemoveTask(paths, images, folders, &removed);
  if (status.ok() && left_over) status = RemoveFolder(job);
  return Explained(std::move(status), std::move(removed), remedy);
}

}  // namespace stasis

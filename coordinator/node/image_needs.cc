#include "coordinator/node/image_needs.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "coordinator/node/criu_program.h"
#include "coordinator/node/image_device_needs.h"
#include "coordinator/node/launch.h"
#include "coordinator/node/task.h"
#include "coordinator/node/text.h"
#include "ghost/programs.h"

namespace stasis {
namespace {

Need MachineNeed(const Manifest& manifest) {
  std::string here = MachineName();
  return {"machine", manifest.machine, manifest.machine == here ? Met::kYes : Met::kNo, here};
}

Need PrivilegeNeed() {
  bool has = HasSysAdmin();
  return {"privileges", "root, or CAP_SYS_ADMIN", has ? Met::kYes : Met::kNo, has ? "" : "missing"};
}

Need CriuNeedHere(const Manifest& manifest) {
  std::string path = FindCriu();
  Result<SubprocessResult> ran = path.empty()
                                     ? Result<SubprocessResult>(Status(StatusCode::kNotFound, "none"))
                                     : RunCriu(path, {"--version"});
  return CriuNeed(manifest.criu, path, ran.ok() ? ran->output : "");
}

Need FolderNeed(const std::string& path) {
  struct stat info {};
  bool there = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return {"folder", path, there ? Met::kYes : Met::kNo, there ? "" : "missing"};
}

Need ProgramNeed(const ManifestProgram& program) {
  std::string needed = program.path;
  if (!program.build_id.empty()) needed += " (build id " + program.build_id + ")";
  Status same = CheckProgram(program);
  return {"program", needed, same.ok() ? Met::kYes : Met::kNo, std::string(same.message())};
}

Need TaskNeed(const std::string& name, const Site& site) {
  Need need{"task", "a record of " + name + ", and no process of it", Met::kYes, ""};
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(site.folders, name));
  if (!facts.ok()) {
    need.met = Met::kNo;
    need.here = std::string(facts.status().message());
    if (facts.status().code() == StatusCode::kNotFound)
      need.here += "; exporting and importing the image makes one";
    return need;
  }
  TaskCondition condition = DeriveCondition(*facts).condition;
  need.here = TaskConditionName(condition);
  if (IsLive(condition)) need.met = Met::kNo;
  return need;
}

}  // namespace

const char* MetName(Met met) {
  switch (met) {
    case Met::kYes:
      return "met";
    case Met::kNo:
      return "not met";
    case Met::kUnknown:
      return "unknown";
  }
  return "unknown";
}

Need CpuNeed(const std::vector<std::string>& needed, const std::vector<std::string>& here) {
  Status fits = CheckCpuFeatures(needed, here);
  return {"CPU", fmt::format("{} features that code is chosen by", needed.size()),
          fits.ok() ? Met::kYes : Met::kNo, std::string(fits.message())};
}

Need KernelNeed(const std::string& made_on, const std::string& here) {
  bool old = ParseKernelVersion(here) < kOldestKernel;
  return {"kernel", "Linux 5.11 or newer (made on " + made_on + ")", old ? Met::kNo : Met::kYes, here};
}

Need CriuNeed(const std::string& made_by, const std::string& path, const std::string& here) {
  Need need{"criu", "4.1 or newer (made by " + made_by + ")", Met::kYes, path};
  int version = ParseCriuVersion(here), writer = ParseCriuVersion("Version: " + made_by);
  if (path.empty() || version < kOldestCriu) {
    need.met = Met::kNo;
    if (path.empty()) need.here = "none found";
  } else if (version < writer) {
    need.met = Met::kUnknown;
    need.here += ": older than the one that wrote the image";
  }
  return need;
}

Need FileNeed(const ManifestFile& file) {
  Need need{"file", fmt::format("{} ({})", file.path, SizeText(file.size)), Met::kYes, ""};
  struct stat info {};
  if (stat(file.path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
    need.met = Met::kNo;
    need.here = "missing";
  } else if (static_cast<uint64_t>(info.st_size) < file.size) {
    need.met = Met::kNo;
    need.here = "shorter: " + SizeText(static_cast<uint64_t>(info.st_size));
  } else if (static_cast<uint64_t>(info.st_size) > file.size) {
    need.met = file.writable ? Met::kYes : Met::kNo;
    need.here = file.writable ? "has grown: what was written since would be set aside"
                              : "longer, and the task only reads it";
  }
  return need;
}

DevicesHere LookForDevices(const TaskConfig& task, const Site& site) {
  return {ProbeTaskDriver(task, site), ReadFreeMemory(task.device, site.files)};
}

std::vector<Need> NeedsOf(const Manifest& manifest, const TaskConfig& task, const std::string& task_name,
                          const DevicesHere& devices, const Site& site) {
  std::vector<Need> needs = {TaskNeed(task_name, site),
                             MachineNeed(manifest),
                             KernelNeed(manifest.kernel, KernelRelease()),
                             CpuNeed(manifest.cpu_features, CpuFeatures()),
                             PrivilegeNeed(),
                             CriuNeedHere(manifest)};
  for (Need& need : DeviceNeeds(manifest, devices)) needs.push_back(std::move(need));
  needs.push_back(FolderNeed(task.cwd));
  for (const ManifestProgram& program : manifest.programs) needs.push_back(ProgramNeed(program));
  for (const ManifestFile& file : manifest.files) {
    // The log comes out of the image where it is missing.
    if (file.path != manifest.log) needs.push_back(FileNeed(file));
  }
  return needs;
}

bool AnyUnmet(const std::vector<Need>& needs) {
  return std::any_of(needs.begin(), needs.end(), [](const Need& need) { return need.met == Met::kNo; });
}

std::string Summary(const std::vector<Need>& needs) {
  auto count = [&](Met met) {
    return std::count_if(needs.begin(), needs.end(), [met](const Need& need) { return need.met == met; });
  };
  if (count(Met::kNo) > 0)
    return fmt::format("cannot be restored here: {} of {} needs not met", count(Met::kNo), needs.size());
  if (count(Met::kUnknown) > 0) {
    return fmt::format("nothing found that keeps it from being restored here; {} of {} needs cannot be told",
                       count(Met::kUnknown), needs.size());
  }
  return fmt::format("can be restored here: all {} needs are met", needs.size());
}

}  // namespace stasis

#include "coordinator/node/imported_task.h"

#include <sys/stat.h>

#include <cerrno>
#include <ctime>

#include "coordinator/node/device_choice.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

Status WriteRecord(const TaskPaths& paths, const Json& task_json, const std::string& id) {
  // The task itself last: a folder without it is no task.
  RETURN_IF_ERROR(WriteImportedStatus(paths, id));
  RETURN_IF_ERROR(WriteJson(paths.File("task.json"), task_json));
  return SyncFolder(paths.folder);
}

}  // namespace

bool SameOrigin(const TaskConfig& a, const TaskConfig& b) {
  return a.created == b.created && a.argv == b.argv && a.cwd == b.cwd;
}

Status CheckOrigin(const TaskPaths& paths, const TaskConfig& task, bool* exists) {
  Result<Json> json = ReadJson(paths.File("task.json"));
  *exists = json.ok();
  if (!json.ok() && json.status().code() == StatusCode::kNotFound) return Status();
  if (!json.ok()) return json.status();
  ASSIGN_OR_RETURN(TaskConfig here, ParseTaskConfig(*json));
  if (SameOrigin(here, task)) return Status();
  return Status(StatusCode::kAlreadyExists, "there is another task " + paths.name + " here");
}

Json ImportedTaskJson(const TaskPaths& paths, const Json& task, const TaskConfig& config,
                      const OwnFiles& files) {
  return {{"version", 1},
          {"name", paths.name},
          {"argv", config.argv},
          {"cwd", config.cwd},
          {"created", config.created},
          {"uid", config.uid},
          {"device", config.device},
          {"driver", config.driver},
          {"driver_environment", DriverEnvironment(config.device, files, OwnEnvironment())},
          {"strategy", config.strategy},
          {"gpus", config.gpus},
          {"managed", TextField(task, "managed", "refuse")},
          {"pid_namespace", config.pid_namespace},
          {"log", paths.File("output.log")}};
}

Status WriteImportedStatus(const TaskPaths& paths, const std::string& id) {
  return WriteJson(paths.File("status.json"), {{"version", 1},
                                               {"state", "ended"},
                                               {"ended_by", "import"},
                                               {"since", std::time(nullptr)},
                                               {"last_image", id}});
}

Status WriteImportedTask(const TaskPaths& paths, const Json& task_json, const std::string& id) {
  std::string tasks = paths.folder.substr(0, paths.folder.rfind('/'));
  RETURN_IF_ERROR(MakeFolders(tasks));
  const bool made = mkdir(paths.folder.c_str(), 0700) == 0;
  const int error = made ? 0 : errno;
  // Without a record it holds what is kept of an earlier stay.
  const bool kept = error == EEXIST && !Exists(paths.File("task.json"));
  if (!made && !kept) return ErrnoStatus(error, "make " + paths.folder);
  Status written = WriteRecord(paths, task_json, id);
  if (written.ok()) written = SyncFolder(tasks);
  if (!written.ok() && made) (void)RemoveTree(paths.folder);
  return written;
}

}  // namespace stasis

// The files of a task that the ghost shares with the command line: docs/ghost-protocol.md has their fields.
#ifndef GHOST_TASK_FILES_H_
#define GHOST_TASK_FILES_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/json.h"
#include "ghost/task_config.h"

namespace stasis {

// Where everything of one task lies.
struct TaskPaths {
  std::string name;
  std::string state;    // <state dir>/tasks/NAME
  std::string run;      // <run dir>/tasks/NAME
  std::string store;    // <state dir>/store
  std::string folders;  // <state dir>/images/NAME: where images of version 1 are

  std::string Ctl() const { return run + "/ctl"; }
  std::string Socket() const { return run + "/ghost.sock"; }
  std::string Dump() const { return state + "/dump.partial"; }       // what CRIU has dumped, on its way
  std::string Revive() const { return state + "/restore.partial"; }  // what CRIU restores from
  std::string Image(const std::string& id) const { return store + "/images/" + name + "/" + id + ".image"; }
};
TaskPaths PathsOf(const std::string& state_dir, const std::string& run_dir, const std::string& name);

// task.json, as it stands.
Result<Json> ReadTaskJson(const TaskPaths& paths);

struct TaskProcess {
  pid_t init_pid = 0;
  uint64_t init_start_time = 0;
  pid_t pid = 0;
  pid_t nspid = 0;
  std::string boot_id;
};
Result<TaskProcess> ReadTaskProcess(const TaskPaths& paths);
Status WriteTaskProcess(const TaskPaths& paths, const TaskProcess& process);
// The process that process.json names lives, and is the one that it was. Also true where nobody can tell:
// only what is known to be gone may be made again.
bool IsAlive(const TaskProcess& process);

struct TaskRecord {
  std::string state = "running";  // running, paused, checkpointing, restoring, ended
  std::string residency;
  uint64_t since = 0;
  uint64_t device_bytes = 0;
  std::string last_image;
  std::string ended_by;  // of a task that we ended: "checkpoint" or "cancel"
  pid_t ghost_pid = 0;
  std::string error;
  std::vector<int> gpus;
  std::string last_operation;  // of the last request that had one
  Json last_result;            // of that one; null: none
};
// A fresh record when there is no status.json, or none that can be read: it is a report, nothing depends on
// it.
TaskRecord ReadTaskRecord(const TaskPaths& paths);
Json RecordJson(const TaskRecord& record);
Status WriteTaskRecord(const TaskPaths& paths, const TaskRecord& record);

}  // namespace stasis

#endif  // GHOST_TASK_FILES_H_

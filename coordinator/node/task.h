// One task as its files and the kernel tell it. Nothing is remembered: every question is answered from
// task.json, process.json, status.json and exit.json compared with /proc and the ghost's socket.
#ifndef COORDINATOR_NODE_TASK_H_
#define COORDINATOR_NODE_TASK_H_

#include <optional>
#include <string>

#include "base/process.h"
#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

enum class TaskCondition {
  kCreated,  // on record, not started (or its launcher died before it could)
  kRunning,
  kPaused,
  kCheckpointing,
  kRestoring,
  kInDoubt,   // a rank of a job that stands still: what the others were told is not known to it
  kStranded,  // was paused or worked on, and the ghost that did it is gone
  kExited,
  kKilled,        // by a signal, or with its whole PID namespace
  kCheckpointed,  // ended by `checkpoint --stop`, or came with an image: restore brings it back
};
const char* TaskConditionName(TaskCondition condition);
// True for the conditions in which a process of the task exists.
bool IsLive(TaskCondition condition);

// What is known about a task at one moment; see DeriveCondition. Missing files are null.
struct TaskFacts {
  Json task;
  Json process;
  Json status;
  Json exit;
  bool alive = false;          // the process of process.json, not another one with its pid
  bool ghost_listens = false;  // the ghost of status.json
};

struct TaskView {
  TaskCondition condition = TaskCondition::kCreated;
  int exit_code = 0;  // of kExited
  int signal = 0;     // of kKilled; SIGKILL where nobody was left to write it down
  std::string last_image;
};

TaskView DeriveCondition(const TaskFacts& facts);

// kNotFound: no such task. kCorrupt names the file.
Result<TaskFacts> ReadTaskFacts(const TaskPaths& paths);
// What helps where a file of a task of `name`, a task or a job, was found damaged; "": `failed` is something
// else.
std::string RemedyOfDamage(const std::string& name, const Status& failed);

// The process that process.json names; pid 0 where it names none.
ProcessIdentity IdentityOf(const Json& process);

// True when a process of the task has a control socket: Stasis manages it. The socket of a process that was
// killed may be left, so ask only for tasks that live.
bool HasControlSocket(const TaskPaths& paths);

}  // namespace stasis

#endif  // COORDINATOR_NODE_TASK_H_

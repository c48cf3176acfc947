#include "coordinator/node/task.h"

#include <dirent.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string_view>
#include <utility>

#include "base/unix_socket.h"

namespace stasis {
namespace {

constexpr auto kGhostConnectTime = std::chrono::seconds(2);

// A missing file is null; one that cannot be read or parsed is an error, not a guess.
Result<Json> ReadOptional(const std::string& path) {
  Result<Json> value = ReadJson(path);
  if (!value.ok() && value.status().code() == StatusCode::kNotFound) return Json();
  return value;
}

// An error: that cannot be seen.
Result<bool> GhostListens(const TaskPaths& paths, const Json& status) {
  int64_t pid = IntegerField(status, "ghost_pid");
  if (pid <= 0) return false;
  Result<Fd> socket = ConnectUnix(paths.ghost_socket, Deadline::After(kGhostConnectTime));
  if (socket.status().code() == StatusCode::kResourceExhausted) return socket.status();
  if (!socket.ok()) return false;
  Result<PeerCredentials> peer = GetPeerCredentials(socket->get());
  return peer.ok() && peer->pid == pid;
}

TaskCondition LiveCondition(const TaskFacts& facts) {
  std::string state = TextField(facts.status, "state");
  bool worked_on =
      state == "paused" || state == "checkpointing" || state == "restoring" || state == "in-doubt";
  if (!worked_on) return TaskCondition::kRunning;
  if (!facts.ghost_listens) return TaskCondition::kStranded;
  if (state == "paused") return TaskCondition::kPaused;
  if (state == "in-doubt") return TaskCondition::kInDoubt;
  return state == "checkpointing" ? TaskCondition::kCheckpointing : TaskCondition::kRestoring;
}

// It never ran here.
bool WasImported(const TaskFacts& facts) { return !TextField(facts.status, "last_image").empty(); }

bool Restores(const TaskFacts& facts) {
  return TextField(facts.status, "state") == "restoring" && facts.ghost_listens;
}

TaskView EndedView(const TaskFacts& facts) {
  TaskView view;
  view.condition = TaskCondition::kKilled;
  view.signal = SIGKILL;
  if (facts.exit.is_object()) {
    view.signal = static_cast<int>(IntegerField(facts.exit, "signal"));
    view.exit_code = static_cast<int>(IntegerField(facts.exit, "exit_code"));
    if (view.signal == 0) view.condition = TaskCondition::kExited;
  } else if (TextField(facts.status, "state") == "ended" &&
             TextField(facts.status, "ended_by") == "checkpoint") {
    view.condition = TaskCondition::kCheckpointed;
    view.signal = 0;
  } else if (Restores(facts)) {
    view.condition = TaskCondition::kRestoring;
    view.signal = 0;
  }
  return view;
}

}  // namespace

const char* TaskConditionName(TaskCondition condition) {
  switch (condition) {
    case TaskCondition::kCreated:
      return "created";
    case TaskCondition::kRunning:
      return "running";
    case TaskCondition::kPaused:
      return "paused";
    case TaskCondition::kCheckpointing:
      return "checkpointing";
    case TaskCondition::kRestoring:
      return "restoring";
    case TaskCondition::kInDoubt:
      return "in-doubt";
    case TaskCondition::kStranded:
      return "stranded";
    case TaskCondition::kExited:
      return "exited";
    case TaskCondition::kKilled:
      return "killed";
    case TaskCondition::kCheckpointed:
      return "checkpointed";
  }
  return "?";
}

bool IsLive(TaskCondition condition) {
  switch (condition) {
    case TaskCondition::kRunning:
    case TaskCondition::kPaused:
    case TaskCondition::kCheckpointing:
    case TaskCondition::kRestoring:
    case TaskCondition::kInDoubt:
    case TaskCondition::kStranded:
      return true;
    case TaskCondition::kCreated:
    case TaskCondition::kExited:
    case TaskCondition::kKilled:
    case TaskCondition::kCheckpointed:
      return false;
  }
  return false;
}

TaskView DeriveCondition(const TaskFacts& facts) {
  TaskView view;
  if (facts.process.is_object() && facts.alive) {
    view.condition = LiveCondition(facts);
  } else if (facts.process.is_object()) {
    view = EndedView(facts);
  } else if (WasImported(facts)) {
    view.condition = Restores(facts) ? TaskCondition::kRestoring : TaskCondition::kCheckpointed;
  }
  view.last_image = TextField(facts.status, "last_image");
  return view;
}

ProcessIdentity IdentityOf(const Json& process) {
  return {static_cast<pid_t>(IntegerField(process, "init_pid")),
          static_cast<uint64_t>(IntegerField(process, "init_start_time")), TextField(process, "boot_id")};
}

Result<TaskFacts> ReadTaskFacts(const TaskPaths& paths) {
  TaskFacts facts;
  Result<Json> task = ReadJson(paths.File("task.json"));
  if (!task.ok() && task.status().code() == StatusCode::kNotFound) {
    return Status(StatusCode::kNotFound, "no task " + paths.name);
  }
  ASSIGN_OR_RETURN(facts.task, std::move(task));
  ASSIGN_OR_RETURN(facts.process, ReadOptional(paths.File("process.json")));
  ASSIGN_OR_RETURN(facts.status, ReadOptional(paths.File("status.json")));
  if (facts.process.is_object()) {
    ASSIGN_OR_RETURN(facts.alive, CheckAlive(IdentityOf(facts.process)));
  }
  ASSIGN_OR_RETURN(facts.ghost_listens, GhostListens(paths, facts.status));
  // After the question whether it lives: who was found dead has written all that it will write.
  ASSIGN_OR_RETURN(facts.exit, ReadOptional(paths.File("exit.json")));
  return facts;
}

std::string RemedyOfDamage(const std::string& name, const Status& failed) {
  if (failed.code() != StatusCode::kCorrupt) return "";
  const std::pair<const char*, std::string> remedies[] = {
      {"/status.json",
       "remove that file: it is what the task's ghost reports, and is written again at the next verb"},
      {"/exit.json",
       "remove that file: how the task has ended is not known any more, and it counts as killed"},
      {"/process.json", "when no process of the task lives, remove that file: `stasis restore " + name +
                            "` then brings the task back from its last image"},
      {"/task.json",
       "put that file back from a copy; the task's images are not touched: `stasis images ls`"}};
  for (const auto& [file, remedy] : remedies)
    if (failed.message().find(file) != std::string_view::npos) return remedy;
  return "";
}

bool HasControlSocket(const TaskPaths& paths) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(paths.ctl.c_str()), closedir);
  while (dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    if (std::string_view(entry->d_name).ends_with(".sock")) return true;
  }
  return false;
}

}  // namespace stasis

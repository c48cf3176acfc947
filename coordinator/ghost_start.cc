#include "coordinator/ghost_start.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/environment.h"
#include "base/files.h"
#include "base/unix_socket.h"
#include "coordinator/ghost_children.h"
#include "dedup/json.h"

namespace stasis {
namespace {

constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr auto kStartTime = std::chrono::seconds(20);
constexpr int kReadyFd = 3;
constexpr int kMaxStarts = 4;
constexpr size_t kLogTail = 600;
constexpr size_t kMaxVariables = 1024, kMaxVariable = 64 << 10;

bool NobodyThere(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnavailable;
}

// What the driver of the task reads; see task.json.
std::vector<std::string> GhostEnvironment(const GhostPlace& place) {
  std::vector<std::string> changes;
  Result<std::string> text = ReadFile(place.TaskFolder() + "/task.json");
  Result<Json> task = text.ok() ? ParseJsonObject(*text) : Result<Json>(text.status());
  if (task.ok() && task->contains("driver_environment")) {
    changes = JsonFields(*task, "task.json").Strings("driver_environment", kMaxVariables, kMaxVariable);
  }
  return EnvironmentWithoutLoader(changes);
}

struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int ready) {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ready, kReadyFd);
    posix_spawn_file_actions_addclosefrom_np(&actions, kReadyFd + 1);
    posix_spawnattr_init(&attributes);
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

Status SpawnGhost(const GhostPlace& place, int ready) {
  std::vector<std::string> argv = place.through;
  for (const std::string& word :
       {place.ghost, std::string("--task"), place.task, std::string("--state-dir"), place.state_dir,
        std::string("--run-dir"), place.run_dir, std::string("--ready-fd"), std::to_string(kReadyFd)}) {
    argv.push_back(word);
  }
  SpawnPlan plan(ready);
  pid_t pid = 0;
  int error = posix_spawnp(&pid, argv[0].c_str(), &plan.actions, &plan.attributes, PointersOf(argv).data(),
                           PointersOf(GhostEnvironment(place)).data());
  if (error != 0) return ErrnoStatus(error, "start " + argv[0]);
  GhostChildren::OfThisProcess().Add(pid);
  return Status();
}

std::string LogTail(const GhostPlace& place) {
  std::string path = place.TaskFolder() + "/ghost.log";
  Result<std::string> log = ReadFile(path);
  if (!log.ok() || log->empty()) return "see " + path;
  std::string tail = log->size() > kLogTail ? "..." + log->substr(log->size() - kLogTail) : *log;
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail;
}

Status AwaitReady(int ready, const GhostPlace& place) {
  Deadline deadline = Deadline::After(kStartTime);
  pollfd wait{ready, POLLIN, 0};
  int polled;
  do polled = poll(&wait, 1, deadline.PollTimeout());
  while ((polled < 0 && errno == EINTR) || (polled == 0 && !deadline.Expired()));
  if (polled <= 0) return Status(StatusCode::kTimeout, "stasis-ghost did not say that it listens");
  char byte;
  if (read(ready, &byte, 1) == 1) return Status();
  std::string through = place.through.empty() ? "" : " through " + place.through[0];
  return Status(StatusCode::kUnavailable, "stasis-ghost did not start" + through + ": " + LogTail(place));
}

Result<Fd> LockStart(const GhostPlace& place) {
  std::string path = place.RunFolder() + "/ghost.start";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, "open " + path);
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "lock " + path);
  }
  return lock;
}

Status StartGhost(const GhostPlace& place) {
  if (access(place.ghost.c_str(), X_OK) != 0) {
    return Errorf(StatusCode::kNotFound, "stasis-ghost is missing: no %s. Build or install Stasis completely",
                  place.ghost.c_str());
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  Fd read_end(ends[0]), write_low(ends[1]);
  // dup2 onto itself would leave close-on-exec set.
  Fd write_end(fcntl(write_low.get(), F_DUPFD_CLOEXEC, kReadyFd + 1));
  write_low.Reset();
  RETURN_IF_ERROR(SpawnGhost(place, write_end.get()));
  write_end.Reset();
  return AwaitReady(read_end.get(), place);
}

}  // namespace

Result<Fd> FindGhost(const GhostPlace& place) {
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(place.RunFolder() + "/ghost.sock", Deadline::After(kConnectTime)));
  ASSIGN_OR_RETURN(PeerCredentials peer, GetPeerCredentials(socket.get()));
  if (peer.uid == geteuid() || peer.uid == 0) return socket;
  return Errorf(StatusCode::kPermissionDenied, "the ghost of %s belongs to user %u", place.task.c_str(),
                peer.uid);
}

Result<Fd> ReachGhost(const GhostPlace& place) {
  Result<Fd> socket = FindGhost(place);
  if (!socket.ok() && NobodyThere(socket.status())) {
    RETURN_IF_ERROR(MakeFolders(place.RunFolder() + "/ctl"));
    ASSIGN_OR_RETURN(Fd lock, LockStart(place));
    socket = FindGhost(place);
    // A ghost that was just started serves whoever comes first, and may have ended after somebody else.
    for (int tries = 0; tries < kMaxStarts && !socket.ok() && NobodyThere(socket.status()); ++tries) {
      RETURN_IF_ERROR(StartGhost(place));
      socket = FindGhost(place);
    }
  }
  if (!socket.ok()) return std::move(socket).status().WithContext("reach the ghost of " + place.task);
  return socket;
}

}  // namespace stasis

#include "cli/ghost_client.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/unix_socket.h"
#include "cli/subprocess.h"

namespace stasis {
namespace {

constexpr uint32_t kRequest = 1, kEvent = 2, kResult = 3;
constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr auto kStartTime = std::chrono::seconds(20);
constexpr auto kSendTime = std::chrono::seconds(10);
constexpr int kReadyFd = 3;
// Each is another process that ended; so many in a row are no coincidence.
constexpr int kMaxDyingGhosts = 4;
constexpr size_t kLogTail = 600;

Result<Fd> TryConnect(const TaskPaths& paths) {
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(paths.ghost_socket, Deadline::After(kConnectTime)));
  ASSIGN_OR_RETURN(PeerCredentials peer, GetPeerCredentials(socket.get()));
  if (peer.uid == geteuid() || peer.uid == 0) return socket;
  return Errorf(StatusCode::kPermissionDenied, "the ghost of %s belongs to user %u", paths.name.c_str(),
                peer.uid);
}

bool NobodyThere(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnavailable;
}

// What the driver of the task reads; see task.json.
std::vector<std::string> GhostEnvironment(const TaskPaths& paths) {
  Result<Json> task = ReadJson(paths.File("task.json"));
  std::vector<std::string> changes;
  if (task.ok()) changes = TextsField(*task, "driver_environment");
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

Status SpawnGhost(const TaskPaths& paths, const Folders& folders, const OwnFiles& files, int ready) {
  std::vector<std::string> argv = {files.ghost,   "--task",      paths.name,
                                   "--state-dir", folders.state, "--run-dir",
                                   folders.run,   "--ready-fd",  std::to_string(kReadyFd)};
  SpawnPlan plan(ready);
  pid_t pid = 0;
  int error = posix_spawn(&pid, files.ghost.c_str(), &plan.actions, &plan.attributes, PointersOf(argv).data(),
                          PointersOf(GhostEnvironment(paths)).data());
  return error == 0 ? Status() : ErrnoStatus(error, "start " + files.ghost);
}

std::string LogTail(const TaskPaths& paths) {
  Result<std::string> log = ReadFile(paths.File("ghost.log"));
  if (!log.ok() || log->empty()) return "see " + paths.File("ghost.log");
  std::string tail = log->size() > kLogTail ? "..." + log->substr(log->size() - kLogTail) : *log;
  while (!tail.empty() && tail.back() == '\n') tail.pop_back();
  return tail;
}

Status AwaitReady(int ready, const TaskPaths& paths) {
  Deadline deadline = Deadline::After(kStartTime);
  pollfd wait{ready, POLLIN, 0};
  int polled;
  do polled = poll(&wait, 1, deadline.PollTimeout());
  while ((polled < 0 && errno == EINTR) || (polled == 0 && !deadline.Expired()));
  if (polled <= 0) return Status(StatusCode::kTimeout, "stasis-ghost did not say that it listens");
  char byte;
  if (read(ready, &byte, 1) == 1) return Status();
  return Status(StatusCode::kUnavailable, "stasis-ghost did not start: " + LogTail(paths));
}

// Of several clients at once one starts the ghost: the others wait for this lock and find it there.
Result<Fd> LockStart(const TaskPaths& paths) {
  std::string path = paths.run + "/ghost.start";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, "open " + path);
  while (flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "lock " + path);
  }
  return lock;
}

Status StartGhost(const TaskPaths& paths, const Folders& folders, const OwnFiles& files) {
  RETURN_IF_ERROR(RequireFile(files.ghost, X_OK, "stasis-ghost"));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  Fd read_end(ends[0]), write_low(ends[1]);
  // dup2 onto itself would leave close-on-exec set.
  Fd write_end(fcntl(write_low.get(), F_DUPFD_CLOEXEC, kReadyFd + 1));
  write_low.Reset();
  RETURN_IF_ERROR(SpawnGhost(paths, folders, files, write_end.get()));
  write_end.Reset();
  return AwaitReady(read_end.get(), paths);
}

Result<Json> ParseObject(const Message& message) {
  auto* text = reinterpret_cast<const char*>(message.payload.data());
  Json object = Json::parse(text, text + message.payload.size(), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object())
    return Status(StatusCode::kCorrupt, "the ghost sent something that is no JSON object");
  return object;
}

}  // namespace

Result<GhostClient> GhostClient::Connect(const TaskPaths& paths, const Folders& folders,
                                         const OwnFiles& files) {
  Result<Fd> socket = TryConnect(paths);
  if (!socket.ok() && NobodyThere(socket.status())) {
    RETURN_IF_ERROR(MakeFolders(paths.ctl));
    ASSIGN_OR_RETURN(Fd lock, LockStart(paths));
    socket = TryConnect(paths);
    if (!socket.ok() && NobodyThere(socket.status())) {
      RETURN_IF_ERROR(StartGhost(paths, folders, files));
      socket = TryConnect(paths);
    }
  }
  if (!socket.ok()) return std::move(socket).status().WithContext("reach the ghost of " + paths.name);
  return GhostClient(std::move(*socket));
}

Status GhostClient::Send(const Json& request) {
  std::string text = request.dump(-1, ' ', false, Json::error_handler_t::replace);
  Message message;
  message.type = kRequest;
  message.request_id = next_id_++;
  auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  message.payload.assign(bytes, bytes + text.size());
  return SendMessage(socket_.get(), std::move(message), Deadline::After(kSendTime));
}

// True when the result of request `id` has come. A ghost says that it has taken a request before it begins.
Result<bool> GhostClient::TakeMessages(uint64_t id, const EventHandler& on_event, Json* result) {
  for (;;) {
    ASSIGN_OR_RETURN(bool complete, ReceiveSome(socket_.get(), decoder_));
    if (!complete) return false;
    Message message = decoder_.Take();
    ASSIGN_OR_RETURN(Json object, ParseObject(message));
    if (message.request_id != id) continue;  // the answer to a request to undo
    taken_ = true;
    if (message.type == kEvent) on_event(object);
    if (message.type != kResult) continue;
    *result = std::move(object);
    return true;
  }
}

Result<Json> GhostClient::Call(const Json& request, SignalSource& signals, const EventHandler& on_event) {
  uint64_t id = next_id_;
  taken_ = false;
  RETURN_IF_ERROR(Send(request));
  bool asked_to_undo = false;
  for (;;) {
    pollfd waits[] = {{socket_.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (waits[1].revents != 0 && signals.Next() != 0) {
      if (asked_to_undo) {
        return Status(StatusCode::kCancelled, "no longer waiting; the ghost finishes what it does by itself");
      }
      asked_to_undo = true;
      RETURN_IF_ERROR(Send({{"verb", "cancel"}, {"what", "operation"}}));
    }
    Json result;
    Result<bool> done = TakeMessages(id, on_event, &result);
    if (!done.ok()) return std::move(done).status().WithContext("the ghost went away");
    if (*done) return result;
  }
}

Result<Json> AskGhost(const TaskPaths& paths, const Folders& folders, const OwnFiles& files,
                      const Json& request, SignalSource& signals, const GhostClient::EventHandler& on_event) {
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(GhostClient ghost, GhostClient::Connect(paths, folders, files));
    Result<Json> result = ghost.Call(request, signals, on_event);
    bool died = !result.ok() && result.status().code() == StatusCode::kPeerDied;
    if (!died || ghost.taken() || tries == kMaxDyingGhosts) return result;
  }
}

}  // namespace stasis

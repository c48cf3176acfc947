#include "ghost/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ghost/proc.h"

extern char** environ;

namespace stasis {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(bool keep) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable; ++variable) {
    bool ours = std::strncmp(*variable, "LD_", 3) == 0 || std::strncmp(*variable, "STASIS_", 7) == 0;
    if (keep || !ours) variables.emplace_back(*variable);
  }
  return variables;
}

// posix_spawn's list of actions and attributes, freed with it.
struct Spawn {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  Spawn() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

void ConnectStreams(Spawn& spawn, int input, const std::string& output) {
  const char* sink = output.empty() ? "/dev/null" : output.c_str();
  if (input >= 0) {
    posix_spawn_file_actions_adddup2(&spawn.actions, input, 0);
  } else {
    posix_spawn_file_actions_addopen(&spawn.actions, 0, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_addopen(&spawn.actions, 1, sink, O_WRONLY | O_APPEND | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&spawn.actions, 1, 2);
}

void SetAttributes(Spawn& spawn, bool new_session) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&spawn.attributes, &none);
  posix_spawnattr_setsigdefault(&spawn.attributes, &all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (new_session) flags |= POSIX_SPAWN_SETSID;
  posix_spawnattr_setflags(&spawn.attributes, flags);
}

}  // namespace

Result<pid_t> StartChild(const ChildOptions& options) {
  Spawn spawn;
  ConnectStreams(spawn, options.input, options.output);
  // Duplicating a descriptor onto itself clears its close-on-exec flag in the child.
  for (int fd : options.inherit) posix_spawn_file_actions_adddup2(&spawn.actions, fd, fd);
  SetAttributes(spawn, options.new_session);
  std::vector<std::string> argv = options.argv, env = Environment(options.keep_environment);
  pid_t pid = -1;
  int err = posix_spawn(&pid, argv[0].c_str(), &spawn.actions, &spawn.attributes, Pointers(argv).data(),
                        Pointers(env).data());
  if (err != 0) return ErrnoStatus(err, "start " + argv[0]);
  return pid;
}

Result<HeldChild> StartHeldChild(ChildOptions options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  Fd read_end(ends[0]);
  HeldChild child;
  child.go = Fd(ends[1]);
  // The shell stays the same process when it becomes the program.
  std::string script =
      "read -r go || exit " + std::to_string(HeldChild::kNeverLetGo) + "; exec \"$@\" </dev/null";
  options.argv.insert(options.argv.begin(), {"/bin/sh", "-c", script, "sh"});
  options.input = read_end.get();
  ASSIGN_OR_RETURN(child.pid, StartChild(options));
  return child;
}

Status HeldChild::Go() {
  ssize_t put = write(go.get(), "\n", 1);
  int err = errno;
  go.Reset();
  return put == 1 ? Status() : ErrnoStatus(err, "let process " + Named(pid) + " go");
}

Status WaitProcess(pid_t pid, const Deadline& deadline) {
  Result<Fd> handle = OpenPidFd(pid);
  if (handle.status().code() == StatusCode::kNotFound) return Status();
  if (!handle.ok()) return std::move(handle).status();
  pollfd wait{handle->get(), POLLIN, 0};
  for (;;) {
    int ready = poll(&wait, 1, deadline.PollTimeout());
    if (ready > 0) return Status();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "wait for process " + std::to_string(pid));
    if (ready == 0 && deadline.Expired()) {
      return Status(StatusCode::kTimeout, "process " + Named(pid) + " has not ended");
    }
  }
}

Result<int> WaitChild(pid_t pid, const Deadline& deadline) {
  int status = 0;
  // One that has ended already takes no descriptor to wait for.
  if (waitpid(pid, &status, WNOHANG) == pid) return status;
  RETURN_IF_ERROR(WaitProcess(pid, deadline));
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "wait for process " + std::to_string(pid));
  }
  return status;
}

std::string ExitText(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace stasis

#include "softgpu/device/autostart.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/unix_socket.h"

extern char** environ;

namespace softgpu {

using stasis::Deadline;
using stasis::ErrnoStatus;
using stasis::Errorf;
using stasis::Fd;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr int kReadyFd = 3;
constexpr int kFirstFreeFd = 10;  // above the numbers that the daemon's own descriptors get

// The folder of the library or program that this code is linked into; empty if the loader does not know.
std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return "";
  char* resolved = realpath(info.dli_fname, nullptr);
  if (resolved == nullptr) return "";
  std::string path(resolved);
  std::free(resolved);
  return path.substr(0, path.rfind('/'));
}

std::string AbsolutePath(const std::string& path) {
  char* folder = path[0] == '/' ? nullptr : getcwd(nullptr, 0);
  if (folder == nullptr) return path;
  std::string absolute = std::string(folder) + "/" + path;
  std::free(folder);
  return absolute;
}

// The program's environment without what steers its own loader: that is meant for the program.
std::vector<char*> DaemonEnvironment() {
  std::vector<char*> result;
  for (char** entry = environ; *entry != nullptr; entry++) {
    if (std::strncmp(*entry, "LD_", 3) != 0) result.push_back(*entry);
  }
  result.push_back(nullptr);
  return result;
}

// Everything the new process needs, made before it exists: between clone and exec nothing may be allocated.
struct Plan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int null_fd;
  int report_fd;
};

// clone with exit signal 0: the host program gets no SIGCHLD, and its waitpid(-1) does not see the child. The
// system call itself, because fork() would run the host program's atfork handlers.
__attribute__((no_sanitize("thread"))) long CloneQuietly() {
  return syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr);
}

__attribute__((no_sanitize("thread"))) void ResetSignals() {
  struct sigaction standard;
  std::memset(&standard, 0, sizeof standard);
  sigaction(SIGTERM, &standard, nullptr);
  sigaction(SIGINT, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// In the new process. Only async-signal-safe calls: other threads' locks are held for ever here.
[[noreturn]] __attribute__((no_sanitize("thread"))) void BecomeDaemon(const Plan& plan) {
  dup2(plan.null_fd, STDIN_FILENO);
  dup2(plan.null_fd, STDOUT_FILENO);
  dup2(plan.report_fd, STDERR_FILENO);
  dup2(plan.report_fd, kReadyFd);
  syscall(SYS_close_range, kReadyFd + 1, ~0u, 0);
  ResetSignals();
  if (chdir("/") == 0) execve(plan.program, plan.arguments, plan.environment);
  constexpr char kFailed[] = "cannot be executed\n";
  ssize_t written [[maybe_unused]] = write(STDERR_FILENO, kFailed, sizeof kFailed - 1);
  _exit(127);
}

// By way of a process that ends at once, so that the daemon is nobody's child and in a session of its own.
__attribute__((no_sanitize("thread"))) Status Launch(const Plan& plan) {
  long helper = CloneQuietly();
  if (helper == 0) {
    setsid();
    if (CloneQuietly() == 0) BecomeDaemon(plan);
    _exit(0);
  }
  if (helper < 0) return ErrnoStatus(errno, "clone");
  while (waitpid(static_cast<pid_t>(helper), nullptr, __WALL) < 0 && errno == EINTR) {
  }
  return Status();
}

// Reads until the ready byte, or the end: then what came is the daemon's own complaint.
Status AwaitReady(int report, const std::string& daemon, const Deadline& deadline) {
  std::string text;
  for (;;) {
    pollfd wait{report, POLLIN, 0};
    int ready = poll(&wait, 1, deadline.PollTimeout());
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (ready <= 0) {
      if (!deadline.Expired()) continue;
      return Status(StatusCode::kTimeout, daemon + " did not say that it listens");
    }
    char buffer[256];
    ssize_t got = read(report, buffer, sizeof buffer);
    if (got < 0 && errno != EINTR) return ErrnoStatus(errno, "read from " + daemon);
    if (got == 0) break;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
    if (text.find(kReadyByte) != std::string::npos) return Status();
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return Errorf(StatusCode::kInvalidArgument, "%s did not start: %s", daemon.c_str(),
                text.empty() ? "it ended without a word" : text.c_str());
}

Result<Fd> MoveUp(int fd) {
  Fd low(fd);
  Fd high(fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
  if (!high.valid()) return ErrnoStatus(errno, "duplicate a descriptor");
  return high;
}

}  // namespace

Result<std::string> FindDaemon() {
  const char* named = std::getenv("SOFTGPU_DAEMON");
  if (named != nullptr && named[0] != '\0') {
    if (access(named, X_OK) == 0) return AbsolutePath(named);
    return Errorf(StatusCode::kNotFound, "SOFTGPU_DAEMON: %s is no program", named);
  }
  std::string folder = OwnFolder();
  for (const char* place : {"/../bin/softgpud", "/softgpud", "/../softgpud", "/../../bin/softgpud"}) {
    std::string path = folder + place;
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return Errorf(StatusCode::kNotFound, "no softgpud in or beside %s; set SOFTGPU_DAEMON", folder.c_str());
}

Status SpawnDaemon(const std::string& daemon, const std::string& socket_path, uint32_t idle_exit_s,
                   const Deadline& deadline) {
  std::string path = AbsolutePath(socket_path);
  std::string idle = std::to_string(idle_exit_s);
  std::string ready = std::to_string(kReadyFd);
  const char* arguments[] = {daemon.c_str(), "--socket",   path.c_str(),  "--idle-exit",
                             idle.c_str(),   "--ready-fd", ready.c_str(), nullptr};
  std::vector<char*> environment = DaemonEnvironment();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  Fd report(ends[0]);
  ASSIGN_OR_RETURN(Fd write_end, MoveUp(ends[1]));
  int opened = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (opened < 0) return ErrnoStatus(errno, "open /dev/null");
  ASSIGN_OR_RETURN(Fd null_fd, MoveUp(opened));
  RETURN_IF_ERROR(Launch({daemon.c_str(), const_cast<char* const*>(arguments), environment.data(),
                          null_fd.get(), write_end.get()}));
  write_end.Reset();
  return AwaitReady(report.get(), daemon, deadline);
}

Result<Fd> LockStart(const std::string& socket_path, const Deadline& deadline) {
  RETURN_IF_ERROR(stasis::PrepareSocketDirectory(socket_path));
  std::string path = socket_path + ".start";
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, "open " + path);
  while (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return ErrnoStatus(errno, "lock " + path);
    if (deadline.Expired()) return Status(StatusCode::kTimeout, "another process is still starting softgpud");
    // flock has no deadline of its own, and waiting without one could hang the program for ever.
    (void)poll(nullptr, 0, 2);
  }
  return lock;
}

}  // namespace softgpu

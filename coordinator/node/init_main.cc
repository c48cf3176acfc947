// stasis-init: the first process of a task. Makes the task's PID and time namespaces, leads its session, runs
// the program as its child, passes signals on to it, reaps what it leaves behind, and writes how it ended.
//
// It is dumped and restored with the task, so it holds nothing but /dev/null and the log, and it waits for
// signals only: no timers, no threads, no descriptors. It is linked statically, so that no preload reaches
// it.
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/task_protocol.h"
#include "coordinator/node/init_protocol.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

namespace {

using stasis::InitReport;
using stasis::InitReportKind;

constexpr int kForwarded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
constexpr int kCannotStart = 125;

struct Arguments {
  int control;
  bool namespaces;
  const char* exit_file;
  const char* folder;
  const char* executable;
  char** argv;  // of the program
};

[[noreturn]] void Usage() {
  fputs("stasis-init is started by `stasis run`\n", stderr);
  _exit(kCannotStart);
}

Arguments Parse(int argc, char** argv) {
  if (argc <= stasis::kInitFixedArguments) Usage();
  Arguments arguments{atoi(argv[1]), argv[2][0] == '1', argv[3],
                      argv[4],       argv[5],           argv + stasis::kInitFixedArguments};
  if (arguments.control < 3 || fcntl(arguments.control, F_SETFD, FD_CLOEXEC) != 0) Usage();
  return arguments;
}

void Report(int control, InitReportKind kind, int value) {
  InitReport report{kind, value};
  // A launcher that is gone is noticed where its answer is awaited.
  (void)!send(control, &report, sizeof report, MSG_NOSIGNAL);
}

// The signals that stasis-init takes by sigwaitinfo. Blocked signals reach even pid 1 of a namespace, which
// otherwise is sent nothing that it has no handler for (pid_namespaces(7)).
sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : kForwarded) sigaddset(&set, signal);
  return set;
}

// exit.json will say how a process ended that has never been the program.
void MarkUnstarted(const char* exit_file) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s%s", exit_file, stasis::kUnstartedSuffix);
  if (length < 0 || static_cast<size_t>(length) >= sizeof path) return;
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) close(file);
}

[[noreturn]] void BecomeProgram(const Arguments& arguments) {
  setpgid(0, 0);
  if (arguments.folder[0] != 0 && chdir(arguments.folder) != 0) {
    Report(arguments.control, InitReportKind::kFolderFailed, errno);
    _exit(kCannotStart);
  }
  Report(arguments.control, InitReportKind::kProgram, static_cast<int>(getpid()));
  char go;
  ssize_t got;
  do got = recv(arguments.control, &go, 1, 0);
  while (got < 0 && errno == EINTR);
  if (got != 1) {
    MarkUnstarted(arguments.exit_file);
    _exit(kCannotStart);
  }
  signal(SIGPIPE, SIG_DFL);  // the launcher ignores it for itself
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv(arguments.executable, arguments.argv);
  int error = errno;
  MarkUnstarted(arguments.exit_file);
  errno = error;
  Report(arguments.control, InitReportKind::kExecFailed, errno);
  _exit(kCannotStart);
}

// exit.json lies beside the log. A restored task may find its log in another place than it was started with;
// the descriptor knows. `buffer` is PATH_MAX long.
const char* FindExitFile(const char* as_started, char* buffer) {
  constexpr char kLog[] = "/output.log", kExit[] = "/exit.json";
  ssize_t length = readlink("/proc/self/fd/1", buffer, PATH_MAX - 1);
  if (length <= 0) return as_started;
  buffer[length] = 0;
  char* name = strrchr(buffer, '/');
  if (name == nullptr || strcmp(name, kLog) != 0) return as_started;
  static_assert(sizeof kExit <= sizeof kLog);
  memcpy(name, kExit, sizeof kExit);
  return buffer;
}

void WriteExitFile(const char* path, int status) {
  char temporary[PATH_MAX];
  int length = snprintf(temporary, sizeof temporary, "%s.new", path);
  if (length < 0 || static_cast<size_t>(length) >= sizeof temporary) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char text[128];
  int size = snprintf(text, sizeof text, "{\"version\": 1, \"%s\": %d, \"time\": %lld.%03ld}\n",
                      WIFSIGNALED(status) ? "signal" : "exit_code",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                      static_cast<long long>(now.tv_sec), now.tv_nsec / 1000000);
  int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool written = file >= 0 && write(file, text, static_cast<size_t>(size)) == size;
  if (file >= 0) close(file);
  if (!written || rename(temporary, path) != 0)
    fprintf(stderr, "stasis-init: %s: %s\n", path, strerror(errno));
}

// Reaps everything that has ended. True when the program is among it.
bool Reap(pid_t program, int* program_status) {
  bool ended = false;
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != program) continue;
    *program_status = status;
    ended = true;
  }
  return ended;
}

int AwaitProgram(pid_t program) {
  sigset_t waited = WaitedSignals();
  int status = 0;
  while (!Reap(program, &status)) {
    siginfo_t info;
    int signal = sigwaitinfo(&waited, &info);
    if (signal > 0 && signal != SIGCHLD) kill(-program, signal);
  }
  return status;
}

// CRIU mounts the PID namespace's /proc for a moment on a folder that it makes in the working folder of the
// namespace's first process: that must be one where it may do so, and no other task's.
void EnterOwnFolder() {
  const char* folder = getenv(stasis::kTaskFolderVariable);
  if (folder != nullptr && chdir(folder) != 0)
    fprintf(stderr, "stasis-init: %s: %s\n", folder, strerror(errno));
}

bool SameFile(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino && one.st_rdev == other.st_rdev;
}

// The launcher opens them where it is itself. A place that it starts ranks in may have mounts of its own, and
// CRIU looks there for the mount that a file was opened through.
void OpenStandardFilesHere() {
  struct stat output {
  }, error{};
  bool one = fstat(1, &output) == 0 && fstat(2, &error) == 0 && SameFile(output, error);
  for (int fd = 0; fd < 3; ++fd) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    struct stat before {
    }, now{};
    if (length <= 0 || fstat(fd, &before) != 0) continue;
    bool null = S_ISCHR(before.st_mode) && before.st_rdev == makedev(1, 3);
    if (!S_ISREG(before.st_mode) && !null) continue;
    path[length] = 0;
    int again = open(path, (fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) | O_CLOEXEC);
    if (again < 0) continue;
    (void)lseek(again, lseek(fd, 0, SEEK_CUR), SEEK_SET);
    if (fstat(again, &now) == 0 && SameFile(before, now)) dup2(again, fd);
    close(again);
    // What has been one description stays one, and with it the position.
    if (fd == 1 && one) {
      dup2(1, 2);
      break;
    }
  }
}

[[noreturn]] void Lead(const Arguments& arguments) {
  setsid();
  if (!arguments.namespaces) prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_NAME, "stasis-init");
  Report(arguments.control, InitReportKind::kInit, 0);
  pid_t program = fork();
  if (program < 0) {
    Report(arguments.control, InitReportKind::kExecFailed, errno);
    _exit(kCannotStart);
  }
  if (program == 0) BecomeProgram(arguments);
  // From both sides, so that a signal finds the group however soon it comes.
  setpgid(program, program);
  close(arguments.control);
  EnterOwnFolder();
  int status = AwaitProgram(program);
  char exit_file[PATH_MAX];
  WriteExitFile(FindExitFile(arguments.exit_file, exit_file), status);
  _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments = Parse(argc, argv);
  OpenStandardFilesHere();
  sigset_t waited = WaitedSignals();
  sigprocmask(SIG_SETMASK, &waited, nullptr);
  if (arguments.namespaces && unshare(CLONE_NEWPID | CLONE_NEWTIME) != 0) {
    Report(arguments.control, InitReportKind::kNamespaceFailed, errno);
    return kCannotStart;
  }
  pid_t leader = fork();
  if (leader < 0) {
    Report(arguments.control, InitReportKind::kExecFailed, errno);
    return kCannotStart;
  }
  if (leader == 0) Lead(arguments);
  return 0;
}

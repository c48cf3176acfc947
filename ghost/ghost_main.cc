// stasis-ghost: serves one task while a verb needs it. See docs/ghost-protocol.md.
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/fault.h"
#include "ghost/guard.h"
#include "ghost/job.h"
#include "ghost/server.h"

namespace stasis {
namespace {

// Within which a ghost that is ending has ended, and how often that is looked at.
constexpr std::chrono::seconds kPredecessorTime(15);
constexpr int kPredecessorPollMs = 10;
constexpr int kExitFailure = 1, kExitUsage = 2, kExitTaken = 3;

struct CommandLine {
  GhostArguments arguments;
  int ready_fd = -1;
  int guard_fd = -1;
  int adopt_fd = -1;
};

constexpr char kUsage[] =
    "usage: stasis-ghost --task NAME --state-dir DIR --run-dir DIR [--ready-fd N] [--criu PATH]\n";

bool Parse(int argc, char** argv, CommandLine* line) {
  constexpr option kOptions[] = {{"task", 1, nullptr, 't'},    {"state-dir", 1, nullptr, 's'},
                                 {"run-dir", 1, nullptr, 'r'}, {"ready-fd", 1, nullptr, 'f'},
                                 {"criu", 1, nullptr, 'c'},    {"guard", 1, nullptr, 'g'},
                                 {"adopt", 1, nullptr, 'a'},   {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    if (c == 't')
      line->arguments.task = optarg;
    else if (c == 's')
      line->arguments.state_dir = optarg;
    else if (c == 'r')
      line->arguments.run_dir = optarg;
    else if (c == 'c')
      line->arguments.criu = optarg;
    else if (c == 'f')
      line->ready_fd = std::atoi(optarg);
    else if (c == 'g')
      line->guard_fd = std::atoi(optarg);
    else if (c == 'a')
      line->adopt_fd = std::atoi(optarg);
    else
      return false;
  }
  const GhostArguments& arguments = line->arguments;
  return optind == argc && IsPlainName(arguments.task) && !arguments.state_dir.empty() &&
         !arguments.run_dir.empty();
}

// Numbers that only say what this process may use, as a task with much memory needs many descriptors.
void RaiseLimits() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

Status OpenLog(const TaskPaths& paths) {
  ASSIGN_OR_RETURN(Fd log, OpenFile(paths.state + "/ghost.log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW));
  SetRawLogFd(log.Release());  // for the life of the process
  SetRawLogLevel(LogLevel::kInfo);
  return Status();
}

void TellReady(int fd) {
  if (fd < 0) return;
  (void)!write(fd, "1", 1);
  close(fd);
}

// One that was started by chance while this one was being adopted ends by itself in a moment; nobody tells
// when.
Result<UnixListener> ListenAsSuccessor(const std::string& path) {
  Deadline deadline = Deadline::After(kPredecessorTime);
  for (;;) {
    Result<UnixListener> listener = UnixListener::Listen(path);
    if (listener.ok() || listener.status().code() != StatusCode::kAlreadyExists || deadline.Expired())
      return listener;
    (void)poll(nullptr, 0, kPredecessorPollMs);
  }
}

// A guardian without a ghost is about to become one, with all that the task has given away: its lock comes
// free when it listens. A guardian with a ghost is never waited for, as that ghost answers.
Result<UnixListener> ListenAsFirst(const CommandLine& line, const std::string& path) {
  RETURN_IF_ERROR(PrepareSocketDirectory(path));
  Deadline deadline = Deadline::After(kPredecessorTime);
  Fd guardian;
  for (;;) {
    Result<Fd> ghost = ConnectUnix(path, Deadline::After(std::chrono::seconds(5)));
    if (ghost.ok() || ghost.status().code() == StatusCode::kTimeout) {
      return Status(StatusCode::kAlreadyExists, "the task has a ghost");
    }
    // Not waited for in the kernel: the lock may go from the guardian that becomes the ghost to that one's
    // own guardian, which keeps it.
    Result<Fd> lock = guardian.valid() ? std::move(guardian) : LockAsGuardian(line.arguments, /*wait=*/false);
    Result<UnixListener> listener =
        lock.ok() ? UnixListener::Listen(path) : Result<UnixListener>(lock.status());
    // One that is on its way out takes its socket away first, so that nobody finds it, and ends then.
    if (listener.ok() || listener.status().code() != StatusCode::kAlreadyExists || deadline.Expired())
      return listener;
    if (lock.ok()) guardian = *std::move(lock);
    (void)poll(nullptr, 0, kPredecessorPollMs);
  }
}

Status Serve(const CommandLine& line, const TaskPaths& paths) {
  const char* fault = std::getenv("STASIS_GHOST_FAULT");
  RETURN_IF_ERROR(SetFault(fault ? fault : ""));
  Adopted adopted;
  bool adopting = line.adopt_fd >= 0;
  if (adopting) {
    ASSIGN_OR_RETURN(adopted, ReadAdopted(line.adopt_fd));
  }
  ASSIGN_OR_RETURN(UnixListener listener,
                   adopting ? ListenAsSuccessor(paths.Socket()) : ListenAsFirst(line, paths.Socket()));
  adopted.lock.Reset();
  ASSIGN_OR_RETURN(std::unique_ptr<Job> job, Job::Load(line.arguments));
  if (adopting) {
    Status status = job->Adopt(std::move(adopted));
    if (!status.ok()) RawLog(LogLevel::kError, "adopt: %s", status.ToString().c_str());
  }
  TellReady(line.ready_fd);
  Server(*job, std::move(listener)).Run(!adopting);
  job->Tidy();
  return Status();
}

int Main(int argc, char** argv) {
  CommandLine line;
  if (!Parse(argc, argv, &line)) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  Result<std::string> self = ReadLink("/proc/self/exe");
  line.arguments.program = self.ok() ? *self : argv[0];
  if (line.ready_fd >= 0) (void)fcntl(line.ready_fd, F_SETFD, FD_CLOEXEC);
  SetRawLogName("stasis-ghost");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  // The device numbers of tasks are the driver's own.
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}) unsetenv(name);
  umask(0077);
  TaskPaths paths = PathsOf(line.arguments.state_dir, line.arguments.run_dir, line.arguments.task);
  Status status = OpenLog(paths);
  if (status.ok()) RaiseLimits();
  if (status.ok() && line.guard_fd >= 0) return GuardMain(line.guard_fd, line.arguments);
  if (status.ok()) status = Serve(line, paths);
  if (status.ok()) return 0;
  RawLog(LogLevel::kError, "%s", status.ToString().c_str());
  std::fprintf(stderr, "stasis-ghost: %s\n", status.ToString().c_str());
  if (status.code() != StatusCode::kAlreadyExists) return kExitFailure;
  // Whoever had this ghost started is served by the other one.
  TellReady(line.ready_fd);
  return kExitTaken;
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) { return stasis::Main(argc, argv); }

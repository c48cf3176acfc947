#include "coordinator/node/launch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "coordinator/node/init_protocol.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

constexpr int kControlFd = 3;
constexpr size_t kMaxSaid = 500;
constexpr int kLookAgainMs = 100;

struct ReceivedReport {
  bool end = false;
  InitReport report{};
  pid_t sender = 0;  // in our PID namespace, from the kernel
};

Result<ReceivedReport> Receive(int socket) {
  ReceivedReport received;
  iovec data{&received.report, sizeof received.report};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0 && errno != ECONNRESET) return ErrnoStatus(errno, "listen to stasis-init");
  received.end = got <= 0;
  if (received.end) return received;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  bool credentials =
      header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_CREDENTIALS;
  if (got != sizeof received.report || !credentials) {
    return Status(StatusCode::kInternal, "stasis-init sent something unknown");
  }
  ucred sender;
  std::memcpy(&sender, CMSG_DATA(header), sizeof sender);
  received.sender = sender.pid;
  return received;
}

Result<Fd> OpenLog(const std::string& path) {
  Fd log(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log.valid()) return ErrnoStatus(errno, "open " + path);
  return log;
}

// "": where this process is already, be it by a path that leads nowhere any more.
std::string FolderToEnter(const LaunchOptions& options) {
  std::error_code error;
  bool here = options.through.empty() && std::filesystem::current_path(error) == options.folder;
  return here ? "" : options.folder;
}

Result<pid_t> SpawnInit(const TaskPaths& paths, const LaunchOptions& options, int log, int control) {
  SubprocessOptions command;
  command.argv = options.through;
  for (const std::string& argument :
       {options.init, std::to_string(kControlFd), std::string(options.namespaces ? "1" : "0"),
        paths.File("exit.json"), FolderToEnter(options), options.executable}) {
    command.argv.push_back(argument);
  }
  command.argv.insert(command.argv.end(), options.argv.begin(), options.argv.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, control, kControlFd);
  // Descriptors that the caller of stasis left open would keep the task from being dumped.
  posix_spawn_file_actions_addclosefrom_np(&actions, kControlFd + 1);
  pid_t pid = 0;
  int error = posix_spawn(&pid, command.argv[0].c_str(), &actions, nullptr, PointersOf(command.argv).data(),
                          PointersOf(options.environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, "start " + command.argv[0]);
  return pid;
}

struct Started {
  pid_t init = 0;
  pid_t program = 0;
  pid_t program_in_namespace = 0;
};

// Until both processes have said who they are. They do so in any order.
Result<Started> AwaitStart(int control) {
  Started started;
  while (started.init == 0 || started.program == 0) {
    ASSIGN_OR_RETURN(ReceivedReport received, Receive(control));
    if (received.end) return Status(StatusCode::kPeerDied, "stasis-init ended while it started the program");
    switch (received.report.kind) {
      case InitReportKind::kInit:
        started.init = received.sender;
        break;
      case InitReportKind::kProgram:
        started.program = received.sender;
        started.program_in_namespace = received.report.value;
        break;
      case InitReportKind::kFolderFailed:
        return ErrnoStatus(received.report.value, "enter the working folder");
      case InitReportKind::kNamespaceFailed:
        return ErrnoStatus(received.report.value, "make a PID and a time namespace");
      default:
        return ErrnoStatus(received.report.value, "start the program");
    }
  }
  return started;
}

Status WriteProcess(const TaskPaths& paths, const Started& started, ProcessIdentity* identity) {
  ASSIGN_OR_RETURN(*identity, IdentifyProcess(started.init));
  return WriteJson(paths.File("process.json"), {{"version", 1},
                                                {"init_pid", started.init},
                                                {"init_start_time", identity->start_time},
                                                {"boot_id", identity->boot_id},
                                                {"pid", started.program},
                                                {"nspid", started.program_in_namespace}});
}

// What leads to stasis-init has failed by itself, and said why on the log, if at all.
Status ThroughStatus(const TaskPaths& paths, const LaunchOptions& options, int status) {
  std::string command;
  for (const std::string& word : options.through) command += (command.empty() ? "" : " ") + word;
  Result<std::string> log = ReadFile(paths.File("output.log"));
  std::string said = log.ok() ? log->substr(0, kMaxSaid) : "";
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Errorf(StatusCode::kUnavailable, "`%s` started nothing: it ended with status %d%s%s",
                command.c_str(), WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                said.empty() ? "" : ": ", said.c_str());
}

int AwaitStarter(pid_t starter) {
  int status = 0;
  while (waitpid(starter, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

void AwaitEnd(const ProcessIdentity& init) {
  Result<Fd> process = OpenPidFd(init);
  // No descriptor to wait with is no end.
  while (!process.ok() && process.status().code() != StatusCode::kNotFound) {
    (void)poll(nullptr, 0, kLookAgainMs);
    process = OpenPidFd(init);
  }
  if (!process.ok()) return;
  pollfd wait{process->get(), POLLIN, 0};
  while (poll(&wait, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

bool HasSysAdmin() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return (data[0].effective & (1u << CAP_SYS_ADMIN)) != 0;
}

Result<PendingTask> PendingTask::Start(const TaskPaths& paths, const LaunchOptions& options) {
  ASSIGN_OR_RETURN(Fd log, OpenLog(paths.File("output.log")));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return ErrnoStatus(errno, "socketpair");
  // Above the number that the control descriptor gets in the child, which dup2 onto itself would leave closed
  // there.
  Fd ours(ends[0]), theirs(fcntl(ends[1], F_DUPFD_CLOEXEC, kControlFd + 1));
  Fd low(ends[1]);
  int on = 1;
  if (setsockopt(ours.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    return ErrnoStatus(errno, "SO_PASSCRED");
  ASSIGN_OR_RETURN(pid_t starter, SpawnInit(paths, options, log.get(), theirs.get()));
  theirs.Reset();
  low.Reset();
  int status = AwaitStarter(starter);
  Result<Started> started = AwaitStart(ours.get());
  bool lost = !started.ok() && started.status().code() == StatusCode::kPeerDied;
  if (lost && !options.through.empty() && status != 0) return ThroughStatus(paths, options, status);
  if (!started.ok()) return started.status();
  ProcessIdentity identity;
  RETURN_IF_ERROR(WriteProcess(paths, *started, &identity));
  return PendingTask(std::move(ours), identity, started->program, options.executable);
}

Status PendingTask::LetGo() {
  char go = 'g';
  if (send(control_.get(), &go, 1, MSG_NOSIGNAL) != 1) return ErrnoStatus(errno, "let the program go");
  ASSIGN_OR_RETURN(ReceivedReport received, Receive(control_.get()));
  if (!received.end) return ErrnoStatus(received.report.value, "execute " + executable_);
  control_.Reset();
  return Status();
}

void PendingTask::End() {
  control_.Reset();
  if (IsAlive(init_)) {
    // Without a PID namespace nothing ends with stasis-init.
    kill(-program_, SIGKILL);
    kill(init_.pid, SIGKILL);
  }
  AwaitEnd(init_);
}

PendingTask::~PendingTask() {
  if (!control_.valid()) return;
  control_.Reset();
  AwaitEnd(init_);
}

}  // namespace stasis

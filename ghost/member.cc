#include "ghost/member.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/unix_socket.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// A process that lives answers a hello at once; what keeps it from that is not worth waiting for.
constexpr std::chrono::seconds kHelloTime(10);

// Waits until `name` is made in `folder`; OK also when it is there already.
Status AwaitFile(const std::string& path, const Deadline& deadline) {
  size_t slash = path.rfind('/');
  Fd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch.valid()) return ErrnoStatus(errno, "inotify");
  if (inotify_add_watch(watch.get(), path.substr(0, slash).c_str(), IN_CREATE | IN_MOVED_TO) < 0) {
    return ErrnoStatus(errno, "watch " + path.substr(0, slash));
  }
  while (!Exists(path)) {
    pollfd wait{watch.get(), POLLIN, 0};
    int ready = poll(&wait, 1, deadline.PollTimeout());
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (ready == 0) return Status(StatusCode::kTimeout, "the process does not listen again");
    alignas(inotify_event) char buffer[4096];
    while (read(watch.get(), buffer, sizeof buffer) > 0) continue;
  }
  return Status();
}

Result<Fd> ConnectAppearing(const std::string& path, pid_t pid, const Deadline& deadline) {
  for (;;) {
    RETURN_IF_ERROR(AwaitFile(path, deadline));
    Result<Fd> socket = ConnectUnix(path, deadline);
    StatusCode code = socket.status().code();
    if (socket.ok() || (code != StatusCode::kUnavailable && code != StatusCode::kNotFound)) return socket;
    RETURN_IF_ERROR(ReadProcStat(pid).status());
    if (deadline.Expired()) return Status(StatusCode::kTimeout, "the process does not listen again");
    // Between bind(2) and listen(2), or with the file that a dead process left, there is no event to wait
    // for.
    (void)poll(nullptr, 0, 1);
  }
}

// Somebody may stop a process at any time, and it would be a poor reason to lose it; nothing tells when it
// goes on.
Status AwaitResponsive(pid_t pid, const Deadline& deadline) {
  Status status = CheckResponsive(pid);
  while (status.code() == StatusCode::kFailedPrecondition && !deadline.Expired()) {
    (void)poll(nullptr, 0, 10);
    status = CheckResponsive(pid);
  }
  return status;
}

}  // namespace

CancelFlag::CancelFlag() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void CancelFlag::Set() {
  set_ = true;
  uint64_t one = 1;
  (void)!write(event_.get(), &one, sizeof one);
}

void CancelFlag::Clear() {
  set_ = false;
  uint64_t count;
  (void)!read(event_.get(), &count, sizeof count);
}

Result<std::unique_ptr<Member>> Member::Connect(const std::string& socket_path, pid_t pid,
                                                const Deadline& deadline, bool appearing) {
  RETURN_IF_ERROR(appearing ? AwaitResponsive(pid, deadline) : CheckResponsive(pid));
  ASSIGN_OR_RETURN(Fd socket, appearing ? ConnectAppearing(socket_path, pid, deadline)
                                        : ConnectUnix(socket_path, deadline));
  ASSIGN_OR_RETURN(PeerCredentials peer, GetPeerCredentials(socket.get()));
  ASSIGN_OR_RETURN(ProcIds ids, ReadProcIds(pid));
  if (peer.uid != ids.uid && peer.uid != 0) {
    return Status(StatusCode::kPermissionDenied, socket_path + " belongs to another user's process");
  }
  std::unique_ptr<Member> member(new Member(pid, std::move(socket)));
  RETURN_IF_ERROR(member->Greet(deadline).WithContext("process " + Named(pid)));
  return member;
}

Status Member::Greet(const Deadline& deadline) {
  Deadline soon = Deadline::After(std::min<Duration>(kHelloTime, deadline.Remaining()));
  PayloadWriter out;
  out.U32(kTaskProtocolVersion);
  ASSIGN_OR_RETURN(Message answer, Call(TaskMessage::kHello, out.Take(), {}, soon));
  ASSIGN_OR_RETURN(hello_, DecodeTaskHello(answer.payload));
  return Status();
}

Status Member::Send(TaskMessage type, std::vector<std::byte> payload, std::vector<Fd> fds,
                    const Deadline& deadline) {
  Message message;
  message.type = static_cast<uint32_t>(type);
  message.request_id = ++next_id_;
  message.payload = std::move(payload);
  message.fds = std::move(fds);
  return SendMessage(socket_.get(), std::move(message), deadline);
}

Status Member::WaitReadable(const Deadline& deadline, const CancelFlag* cancel) const {
  for (;;) {
    pollfd wait[2] = {{socket_.get(), POLLIN, 0}, {cancel ? cancel->fd() : -1, POLLIN, 0}};
    int ready = poll(wait, 2, deadline.PollTimeout());
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (ready > 0 && wait[1].revents != 0) return cancel->Check();
    if (ready > 0) return Status();
    if (ready != 0 || !deadline.Expired()) continue;
    // Stopped since it was asked.
    const Status responsive = CheckResponsive(pid_);
    return Status(StatusCode::kTimeout, responsive.ok() ? "process " + Named(pid_) + " does not answer"
                                                        : std::string(responsive.message()));
  }
}

Result<Message> Member::Receive(const Deadline& deadline, const CancelFlag* cancel,
                                std::vector<TaskBlocker>* blockers) {
  for (;;) {
    ASSIGN_OR_RETURN(bool complete, ReceiveSome(socket_.get(), decoder_));
    if (!complete) {
      RETURN_IF_ERROR(WaitReadable(deadline, cancel));
      continue;
    }
    Message message = decoder_.Take();
    // The answer to a request that was given up.
    if (message.request_id != next_id_) continue;
    if (message.type == static_cast<uint32_t>(TaskMessage::kOk)) return message;
    if (message.type != static_cast<uint32_t>(TaskMessage::kError)) {
      return Status(StatusCode::kCorrupt, "process " + Named(pid_) + " answers nonsense");
    }
    ASSIGN_OR_RETURN(TaskError error, DecodeTaskError(message.payload));
    if (blockers) blockers->insert(blockers->end(), error.blockers.begin(), error.blockers.end());
    if (error.status.ok()) return Status(StatusCode::kCorrupt, "an error without a reason");
    return error.status;
  }
}

Result<Message> Member::Call(TaskMessage type, std::vector<std::byte> payload, std::vector<Fd> fds,
                             const Deadline& deadline) {
  RETURN_IF_ERROR(Send(type, std::move(payload), std::move(fds), deadline));
  return Receive(deadline, nullptr, nullptr);
}

std::vector<MemberSocket> FindMembers(const std::string& ctl_folder, const std::vector<pid_t>& tree) {
  std::vector<MemberSocket> members;
  Result<std::vector<std::string>> names = ListFolder(ctl_folder);
  if (!names.ok()) return members;
  for (const std::string& name : *names) {
    char* end = nullptr;
    long nspid = std::strtol(name.c_str(), &end, 10);
    if (nspid <= 0 || std::strcmp(end, ".sock") != 0) continue;
    pid_t pid = HostPid(tree, static_cast<pid_t>(nspid));
    if (pid != 0) members.push_back({ctl_folder + "/" + name, pid, static_cast<pid_t>(nspid)});
  }
  return members;
}

Status WakeMember(pid_t pid) {
  for (pid_t tid : ThreadsOf(pid)) {
    Result<ProcStat> stat = ReadThreadStat(pid, tid);
    if (!stat.ok() || stat->name != kTaskThreadName) continue;
    siginfo_t info{};
    info.si_signo = TaskWakeSignal();
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = reinterpret_cast<void*>(kTaskWakeValue);
    if (syscall(SYS_rt_tgsigqueueinfo, pid, tid, TaskWakeSignal(), &info) == 0) return Status();
    return ErrnoStatus(errno, "wake process " + Named(pid));
  }
  return Status(StatusCode::kPeerDied, "process " + Named(pid) + " has lost its control thread");
}

}  // namespace stasis

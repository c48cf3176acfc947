#include "intercept/share_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/message.h"
#include "base/payload.h"
#include "base/raw_log.h"
#include "base/unix_socket.h"
#include "intercept/own_descriptors.h"
#include "intercept/process.h"
#include "replay/shared_events.h"
#include "vmm/virtual_memory.h"

namespace stasis {
namespace {

constexpr uint64_t kTicketMagic = 0x314b43495453;  // "STICK1"
constexpr uint32_t kGive = 1, kGiven = 2, kGone = 3, kGiveEvent = 4;
// Whoever has the memory answers at once; who does not is of no use.
constexpr std::chrono::seconds kAnswerTime(20), kRequestTime(5);
constexpr std::chrono::minutes kPauseTime(60);
constexpr int kLookMs = 1000;

constinit std::atomic<bool> g_used{false};

struct WrittenTicket {
  uint64_t magic = kTicketMagic;
  int64_t pid = 0;
  uint64_t key = 0;
};

std::string SocketOf(pid_t pid) { return TaskFolder() + "/ctl/share-" + std::to_string(pid) + ".sock"; }

class ShareServer {
 public:
  static ShareServer& Get() {
    static ShareServer* const server = new ShareServer;  // outlives every destructor
    return *server;
  }

  // Who asks for what is not given now waits.
  Status Start(vmm::Sharing sharing) {
    const std::lock_guard lock(mutex_);
    sharing_ = sharing;
    if (running_) {
      Wake();
      return {};
    }
    wake_ = MoveToOwnFds(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
    ASSIGN_OR_RETURN(listener_, UnixListener::Listen(SocketOf(getpid())));
    RETURN_IF_ERROR(listener_.MoveDescriptors(LowestOwnFd()));
    stopping_ = false;
    const int error = StartThread();
    if (error != 0) return ErrnoStatus(error, "start a thread");
    running_ = true;
    return {};
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      if (!running_) return;
      stopping_ = true;
      Wake();
    }
    pthread_join(thread_, nullptr);
    const std::lock_guard lock(mutex_);
    running_ = false;
    waiting_.clear();
    listener_.Close();
    wake_.Reset();
  }

  Status Watch(Fd held, uint64_t share) {
    const std::lock_guard lock(mutex_);
    held_.push_back({MoveToOwnFds(std::move(held)), share});
    Wake();
    return {};
  }

  void ResetAfterFork() {
    for (Held& held : held_) held.end.Reset();
    new (this) ShareServer;  // the parent's thread may have held the lock; what it knew is not freed
  }

 private:
  struct Held {
    Fd end;
    uint64_t share = 0;
  };

  struct Asker {
    Fd connection;
    uint32_t what = kGive;
    uint64_t key = 0;
  };

  ShareServer() = default;
  void Wake() { (void)eventfd_write(wake_.get(), 1); }

  int StartThread() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(
        &thread_, nullptr,
        [](void* server) -> void* {
          pthread_setname_np(pthread_self(), "stasis-share");
          static_cast<ShareServer*>(server)->Serve();
          return nullptr;
        },
        this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return error;
  }

  // Nothing when the thread is to end.
  std::vector<pollfd> Waits() {
    const std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    (void)eventfd_read(wake_.get(), &count);
    if (stopping_) return {};
    std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
    for (const Held& held : held_) waits.push_back({held.end.get(), 0, 0});
    return waits;
  }

  void Serve() {
    for (;;) {
      std::vector<pollfd> waits = Waits();
      if (waits.empty()) return;
      AnswerWaiting();
      if (poll(waits.data(), waits.size(), -1) <= 0) continue;
      for (size_t i = 2; i < waits.size(); ++i)
        if ((waits[i].revents & (POLLHUP | POLLERR)) != 0) Forget(waits[i].fd);
      if ((waits[1].revents & POLLIN) == 0) continue;
      Result<Fd> connection = listener_.Accept();
      if (connection.ok()) Answer(*std::move(connection));
    }
  }

  // Nobody holds the other end any more.
  void Forget(int fd) {
    uint64_t share = 0;
    {
      const std::lock_guard lock(mutex_);
      for (auto it = held_.begin(); it != held_.end(); ++it) {
        if (it->end.get() != fd) continue;
        share = it->share;
        held_.erase(it);
        break;
      }
    }
    if (share != 0) vmm::VirtualMemory::Get().TicketGone(share);
  }

  static Message Give(uint64_t key) {
    Result<vmm::SharedMemory> memory = vmm::GiveMemory(key);
    Message answer;
    answer.type = memory.ok() ? kGiven : kGone;
    if (memory.ok()) {
      answer.payload = vmm::Encode(*memory);
      answer.fds = std::move(memory->fds);
    }
    return answer;
  }

  static Message GiveEvent(uint64_t key) {
    const std::optional<CUipcEventHandle> handle = replay::SharedEvents::Get().Find(key);
    Message answer;
    answer.type = handle ? kGiven : kGone;
    if (handle) {
      PayloadWriter out;
      out.Bytes(std::as_bytes(std::span(&*handle, 1)));
      answer.payload = out.Take();
    }
    return answer;
  }

  void Answer(Fd connection) {
    const Result<PeerCredentials> peer = GetPeerCredentials(connection.get());
    if (!peer.ok() || (peer->uid != geteuid() && peer->uid != 0)) return;
    MessageDecoder decoder;
    Result<Message> request = ReceiveMessage(connection.get(), decoder, Deadline::After(kRequestTime));
    if (!request.ok()) return;
    PayloadReader in(request->payload);
    const uint64_t key = in.U64();
    if (!in.Finish().ok()) return;
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(connection), request->type, key});
    Wake();
  }

  void AnswerWaiting() {
    std::vector<Asker> askers, later;
    {
      const std::lock_guard lock(mutex_);
      for (Asker& asker : waiting_) (IsGivenLocked(asker.what) ? askers : later).push_back(std::move(asker));
      waiting_ = std::move(later);
    }
    for (const Asker& asker : askers)
      Send(asker.connection, asker.what == kGive ? Give(asker.key) : GiveEvent(asker.key));
  }

  bool IsGivenLocked(uint32_t what) const {
    return sharing_ == vmm::Sharing::kAll || (sharing_ == vmm::Sharing::kEvents && what == kGiveEvent);
  }

  static void Send(const Fd& connection, Message answer) {
    (void)SendMessage(connection.get(), std::move(answer), Deadline::After(kRequestTime));
  }

  std::mutex mutex_;
  bool running_ = false, stopping_ = false;
  pthread_t thread_{};
  UnixListener listener_;
  Fd wake_;
  std::vector<Held> held_;
  vmm::Sharing sharing_ = vmm::Sharing::kNothing;
  std::vector<Asker> waiting_;
};

// kNotFound, kUnavailable, kPeerDied: nobody answers there now. kFailedPrecondition: who answers has it no
// more.
Result<Message> Ask(const ShareTicket& ticket, uint32_t what) {
  const Deadline deadline = Deadline::After(kAnswerTime);
  ASSIGN_OR_RETURN(Fd socket, ConnectUnix(SocketOf(ticket.pid), deadline));
  PayloadWriter out;
  out.U64(ticket.key);
  Message request;
  request.type = what;
  request.payload = out.Take();
  RETURN_IF_ERROR(SendMessage(socket.get(), std::move(request), deadline));
  MessageDecoder decoder;
  ASSIGN_OR_RETURN(Message answer, ReceiveMessage(socket.get(), decoder, deadline));
  if (answer.type != kGiven) return Status(StatusCode::kFailedPrecondition, "it is gone");
  return answer;
}

bool IsMember(pid_t pid) {
  return access((TaskFolder() + "/ctl/" + std::to_string(pid) + ".sock").c_str(), F_OK) == 0;
}

// A process that has let go of its memory for a pause does not answer before it has it back. Whoever is
// stopped for the same pause does not ask; one that began to use devices meanwhile does.
Result<Message> AskPatiently(const ShareTicket& ticket, uint32_t what) {
  const Fd watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  (void)inotify_add_watch(watch.get(), (TaskFolder() + "/ctl").c_str(), IN_CREATE | IN_DELETE | IN_MOVED_TO);
  const Deadline deadline = Deadline::After(kPauseTime);
  for (;;) {
    Result<Message> answer = Ask(ticket, what);
    const StatusCode code = answer.status().code();
    const bool away =
        code == StatusCode::kNotFound || code == StatusCode::kUnavailable || code == StatusCode::kPeerDied;
    if (!away || deadline.Expired() || !IsMember(ticket.pid)) return answer;
    // A killed process leaves its socket behind, and there is no event of that.
    if (kill(ticket.pid, 0) != 0 && errno == ESRCH) return answer;
    pollfd wait{watch.get(), POLLIN, 0};
    (void)poll(&wait, 1, kLookMs);
    char events[4096];
    while (read(watch.get(), events, sizeof events) > 0) continue;
  }
}

Result<vmm::SharedMemory> AskForMemory(const ShareTicket& ticket) {
  ASSIGN_OR_RETURN(Message answer, AskPatiently(ticket, kGive));
  ASSIGN_OR_RETURN(vmm::SharedMemory memory, vmm::DecodeSharedMemory(answer.payload));
  memory.fds = std::move(answer.fds);
  if (memory.fds.size() != memory.pieces.size())
    return Status(StatusCode::kCorrupt, "shared device memory without descriptors");
  return memory;
}

}  // namespace

Status StartSharing() {
  g_used.store(true, std::memory_order_relaxed);
  return ShareServer::Get().Start(vmm::Sharing::kAll);
}

Result<Fd> NewTicket(uint64_t share) {
  RETURN_IF_ERROR(StartSharing());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return ErrnoStatus(errno, "socketpair");
  Fd ticket(ends[0]), held(ends[1]);
  WrittenTicket written;
  written.pid = getpid();
  written.key = share;
  if (send(held.get(), &written, sizeof written, MSG_NOSIGNAL) != sizeof written)
    return ErrnoStatus(errno, "write a ticket");
  RETURN_IF_ERROR(ShareServer::Get().Watch(std::move(held), share));
  return ticket;
}

std::optional<ShareTicket> ReadTicket(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode)) return std::nullopt;
  WrittenTicket written;
  const ssize_t got = recv(fd, &written, sizeof written, MSG_PEEK | MSG_DONTWAIT);
  if (got != sizeof written || written.magic != kTicketMagic) return std::nullopt;
  return ShareTicket{static_cast<pid_t>(written.pid), written.key};
}

Result<vmm::SharedMemory> FetchMemory(const ShareTicket& ticket) {
  Result<vmm::SharedMemory> memory =
      ticket.pid == getpid() ? vmm::GiveMemory(ticket.key) : AskForMemory(ticket);
  if (!memory.ok())
    RawLog(LogLevel::kWarning, "device memory of process %d, as far as it is one of this task: %s",
           static_cast<int>(ticket.pid), memory.status().ToString().c_str());
  return memory;
}

namespace {

std::optional<CUipcEventHandle> EventHandleIn(const Result<Message>& answer) {
  if (!answer.ok()) return std::nullopt;
  PayloadReader in(answer->payload);
  const std::vector<std::byte> bytes = in.Bytes(sizeof(CUipcEventHandle));
  if (!in.Finish().ok() || bytes.size() != sizeof(CUipcEventHandle)) return std::nullopt;
  CUipcEventHandle handle;
  std::memcpy(&handle, bytes.data(), sizeof handle);
  return handle;
}

}  // namespace

std::optional<CUipcEventHandle> FetchEvent(const ShareTicket& ticket) {
  return EventHandleIn(AskPatiently(ticket, kGiveEvent));
}

std::optional<CUipcEventHandle> FindSharedEvent(uint64_t key) {
  const Result<std::vector<std::string>> names = ListFolder(TaskFolder() + "/ctl");
  if (!names.ok()) return std::nullopt;
  for (const std::string& name : *names) {
    if (!name.starts_with("share-") || !name.ends_with(".sock")) continue;
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str() + std::strlen("share-"), nullptr, 10));
    if (pid <= 0 || pid == getpid()) continue;
    if (const auto handle = EventHandleIn(Ask({pid, key}, kGiveEvent))) return handle;
  }
  return std::nullopt;
}

void SetSharing(vmm::Sharing sharing) {
  if (!g_used.load(std::memory_order_relaxed)) return;
  if (sharing == vmm::Sharing::kNothing) return ShareServer::Get().Stop();
  const Status status = ShareServer::Get().Start(sharing);
  if (!status.ok())
    RawLog(LogLevel::kError, "device memory cannot be shared any more: %s", status.ToString().c_str());
}

void ResetSharingAfterFork() {
  // Where nothing was shared nothing exists.
  if (!g_used.exchange(false, std::memory_order_relaxed)) return;
  ShareServer::Get().ResetAfterFork();
  replay::SharedEvents::Get().ResetAfterFork();
}

}  // namespace stasis

#include "intercept/share_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
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

  Status Start() {
    const std::lock_guard lock(mutex_);
    if (running_) return {};
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
      if (poll(waits.data(), waits.size(), -1) <= 0) continue;
      for (size_t i = 2; i < waits.size(); ++i)
        if ((waits[i].revents & (POLLHUP | POLLERR)) != 0) Forget(waits[i].fd);
      if ((waits[1].revents & POLLIN) == 0) continue;
      Result<Fd> connection = listener_.Accept();
      if (connection.ok()) Answer(connection->get());
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

  static void Answer(int connection) {
    const Result<PeerCredentials> peer = GetPeerCredentials(connection);
    if (!peer.ok() || (peer->uid != geteuid() && peer->uid != 0)) return;
    const Deadline deadline = Deadline::After(kRequestTime);
    MessageDecoder decoder;
    Result<Message> request = ReceiveMessage(connection, decoder, deadline);
    if (!request.ok()) return;
    PayloadReader in(request->payload);
    const uint64_t key = in.U64();
    if (!in.Finish().ok()) return;
    Message answer = request->type == kGive ? Give(key) : GiveEvent(key);
    answer.request_id = request->request_id;
    (void)SendMessage(connection, std::move(answer), deadline);
  }

  std::mutex mutex_;
  bool running_ = false, stopping_ = false;
  pthread_t thread_{};
  UnixListener listener_;
  Fd wake_;
  std::vector<Held> held_;
};

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
  if (answer.type != kGiven) return Status(StatusCode::kNotFound, "it is gone");
  return answer;
}

Result<vmm::SharedMemory> AskForMemory(const ShareTicket& ticket) {
  ASSIGN_OR_RETURN(Message answer, Ask(ticket, kGive));
  ASSIGN_OR_RETURN(vmm::SharedMemory memory, vmm::DecodeSharedMemory(answer.payload));
  memory.fds = std::move(answer.fds);
  if (memory.fds.size() != memory.pieces.size())
    return Status(StatusCode::kCorrupt, "shared device memory without descriptors");
  return memory;
}

}  // namespace

Status StartSharing() {
  g_used.store(true, std::memory_order_relaxed);
  return ShareServer::Get().Start();
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

std::optional<CUipcEventHandle> FetchEvent(const ShareTicket& ticket) {
  const Result<Message> answer = Ask(ticket, kGiveEvent);
  if (!answer.ok()) return std::nullopt;
  PayloadReader in(answer->payload);
  const std::vector<std::byte> bytes = in.Bytes(sizeof(CUipcEventHandle));
  if (!in.Finish().ok() || bytes.size() != sizeof(CUipcEventHandle)) return std::nullopt;
  CUipcEventHandle handle;
  std::memcpy(&handle, bytes.data(), sizeof handle);
  return handle;
}

std::optional<CUipcEventHandle> FindSharedEvent(uint64_t key) {
  const Result<std::vector<std::string>> names = ListFolder(TaskFolder() + "/ctl");
  if (!names.ok()) return std::nullopt;
  for (const std::string& name : *names) {
    if (!name.starts_with("share-") || !name.ends_with(".sock")) continue;
    const pid_t pid = static_cast<pid_t>(std::strtol(name.c_str() + std::strlen("share-"), nullptr, 10));
    if (pid <= 0 || pid == getpid()) continue;
    if (const auto handle = FetchEvent({pid, key})) return handle;
  }
  return std::nullopt;
}

void PauseSharing() {
  if (g_used.load(std::memory_order_relaxed)) ShareServer::Get().Stop();
}

void ResumeSharing() {
  if (!g_used.load(std::memory_order_relaxed)) return;
  const Status status = StartSharing();
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

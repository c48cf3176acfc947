#include "softgpu/device/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/raw_log.h"

namespace softgpu {

using stasis::Deadline;
using stasis::ErrnoStatus;
using stasis::Fd;
using stasis::LogLevel;
using stasis::Message;
using stasis::RawLog;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

// A client with much to say must not keep the others waiting.
constexpr int kMessagesPerTurn = 32;

constexpr int kSourceShift = 56;

// Each allocation, export and client costs a descriptor here.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // Without it the daemon serves fewer at a time, and says so to whom it refuses.
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

Fd OpenSpare() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

Result<Fd> OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigset_t blocked = set;
  sigaddset(&blocked, SIGPIPE);
  if (sigprocmask(SIG_BLOCK, &blocked, nullptr) != 0) return ErrnoStatus(errno, "sigprocmask");
  Fd signals(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return ErrnoStatus(errno, "signalfd");
  return signals;
}

}  // namespace

Server::Server(const Options& options) : options_(options) {}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Create(const Options& options) {
  RETURN_IF_ERROR(CheckConfig(options.node));
  std::unique_ptr<Server> server(new Server(options));
  RETURN_IF_ERROR(server->Open());
  return server;
}

Status Server::Open() {
  RaiseDescriptorLimit();
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return ErrnoStatus(errno, "epoll_create1");
  ASSIGN_OR_RETURN(signals_, OpenSignals());
  spare_ = OpenSpare();
  ASSIGN_OR_RETURN(listener_, stasis::UnixListener::Listen(options_.socket_path));
  RETURN_IF_ERROR(AddToEpoll(signals_.get(), EPOLLIN, Source::kSignal, 0));
  RETURN_IF_ERROR(AddToEpoll(listener_.fd(), EPOLLIN, Source::kListener, 0));
  service_ = std::make_unique<Service>(options_.node, options_.socket_path, this);
  return Status();
}

Status Server::AddToEpoll(int fd, uint32_t events, Source source, uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<uint64_t>(source) << kSourceShift | id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return ErrnoStatus(errno, "epoll_ctl");
  return Status();
}

// ---- the loop

Status Server::Run() {
  while (!stop_) {
    UpdateIdle();
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, std::size(events), NextWakeup().PollTimeout());
    if (count < 0 && errno != EINTR) return ErrnoStatus(errno, "epoll_wait");
    for (int i = 0; i < count; i++) {
      uint64_t data = events[i].data.u64;
      Dispatch(static_cast<Source>(data >> kSourceShift), data & ((1ull << kSourceShift) - 1),
               events[i].events);
      Deliver();
    }
    service_->Tick();
    Deliver();
  }
  return Status();
}

void Server::UpdateIdle() {
  if (options_.idle_exit == stasis::Duration::zero()) return;
  bool idle = !service_->Busy();
  if (idle && !idle_) idle_since_ = clock().Now();
  idle_ = idle;
  if (idle_ && clock().Now() >= idle_since_ + options_.idle_exit) stop_ = true;
}

Deadline Server::NextWakeup() const {
  if (stop_) return Deadline::After(stasis::Duration::zero());
  stasis::MonotonicTime next = service_->NextTick();
  if (idle_) next = std::min(next, idle_since_ + options_.idle_exit);
  return Deadline::At(next);
}

void Server::Dispatch(Source source, uint64_t id, uint32_t events) {
  switch (source) {
    case Source::kListener:
      AcceptAll();
      break;
    case Source::kSignal:
      stop_ = true;
      break;
    case Source::kClient:
      ServeClient(id, events);
      break;
    case Source::kToken:
      if ((events & (EPOLLHUP | EPOLLERR)) != 0) service_->TokenClosed(id);
      break;
    case Source::kProcess:
      ProcessEvent(static_cast<pid_t>(id));
      break;
  }
}

// ---- clients

void Server::AcceptAll() {
  for (;;) {
    Result<Fd> socket = listener_.Accept();
    if (socket.ok()) {
      Adopt(std::move(socket).value());
    } else if (socket.status().code() == StatusCode::kResourceExhausted && spare_.valid()) {
      // The connection would stay in the backlog and wake us for ever: take it with the spare descriptor,
      // close it.
      spare_.Reset();
      Result<Fd> refused = listener_.Accept();
      if (refused.ok()) refused->Reset();
      spare_ = OpenSpare();
      RawLog(LogLevel::kWarning, "no descriptors left: a client was refused");
      if (!refused.ok()) return;
    } else {
      return;
    }
  }
}

void Server::Adopt(Fd socket) {
  Result<stasis::PeerCredentials> peer = stasis::GetPeerCredentials(socket.get());
  if (!peer.ok()) return;
  Result<ClientId> id = service_->Attach(*peer);
  if (!id.ok()) {
    RawLog(LogLevel::kWarning, "client of process %d refused: %s", peer->pid, id.status().ToString().c_str());
    return;
  }
  Status added = AddToEpoll(socket.get(), EPOLLIN, Source::kClient, *id);
  if (!added.ok()) {
    RawLog(LogLevel::kWarning, "client of process %d refused: %s", peer->pid, added.ToString().c_str());
    return service_->Detach(*id);
  }
  connections_.emplace(*id, Connection(std::move(socket)));
}

void Server::ServeClient(ClientId id, uint32_t events) {
  auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Status status = (events & EPOLLOUT) != 0 ? found->second.Flush() : Status();
  for (int i = 0; status.ok() && i < kMessagesPerTurn; i++) {
    Result<std::optional<Message>> message = found->second.Receive();
    if (message.ok() && !message->has_value()) break;
    status = message.ok() ? service_->Handle(id, std::move(**message)) : message.status();
    Deliver();
    found = connections_.find(id);
    if (found == connections_.end()) return;
  }
  if (!status.ok()) {
    if (status.code() != StatusCode::kPeerDied) {
      RawLog(LogLevel::kWarning, "client %llu dropped: %s", static_cast<unsigned long long>(id),
             status.ToString().c_str());
    }
    return Drop(id);
  }
  epoll_event event{};
  event.events = EPOLLIN | (found->second.wants_to_write() ? EPOLLOUT : 0u);
  event.data.u64 = static_cast<uint64_t>(Source::kClient) << kSourceShift | id;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd(), &event);
}

void Server::Drop(ClientId id) {
  connections_.erase(id);
  service_->Detach(id);
}

// Sends what the service has produced. Dropping a client produces more, for others: as long as there is any.
void Server::Deliver() {
  for (;;) {
    Service::Output output = service_->Take();
    if (output.messages.empty() && output.dropped.empty()) return;
    for (auto& [id, message] : output.messages) SendTo(id, std::move(message));
    for (ClientId id : output.dropped) Drop(id);
  }
}

void Server::SendTo(ClientId id, Message message) {
  auto found = connections_.find(id);
  if (found == connections_.end()) return;
  bool waited = found->second.wants_to_write();
  Status status = found->second.Send(std::move(message));
  if (!status.ok()) {
    if (status.code() != StatusCode::kPeerDied) {
      RawLog(LogLevel::kWarning, "client %llu dropped: %s", static_cast<unsigned long long>(id),
             status.ToString().c_str());
    }
    return Drop(id);
  }
  if (waited || !found->second.wants_to_write()) return;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT;
  event.data.u64 = static_cast<uint64_t>(Source::kClient) << kSourceShift | id;
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd(), &event);
}

// ---- the service's world

Result<Fd> Server::CreateMemory(uint32_t device, uint64_t id, uint64_t size) {
  char name[64];
  std::snprintf(name, sizeof name, "softgpu-%u-%llu", device, static_cast<unsigned long long>(id));
  Fd memory(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(memory.get(), static_cast<off_t>(size)) != 0) return ErrnoStatus(errno, "size the memory");
  // A client that could shrink it would kill the others with SIGBUS.
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "seal the memory");
  }
  return memory;
}

Status Server::WatchToken(uint64_t token, int read_end) {
  // No events asked for: EPOLLHUP comes anyway, and bytes that somebody writes into the pipe must not wake
  // us.
  return AddToEpoll(read_end, 0, Source::kToken, token);
}

void Server::UnwatchToken(int read_end) { (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, read_end, nullptr); }

Result<uid_t> Server::WatchProcess(pid_t pid) {
  auto found = processes_.find(pid);
  if (found != processes_.end()) {
    found->second.count++;
    return found->second.uid;
  }
  Watch watch;
  watch.pidfd.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!watch.pidfd.valid()) return ErrnoStatus(errno, "pidfd_open");
  struct stat info;
  std::string path = "/proc/" + std::to_string(pid);
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  RETURN_IF_ERROR(AddToEpoll(watch.pidfd.get(), EPOLLIN, Source::kProcess, static_cast<uint64_t>(pid)));
  watch.uid = info.st_uid;
  watch.count = 1;
  processes_[pid] = std::move(watch);
  return info.st_uid;
}

void Server::UnwatchProcess(pid_t pid) {
  auto found = processes_.find(pid);
  if (found != processes_.end() && --found->second.count == 0) processes_.erase(found);
}

void Server::ProcessEvent(pid_t pid) {
  auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  // The event may be about an earlier process with this pid, whose watch ended in the same round.
  pollfd ended{found->second.pidfd.get(), POLLIN, 0};
  if (poll(&ended, 1, 0) > 0) service_->ProcessExited(pid);
}

}  // namespace softgpu

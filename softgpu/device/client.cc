#include "softgpu/device/client.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/message.h"
#include "base/unix_socket.h"
#include "softgpu/device/autostart.h"
#include "softgpu/device/protocol.h"

namespace softgpu {

using stasis::Clock;
using stasis::Deadline;
using stasis::Duration;
using stasis::ErrnoStatus;
using stasis::Errorf;
using stasis::Fd;
using stasis::Message;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr Duration kFarewell = std::chrono::milliseconds(100);
constexpr Duration kLongestWait = std::chrono::hours(24);
constexpr Duration kDefaultCheckpointWait = std::chrono::minutes(10);

std::string OwnProcessName() {
  char name[kMaxNameLength];
  Fd file(open("/proc/self/comm", O_RDONLY | O_CLOEXEC));
  ssize_t length = file.valid() ? read(file.get(), name, sizeof name) : 0;
  while (length > 0 && name[length - 1] == '\n') length--;
  return std::string(name, static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

uint32_t Milliseconds(Duration wait) {
  auto count = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return static_cast<uint32_t>(std::min<decltype(count)>(count, UINT32_MAX));
}

}  // namespace

// The client whose receiving thread this is, if any.
static constinit thread_local const void* receiving_for = nullptr;

class DeviceClient::Impl {
 public:
  Impl(Fd socket, Fd wake, const ConnectOptions& options, EventHandler* handler)
      : options_(options), handler_(handler), socket_(std::move(socket)), wake_(std::move(wake)) {}

  Status Start();
  Status SayHello();
  void Close();
  void Abandon();
  bool abandoned() const { return abandoned_.load(std::memory_order_relaxed) || getpid() != owner_; }
  bool connected() const;
  const std::vector<DeviceInfo>& devices() const { return devices_; }

  // Sends `request` and waits for the message that answers it.
  Result<Message> Call(Request request, const Deadline& deadline);
  template <typename Body>
  Result<Body> Ask(Request request);
  Result<Allocation> AskAllocation(Request request);
  Status Tell(Request request);
  Status RequestSlice(uint32_t device);
  Status ReleaseSlice(uint32_t device);
  Deadline RpcDeadline() const { return Deadline::After(options_.rpc_timeout); }

 private:
  enum class SliceState { kIdle, kPending, kHeld };
  struct Slice {
    SliceState state = SliceState::kIdle;
    uint32_t serial = 0;
  };
  struct Waiter {
    bool done = false;
    Message answer;
  };

  static void* ThreadMain(void* self);
  void Receive();
  Result<bool> ReceiveOne(stasis::MessageDecoder& decoder);
  Status Dispatch(Message message);
  void DispatchReply(Message message);
  void DispatchEvent(Event event);
  void OnSlice(uint32_t device, uint32_t serial, bool granted);
  void OnFault(const DeviceFaultEvent& event);
  void Break(const Status& why);
  Status CheckUsable() const;
  // An id is all that matters: it publishes nothing.
  uint64_t NextRequestId() { return next_request_.fetch_add(1, std::memory_order_relaxed); }
  Status SendNow(Message message, const Deadline& deadline);

  const ConnectOptions options_;
  EventHandler* const handler_;
  const pid_t owner_ = getpid();
  std::vector<DeviceInfo> devices_;     // constant after SayHello
  std::atomic<bool> abandoned_{false};  // partner: none; only the forked child writes it, single-threaded

  pthread_t thread_{};
  bool thread_runs_ = false;  // of Start and Close, which do not race

  std::atomic<uint64_t> next_request_{1};

  // One message at a time on the wire; also guards the value of socket_ against Close.
  std::mutex send_mutex_;
  Fd socket_;
  Fd wake_;

  mutable std::mutex mutex_;  // guards what follows; never held during a send or a callback
  std::condition_variable answered_;
  Status broken_;  // not OK: the connection is over
  std::map<uint64_t, Waiter*> waiters_;

  // Held while a slice message is sent, so that messages leave in the order in which the state changed. Taken
  // before send_mutex_.
  std::mutex slice_mutex_;
  std::map<uint32_t, Slice> slices_;
};

// ---- thread

Status DeviceClient::Impl::Start() {
  sigset_t all, before;
  sigfillset(&all);
  // The new thread inherits the mask: no signal of the host program is ever handled on it.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread_, nullptr, &Impl::ThreadMain, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return ErrnoStatus(error, "pthread_create");
  thread_runs_ = true;
  pthread_setname_np(thread_, "softgpu-client");
  return Status();
}

void* DeviceClient::Impl::ThreadMain(void* self) {
  receiving_for = self;
  static_cast<Impl*>(self)->Receive();
  return nullptr;
}

// False: Close() wants the thread to end, or nothing came.
Result<bool> DeviceClient::Impl::ReceiveOne(stasis::MessageDecoder& decoder) {
  pollfd waits[] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  if (poll(waits, 2, -1) < 0) {
    if (errno != EINTR) return ErrnoStatus(errno, "poll");
    return true;
  }
  if (waits[1].revents != 0) return false;
  ASSIGN_OR_RETURN(bool complete, stasis::ReceiveSome(socket_.get(), decoder));
  if (complete) RETURN_IF_ERROR(Dispatch(decoder.Take()));
  return true;
}

void DeviceClient::Impl::Receive() {
  stasis::MessageDecoder decoder(kReplyLimits);
  for (;;) {
    Result<bool> going_on = ReceiveOne(decoder);
    if (going_on.ok() && !*going_on) return;
    if (going_on.ok()) continue;
    Status why = Status(StatusCode::kPeerDied,
                        "connection to softgpud lost: " + std::string(going_on.status().message()));
    Break(why);
    if (handler_ != nullptr) handler_->OnDisconnected(why);
    return;
  }
}

Status DeviceClient::Impl::Dispatch(Message message) {
  if (message.type == static_cast<uint32_t>(MessageType::kReply)) {
    DispatchReply(std::move(message));
    return Status();
  }
  ASSIGN_OR_RETURN(Event event, ParseEvent(message));
  DispatchEvent(std::move(event));
  return Status();
}

void DeviceClient::Impl::DispatchReply(Message message) {
  {
    std::lock_guard lock(mutex_);
    auto found = waiters_.find(message.request_id);
    if (found != waiters_.end()) {
      found->second->answer = std::move(message);
      found->second->done = true;
      answered_.notify_all();
      return;
    }
  }
  // The caller had given up. If it was given memory, nobody here would ever give that back.
  Result<AllocationBody> body = ParseReply<AllocationBody>(message);
  if (body.ok()) (void)SendNow(Encode(MemReleaseRequest{body->id}, NextRequestId()), RpcDeadline());
}

void DeviceClient::Impl::DispatchEvent(Event event) {
  if (auto* granted = std::get_if<SliceGrantedEvent>(&event)) {
    OnSlice(granted->device, granted->serial, true);
  } else if (auto* revoke = std::get_if<SliceRevokeEvent>(&event)) {
    OnSlice(revoke->device, revoke->serial, false);
  } else if (auto* fault = std::get_if<DeviceFaultEvent>(&event)) {
    OnFault(*fault);
  } else if (auto* checkpoint = std::get_if<CheckpointProcessEvent>(&event)) {
    if (handler_ == nullptr) return;
    handler_->OnCheckpointOp(
        {checkpoint->token, checkpoint->op, checkpoint->timeout_ms, std::move(checkpoint->args)});
  }
}

// Events that crossed a message of ours, about a slice that we have already given back, are dropped here.
void DeviceClient::Impl::OnSlice(uint32_t device, uint32_t serial, bool granted) {
  {
    std::lock_guard lock(slice_mutex_);
    Slice& slice = slices_[device];
    SliceState expected = granted ? SliceState::kPending : SliceState::kHeld;
    if (slice.serial != serial || slice.state != expected) return;
    slice.state = SliceState::kHeld;
  }
  if (handler_ == nullptr) return;
  if (granted) {
    handler_->OnSliceGranted(device);
  } else {
    handler_->OnSliceRevoke(device);
  }
}

void DeviceClient::Impl::OnFault(const DeviceFaultEvent& event) {
  if (event.fault.kind == FaultKind::kFellOffBus) {
    // The daemon has cleared the device's queue.
    std::lock_guard lock(slice_mutex_);
    slices_[event.device].state = SliceState::kIdle;
  }
  if (handler_ != nullptr) handler_->OnDeviceFault(event.device, event.fault);
}

// ---- sending

void DeviceClient::Impl::Break(const Status& why) {
  std::lock_guard lock(mutex_);
  if (broken_.ok()) broken_ = why;
  answered_.notify_all();
}

bool DeviceClient::Impl::connected() const {
  if (abandoned()) return false;
  std::lock_guard lock(mutex_);
  return broken_.ok();
}

Status DeviceClient::Impl::CheckUsable() const {
  if (abandoned()) {
    return Status(StatusCode::kFailedPrecondition, "the device connection belongs to the parent process");
  }
  std::lock_guard lock(mutex_);
  return broken_;
}

Status DeviceClient::Impl::SendNow(Message message, const Deadline& deadline) {
  std::lock_guard lock(send_mutex_);
  if (!socket_.valid()) return Status(StatusCode::kPeerDied, "the device connection is closed");
  return stasis::SendMessage(socket_.get(), std::move(message), deadline);
}

Status DeviceClient::Impl::Tell(Request request) {
  RETURN_IF_ERROR(CheckUsable());
  return SendNow(Encode(std::move(request), 0), RpcDeadline());
}

Result<Message> DeviceClient::Impl::Call(Request request, const Deadline& deadline) {
  RETURN_IF_ERROR(CheckUsable());
  if (receiving_for == this) {
    return Status(StatusCode::kFailedPrecondition, "the receiving thread cannot wait for an answer");
  }
  Waiter waiter;
  uint64_t id = NextRequestId();
  {
    std::lock_guard lock(mutex_);
    waiters_[id] = &waiter;
  }
  Status outcome = SendNow(Encode(std::move(request), id), deadline);
  auto until = std::chrono::steady_clock::now() + std::min<Duration>(deadline.Remaining(), kLongestWait);
  std::unique_lock lock(mutex_);
  if (outcome.ok() && !answered_.wait_until(lock, until, [&] { return waiter.done || !broken_.ok(); })) {
    outcome = Status(StatusCode::kTimeout, "softgpud did not answer in time");
  }
  waiters_.erase(id);
  if (waiter.done) return std::move(waiter.answer);
  return broken_.ok() ? outcome : broken_;
}

template <typename Body>
Result<Body> DeviceClient::Impl::Ask(Request request) {
  ASSIGN_OR_RETURN(Message answer, Call(std::move(request), RpcDeadline()));
  return ParseReply<Body>(answer);
}

Result<Allocation> DeviceClient::Impl::AskAllocation(Request request) {
  ASSIGN_OR_RETURN(Message answer, Call(std::move(request), RpcDeadline()));
  ASSIGN_OR_RETURN(AllocationBody body, ParseReply<AllocationBody>(answer));
  if (answer.fds.size() != 1) return Status(StatusCode::kCorrupt, "an allocation came without its memory");
  return Allocation{body.id, body.device, body.size, std::move(answer.fds[0])};
}

Status DeviceClient::Impl::SayHello() {
  HelloRequest hello;
  hello.flags = static_cast<uint8_t>((options_.observer ? HelloRequest::kObserver : 0) |
                                     (options_.resumed ? HelloRequest::kResumed : 0));
  hello.name = options_.process_name.empty() ? OwnProcessName() : options_.process_name;
  ASSIGN_OR_RETURN(HelloBody body, Ask<HelloBody>(std::move(hello)));
  devices_ = std::move(body.devices);
  return Status();
}

// ---- slices

Status DeviceClient::Impl::RequestSlice(uint32_t device) {
  RETURN_IF_ERROR(CheckUsable());
  if (device >= devices_.size()) return Errorf(StatusCode::kInvalidArgument, "no device %u", device);
  std::lock_guard lock(slice_mutex_);
  Slice& slice = slices_[device];
  if (slice.state != SliceState::kIdle) return Status();
  slice.state = SliceState::kPending;
  slice.serial++;
  return Tell(SliceRequest{device, slice.serial});
}

Status DeviceClient::Impl::ReleaseSlice(uint32_t device) {
  RETURN_IF_ERROR(CheckUsable());
  if (device >= devices_.size()) return Errorf(StatusCode::kInvalidArgument, "no device %u", device);
  std::lock_guard lock(slice_mutex_);
  Slice& slice = slices_[device];
  if (slice.state == SliceState::kIdle) return Status();
  slice.state = SliceState::kIdle;
  return Tell(SliceReleaseRequest{device});
}

// ---- the end

void DeviceClient::Impl::Close() {
  if (!thread_runs_) return;
  const bool usable = CheckUsable().ok();
  Break(Status(StatusCode::kPeerDied, "the device connection is closed"));
  // The thread first: it answers events, and the daemon hangs up on who says anything after Bye, which the
  // thread would take for the daemon's end.
  uint64_t one = 1;
  ssize_t written [[maybe_unused]] = write(wake_.get(), &one, sizeof one);
  pthread_join(thread_, nullptr);
  thread_runs_ = false;
  // In one go, for the same reason: others may be about to send.
  std::lock_guard lock(send_mutex_);
  // Lets the daemon take back everything at once, even if a forked child still has a copy of the socket. If
  // it cannot be sent, closing says the same.
  if (usable) (void)stasis::SendMessage(socket_.get(), Encode(ByeRequest{}, 0), Deadline::After(kFarewell));
  socket_.Reset();
  wake_.Reset();
}

void DeviceClient::Impl::Abandon() {
  abandoned_.store(true, std::memory_order_relaxed);
  socket_.Reset();
  wake_.Reset();
}

// ---- DeviceClient

std::string DefaultSocketPath() {
  const char* named = std::getenv("SOFTGPU_SOCKET");
  if (named != nullptr && named[0] != '\0') return named;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return std::string(runtime) + "/softgpu/softgpud.sock";
  return "/tmp/softgpu-" + std::to_string(geteuid()) + "/softgpud.sock";
}

// A socket in a shared folder could be anybody's: memory is only taken from ourselves or from root.
static Status CheckServer(int socket, const std::string& path) {
  ASSIGN_OR_RETURN(stasis::PeerCredentials peer, stasis::GetPeerCredentials(socket));
  if (peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0) return Status();
  return Errorf(StatusCode::kPermissionDenied, "softgpud at %s belongs to user %u", path.c_str(), peer.uid);
}

static bool NobodyThere(StatusCode code) {
  return code == StatusCode::kNotFound || code == StatusCode::kUnavailable || code == StatusCode::kPeerDied;
}

static Status StartDaemon(const ConnectOptions& options, const std::string& path, const Deadline& deadline) {
  ASSIGN_OR_RETURN(Fd lock, LockStart(path, deadline));
  // Whoever had the lock before may have started it.
  if (stasis::ConnectUnix(path, deadline).ok()) return Status();
  ASSIGN_OR_RETURN(std::string daemon, FindDaemon());
  return SpawnDaemon(daemon, path, options.idle_exit_s, deadline);
}

Result<std::unique_ptr<DeviceClient>> DeviceClient::ConnectOnce(const std::string& path,
                                                                const ConnectOptions& options,
                                                                EventHandler* handler,
                                                                const Deadline& deadline) {
  ASSIGN_OR_RETURN(Fd socket, stasis::ConnectUnix(path, deadline));
  RETURN_IF_ERROR(CheckServer(socket.get(), path));
  Fd wake(eventfd(0, EFD_CLOEXEC));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<DeviceClient> client(
      new DeviceClient(std::make_unique<Impl>(std::move(socket), std::move(wake), options, handler)));
  RETURN_IF_ERROR(client->impl_->Start());
  RETURN_IF_ERROR(client->impl_->SayHello());
  return client;
}

Result<std::unique_ptr<DeviceClient>> DeviceClient::Connect(const ConnectOptions& options,
                                                            EventHandler* handler) {
  std::string path = options.socket_path.empty() ? DefaultSocketPath() : options.socket_path;
  Deadline deadline = Deadline::After(options.connect_timeout);
  Result<std::unique_ptr<DeviceClient>> client = ConnectOnce(path, options, handler, deadline);
  // Twice, because a daemon may reach its idle exit while we connect to it.
  for (int round = 0; round < 2 && options.autostart && !client.ok(); round++) {
    if (!NobodyThere(client.status().code())) return client;
    Status started = StartDaemon(options, path, deadline);
    if (!started.ok()) return Status(StatusCode::kUnavailable, std::string(started.message()));
    client = ConnectOnce(path, options, handler, deadline);
  }
  if (client.ok() || !NobodyThere(client.status().code())) return client;
  return Errorf(StatusCode::kUnavailable, "no softgpud answers at %s (%s)", path.c_str(),
                std::string(client.status().message()).c_str());
}

DeviceClient::DeviceClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

DeviceClient::~DeviceClient() {
  if (impl_->abandoned()) {
    // Locks inside may be held by threads that this process does not have: it is left as it is.
    (void)impl_.release();
    return;
  }
  impl_->Close();
}

const std::vector<DeviceInfo>& DeviceClient::devices() const { return impl_->devices(); }

bool DeviceClient::connected() const { return impl_->connected(); }

Result<std::vector<DeviceInfo>> DeviceClient::Devices() {
  ASSIGN_OR_RETURN(DevicesBody body, impl_->Ask<DevicesBody>(DevicesRequest{}));
  return std::move(body.devices);
}

Status DeviceClient::CtxCreate(uint32_t device) {
  return impl_->Ask<EmptyBody>(CtxCreateRequest{device}).status();
}

Status DeviceClient::CtxDestroy(uint32_t device) {
  return impl_->Ask<EmptyBody>(CtxDestroyRequest{device}).status();
}

Result<Allocation> DeviceClient::MemCreate(uint32_t device, uint64_t size) {
  return impl_->AskAllocation(MemCreateRequest{device, size});
}

Status DeviceClient::MemRelease(uint64_t id) { return impl_->Ask<EmptyBody>(MemReleaseRequest{id}).status(); }

Result<Fd> DeviceClient::MemExport(uint64_t id) {
  ASSIGN_OR_RETURN(Message answer, impl_->Call(MemExportRequest{id}, impl_->RpcDeadline()));
  RETURN_IF_ERROR(ParseReply<EmptyBody>(answer).status());
  if (answer.fds.size() != 1) return Status(StatusCode::kCorrupt, "an export came without its descriptor");
  return std::move(answer.fds[0]);
}

Result<Allocation> DeviceClient::MemImport(int fd) {
  MemImportRequest request;
  request.token = Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!request.token.valid() && errno == EBADF) {
    return Status(StatusCode::kInvalidArgument, "import: not an open descriptor");
  }
  if (!request.token.valid()) return ErrnoStatus(errno, "import: duplicate the descriptor");
  return impl_->AskAllocation(std::move(request));
}

Result<MemoryInfo> DeviceClient::MemInfo(uint32_t device) {
  ASSIGN_OR_RETURN(MemInfoBody body, impl_->Ask<MemInfoBody>(MemInfoRequest{device}));
  return body.info;
}

Status DeviceClient::RequestSlice(uint32_t device) { return impl_->RequestSlice(device); }

Status DeviceClient::ReleaseSlice(uint32_t device) { return impl_->ReleaseSlice(device); }

Result<CheckpointResult> DeviceClient::CheckpointRequest(pid_t pid, CheckpointOp op, uint32_t timeout_ms,
                                                         std::span<const std::byte> args, Duration timeout) {
  if (args.size() > kMaxCheckpointArgs) {
    return Errorf(StatusCode::kInvalidArgument, "%zu bytes of arguments, at most %zu are allowed",
                  args.size(), kMaxCheckpointArgs);
  }
  Duration wait = timeout > Duration::zero() ? timeout : kDefaultCheckpointWait;
  CheckpointProcessRequest request{pid, op, timeout_ms, Milliseconds(wait), {args.begin(), args.end()}};
  // The daemon watches the time; this side only guards against a daemon that does not.
  Deadline deadline = Deadline::At(Deadline::After(wait).when() + std::chrono::seconds(5));
  ASSIGN_OR_RETURN(Message answer, impl_->Call(std::move(request), deadline));
  ASSIGN_OR_RETURN(CheckpointBody body, ParseReply<CheckpointBody>(answer));
  return body.result;
}

Status DeviceClient::CheckpointReply(uint64_t token, const CheckpointResult& result) {
  return impl_->Tell(CheckpointReplyRequest{token, result});
}

Result<Inventory> DeviceClient::GetInventory() {
  ASSIGN_OR_RETURN(InventoryBody body, impl_->Ask<InventoryBody>(InventoryRequest{}));
  return std::move(body.inventory);
}

Status DeviceClient::InjectFault(uint32_t device, const Fault& fault) {
  return impl_->Ask<EmptyBody>(InjectFaultRequest{device, fault}).status();
}

void DeviceClient::Close() {
  if (!impl_->abandoned()) impl_->Close();
}

void DeviceClient::AbandonAfterFork() { impl_->Abandon(); }

}  // namespace softgpu

#include "softgpu/device/service.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace softgpu {

using stasis::ErrnoStatus;
using stasis::Errorf;
using stasis::Fd;
using stasis::Message;
using stasis::MonotonicTime;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

Service::Service(const NodeConfig& config, const std::string& identity, Environment* environment)
    : config_(config),
      environment_(*environment),
      registry_(BuildDevices(config, identity),
                [environment](uint32_t device, AllocId id, uint64_t size) {
                  return environment->CreateMemory(device, id, size);
                }),
      slices_(config.gpus, config.slice),
      rendezvous_(environment) {}

Service::~Service() {
  for (auto& [id, token] : tokens_) environment_.UnwatchToken(token.read_end.get());
}

// ---- connections

Result<ClientId> Service::Attach(const stasis::PeerCredentials& peer) {
  ASSIGN_OR_RETURN(uid_t uid [[maybe_unused]], environment_.WatchProcess(peer.pid));
  ClientId id = next_client_++;
  clients_[id].peer = peer;
  return id;
}

// Gives back all that a client has, while its connection may still stand.
void Service::LetGo(ClientId id) {
  registry_.RemoveClient(id);
  Send(slices_.Remove(id, Now()));
}

void Service::Detach(ClientId id) {
  auto found = clients_.find(id);
  if (found == clients_.end()) return;
  pid_t pid = found->second.peer.pid;
  clients_.erase(found);
  LetGo(id);
  Send(rendezvous_.Disconnected(id));
  environment_.UnwatchProcess(pid);
}

void Service::ProcessExited(pid_t pid) {
  Send(rendezvous_.ProcessExited(pid));
  for (const auto& [id, client] : clients_) {
    if (client.peer.pid == pid) output_.dropped.push_back(id);
  }
}

Status Service::Handle(ClientId id, Message message) {
  auto found = clients_.find(id);
  if (found == clients_.end()) return Status(StatusCode::kNotFound, "no such client");
  Client& client = found->second;
  if (client.said_bye) return Status(StatusCode::kCorrupt, "a message after Bye");
  uint64_t request_id = message.request_id;
  ASSIGN_OR_RETURN(Request request, ParseRequest(std::move(message)));
  if (client.greeted == std::holds_alternative<HelloRequest>(request)) {
    return Status(StatusCode::kCorrupt, client.greeted ? "a second Hello" : "a request before Hello");
  }
  Call call{id, request_id, client};
  std::visit([&](auto& alternative) { On(call, alternative); }, request);
  return Status();
}

void Service::On(const Call& call, HelloRequest& request) {
  if (request.protocol != kProtocolVersion) {
    Answer(call, Errorf(StatusCode::kUnsupported, "this softgpud speaks protocol %u, the client %u",
                        kProtocolVersion, request.protocol));
    return;
  }
  call.client.greeted = true;
  call.client.observer = (request.flags & HelloRequest::kObserver) != 0;
  call.client.name = request.name;
  registry_.AddClient(call.id);
  Answer<HelloBody>(call, HelloBody{config_.node_name, registry_.devices()});
  if (call.client.observer) return;
  bool resumed = (request.flags & HelloRequest::kResumed) != 0;
  const stasis::PeerCredentials& peer = call.client.peer;
  Result<Rendezvous::Output> output =
      rendezvous_.Connected(peer.pid, peer.uid, call.id, request.name, resumed);
  // The only failure is that the process has ended; its connection ends by itself then.
  if (output.ok()) Send(std::move(output).value());
}

void Service::On(const Call& call, ByeRequest&) {
  call.client.said_bye = true;
  LetGo(call.id);
}

// ---- devices and contexts

void Service::On(const Call& call, DevicesRequest&) {
  Answer<DevicesBody>(call, DevicesBody{registry_.devices()});
}

void Service::On(const Call& call, CtxCreateRequest& request) {
  Status status = registry_.CtxCreate(call.id, request.device);
  Answer(call, status);
  if (!status.ok()) return;
  // Who comes late has not seen the event that told the others.
  double factor = registry_.devices()[request.device].slow_factor;
  if (factor != 1) {
    Send(call.id, DeviceFaultEvent{request.device, Fault{.kind = FaultKind::kSlow, .factor = factor}});
  }
}

void Service::On(const Call& call, CtxDestroyRequest& request) {
  Answer(call, registry_.CtxDestroy(call.id, request.device));
}

void Service::On(const Call& call, InjectFaultRequest& request) {
  Status status = registry_.Inject(request.device, request.fault);
  if (status.ok()) AnnounceFault(request.device, request.fault);
  Answer(call, status);
}

void Service::AnnounceFault(uint32_t device, const Fault& fault) {
  // Running out of memory shows itself at the next allocation.
  if (fault.kind == FaultKind::kOomAfter) return;
  std::vector<ClientId> told = registry_.ClientsOf(device);
  if (fault.kind == FaultKind::kFellOffBus) {
    std::vector<ClientId> waiting = slices_.Clear(device);
    told.insert(told.end(), waiting.begin(), waiting.end());
    std::sort(told.begin(), told.end());
    told.erase(std::unique(told.begin(), told.end()), told.end());
  }
  for (ClientId client : told) Send(client, DeviceFaultEvent{device, fault});
}

// ---- memory

void Service::AnswerAllocation(const Call& call, const Result<Registry::AllocView>& view) {
  if (!view.ok()) return Answer(call, view.status());
  Fd memory(fcntl(view->memory, F_DUPFD_CLOEXEC, 0));
  if (!memory.valid()) {
    Status status = ErrnoStatus(errno, "duplicate the memory's descriptor");
    STASIS_CHECK(registry_.MemRelease(call.id, view->id).ok());
    return Answer(call, status);
  }
  Message reply = EncodeReply(call.request_id, AllocationBody{view->id, view->device, view->size});
  reply.fds.push_back(std::move(memory));
  output_.messages.emplace_back(call.id, std::move(reply));
}

void Service::On(const Call& call, MemCreateRequest& request) {
  Result<Registry::AllocView> view = registry_.MemCreate(call.id, request.device, request.size);
  if (view.status().code() == StatusCode::kResourceExhausted && DropClosedTokens())
    view = registry_.MemCreate(call.id, request.device, request.size);
  AnswerAllocation(call, view);
}

void Service::On(const Call& call, MemReleaseRequest& request) {
  Answer(call, registry_.MemRelease(call.id, request.id));
}

void Service::On(const Call& call, MemInfoRequest& request) {
  (void)DropClosedTokens();
  Result<MemoryInfo> info = registry_.MemInfo(request.device);
  if (!info.ok()) return Answer(call, info.status());
  Answer<MemInfoBody>(call, MemInfoBody{*info});
}

// The pipe's write end; the read end is kept and watched.
Result<Fd> Service::MakeToken(AllocId alloc) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  struct stat info;
  if (fstat(read_end.get(), &info) != 0) return ErrnoStatus(errno, "fstat pipe");
  uint64_t id = next_token_++;
  RETURN_IF_ERROR(environment_.WatchToken(id, read_end.get()));
  std::pair<dev_t, ino_t> pipe(info.st_dev, info.st_ino);
  registry_.AddToken(alloc);
  token_of_pipe_[pipe] = id;
  tokens_[id] = Token{alloc, pipe, std::move(read_end)};
  return write_end;
}

Result<AllocId> Service::FindToken(int fd) const {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "fstat token");
  auto found = token_of_pipe_.find({info.st_dev, info.st_ino});
  if (!S_ISFIFO(info.st_mode) || found == token_of_pipe_.end()) {
    return Status(StatusCode::kInvalidArgument, "the descriptor is no exported memory of this node");
  }
  return tokens_.at(found->second).alloc;
}

// What was closed before a request was sent counts as closed when that is handled, whichever of the two the
// server has heard of first.
bool Service::DropClosedTokens() {
  std::vector<pollfd> waits;
  std::vector<uint64_t> ids;
  for (const auto& [id, token] : tokens_) {
    waits.push_back({token.read_end.get(), 0, 0});
    ids.push_back(id);
  }
  if (waits.empty() || poll(waits.data(), waits.size(), 0) <= 0) return false;
  for (size_t i = 0; i < ids.size(); ++i)
    if (waits[i].revents != 0) TokenClosed(ids[i]);
  return true;
}

void Service::TokenClosed(uint64_t id) {
  auto found = tokens_.find(id);
  if (found == tokens_.end()) return;
  environment_.UnwatchToken(found->second.read_end.get());
  registry_.DropToken(found->second.alloc);
  token_of_pipe_.erase(found->second.pipe);
  tokens_.erase(found);
}

void Service::On(const Call& call, MemExportRequest& request) {
  Status allowed = registry_.CheckExport(call.id, request.id);
  if (!allowed.ok()) return Answer(call, allowed);
  Result<Fd> token = MakeToken(request.id);
  if (!token.ok()) return Answer(call, token.status());
  Message reply = EncodeReply(call.request_id, EmptyBody{});
  reply.fds.push_back(std::move(token).value());
  output_.messages.emplace_back(call.id, std::move(reply));
}

void Service::On(const Call& call, MemImportRequest& request) {
  Result<AllocId> alloc = FindToken(request.token.get());
  if (!alloc.ok()) return Answer(call, alloc.status());
  AnswerAllocation(call, registry_.MemImport(call.id, *alloc));
}

// ---- time slices

void Service::On(const Call& call, SliceRequest& request) {
  Status usable = registry_.CheckUsable(request.device);
  if (usable.ok()) return Send(slices_.Request(call.id, request.device, request.serial, Now()));
  // Nobody waits for an answer to this request, so the reason comes as an event.
  Send(call.id, DeviceFaultEvent{request.device, Fault{.kind = FaultKind::kFellOffBus}});
}

void Service::On(const Call& call, SliceReleaseRequest& request) {
  if (request.device < config_.gpus) Send(slices_.Release(call.id, request.device, Now()));
}

// ---- checkpoint rendezvous

void Service::On(const Call& call, CheckpointProcessRequest& request) {
  Rendezvous::Caller caller{call.id, call.request_id, call.client.peer.uid};
  Send(rendezvous_.Request(caller, std::move(request)));
}

void Service::On(const Call& call, CheckpointReplyRequest& request) {
  Send(rendezvous_.Reply(call.id, request.token, request.result));
}

// ---- inventory

Inventory Service::MakeInventory() const {
  Inventory inventory;
  inventory.node_name = config_.node_name;
  inventory.daemon_pid = getpid();
  for (uint32_t i = 0; i < config_.gpus; i++) inventory.devices.push_back(registry_.StatusOf(i));
  for (const auto& [id, client] : clients_) {
    if (!client.greeted || client.observer || client.said_bye) continue;
    ProcessInfo info;
    info.pid = client.peer.pid;
    info.uid = client.peer.uid;
    info.name = client.name;
    info.state = rendezvous_.StateOf(client.peer.pid);
    registry_.Describe(id, &info);
    inventory.processes.push_back(std::move(info));
  }
  for (ProcessInfo& info : rendezvous_.Absent()) {
    registry_.Describe(0, &info);
    inventory.processes.push_back(std::move(info));
  }
  return inventory;
}

void Service::On(const Call& call, InventoryRequest&) {
  Answer<InventoryBody>(call, InventoryBody{MakeInventory()});
}

// ---- output

void Service::Answer(const Call& call, const Status& status) {
  output_.messages.emplace_back(call.id, EncodeReply(call.request_id, status));
}

template <typename Body>
void Service::Answer(const Call& call, Result<Body> body) {
  if (!body.ok()) return Answer(call, body.status());
  output_.messages.emplace_back(call.id, EncodeReply(call.request_id, std::move(body).value()));
}

void Service::Send(ClientId client, Event event) {
  output_.messages.emplace_back(client, Encode(std::move(event)));
}

void Service::Send(const SliceScheduler::Notices& notices) {
  for (const SliceScheduler::Notice& notice : notices) {
    if (notice.kind == SliceScheduler::Notice::Kind::kGranted) {
      Send(notice.client, SliceGrantedEvent{notice.device, notice.serial});
    } else {
      Send(notice.client, SliceRevokeEvent{notice.device, notice.serial});
    }
  }
}

void Service::Send(Rendezvous::Output output) {
  for (Rendezvous::Forward& forward : output.forwards) Send(forward.client, std::move(forward.event));
  for (Rendezvous::Answer& answer : output.answers) {
    Message reply = answer.result.ok() ? EncodeReply(answer.request_id, CheckpointBody{*answer.result})
                                       : EncodeReply(answer.request_id, answer.result.status());
    output_.messages.emplace_back(answer.client, std::move(reply));
  }
}

// ---- time

void Service::Tick() {
  Send(slices_.Tick(Now()));
  Send(rendezvous_.Tick());
}

MonotonicTime Service::NextTick() const { return std::min(slices_.NextTick(), rendezvous_.NextTick()); }

bool Service::Busy() const {
  bool served =
      std::any_of(clients_.begin(), clients_.end(), [](const auto& entry) { return !entry.second.observer; });
  return served || registry_.allocation_count() > 0 || !rendezvous_.empty();
}

}  // namespace softgpu

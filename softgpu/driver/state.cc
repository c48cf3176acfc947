#include "softgpu/driver/state.h"

#include <cstring>
#include <utility>

#include "base/raw_log.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/graph_exec.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/link.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/module.h"
#include "softgpu/driver/user_object.h"

namespace softgpu {

using stasis::LogLevel;
using stasis::RawLog;

namespace {

std::atomic<State*> the_state{nullptr};

// How long the end of the process waits for calls of other threads.
constexpr std::chrono::seconds kLeaveWithin(2);

CUresult ErrorOfFault(FaultKind kind) {
  return kind == FaultKind::kEcc ? CUDA_ERROR_ECC_UNCORRECTABLE : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

}  // namespace

State::State() = default;
State::~State() {
  // Its thread uses what is declared behind the memory's parts, and so is destroyed before them.
  if (memory_ != nullptr) memory_->StopCheckpoints();
}

State* State::Get() { return the_state.load(std::memory_order_acquire); }

CUresult State::Initialize() {
  static std::mutex* mutex = new std::mutex;
  std::lock_guard lock(*mutex);
  if (Get() != nullptr) return CUDA_SUCCESS;
  auto state = std::unique_ptr<State>(new State);
  CUresult result = state->Start();
  if (result == CUDA_SUCCESS) the_state.store(state.release(), std::memory_order_release);
  return result;
}

CUresult State::Start() {
  stasis::SetRawLogName("softgpu");
  stasis::Result<Settings> settings = ReadSettings();
  if (!settings.ok()) {
    RawLog(LogLevel::kError, "cuInit: %s", settings.status().ToString().c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  settings_ = std::move(*settings);
  if (!settings_.log) stasis::SetRawLogLevel(LogLevel::kOff);
  stasis::Status connected = Connect(false);
  if (!connected.ok()) {
    RawLog(LogLevel::kError, "cuInit: no device: %s", connected.ToString().c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  return MakeDevices();
}

stasis::Status State::Connect(bool resumed) {
  ConnectOptions options;
  options.socket_path = settings_.socket;
  options.autostart = settings_.autostart;
  options.idle_exit_s = settings_.idle_exit_s;
  options.resumed = resumed;
  ASSIGN_OR_RETURN(client_, DeviceClient::Connect(options, this));
  return stasis::Status();
}

CUresult State::MakeDevices() {
  std::vector<DeviceInfo> visible = SelectVisible(client_->devices(), settings_);
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  std::vector<std::unique_ptr<Device>> made;
  for (DeviceInfo& info : visible) {
    auto device = std::make_unique<Device>(static_cast<int>(made.size()), std::move(info));
    if (settings_.sms != 0) device->set_workers(settings_.sms);
    device->slice().Connect(client_.get(), device->daemon_ordinal());
    device->primary().handle = new CUctx_st{device->ordinal(), true};
    made.push_back(std::move(device));
  }
  {
    // The receiving thread may be looking.
    std::lock_guard lock(mutex_);
    devices_ = std::move(made);
  }
  stasis::Result<std::unique_ptr<MemoryParts>> memory = MemoryParts::Create(*this);
  if (!memory.ok()) {
    RawLog(LogLevel::kError, "cuInit: %s", memory.status().ToString().c_str());
    return FromStatus(memory.status());
  }
  memory_ = std::move(*memory);
  return CUDA_SUCCESS;
}

Device* State::FindDevice(CUdevice ordinal) const {
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= devices_.size()) return nullptr;
  return devices_[static_cast<size_t>(ordinal)].get();
}

Device* State::FindDaemonDevice(uint32_t daemon_ordinal) const {
  std::lock_guard lock(mutex_);
  for (const auto& device : devices_) {
    if (device->daemon_ordinal() == daemon_ordinal) return device.get();
  }
  return nullptr;
}

CUresult State::CreateContext(Device& device, CUcontext handle, unsigned flags, unsigned api_version,
                              std::shared_ptr<Context>* out) {
  stasis::Status created = client_ != nullptr ? client_->CtxCreate(device.daemon_ordinal())
                                              : stasis::Status(stasis::StatusCode::kPeerDied, "");
  if (!created.ok()) return FromStatus(created);
  auto context =
      std::make_shared<Context>(handle, &device, flags, api_version, next_context_id_.fetch_add(1));
  memory_->ContextCreated(*context);
  std::lock_guard lock(mutex_);
  contexts_[handle] = context;
  *out = context;
  return CUDA_SUCCESS;
}

void State::RemoveObjectsOf(const Context& context) {
  auto mine = [&context](const auto& object) { return &object.context() == &context; };
  graph_execs.RemoveIf(mine);
  streams.RemoveIf(mine);
  events.RemoveIf(mine);
  functions.RemoveIf(mine);
  modules.RemoveIf(mine);
  for (const std::shared_ptr<Library>& library : libraries.All()) library->ContextDestroyed(context);
}

void State::DestroyContext(const std::shared_ptr<Context>& context, bool cancel) {
  {
    std::lock_guard lock(mutex_);
    if (contexts_.erase(context->handle()) == 0) return;
    over_.push_back(context);
  }
  // What a stuck function of the program may still use is left alone.
  if (!context->Close(cancel)) {
    left_behind_.store(true);
    return;
  }
  RemoveObjectsOf(*context);
  memory_->ContextDestroyed(*context);
  if (client_ == nullptr) return;
  // Fails only when the connection is gone, and the context with it.
  static_cast<void>(client_->CtxDestroy(context->device().daemon_ordinal()));
}

std::shared_ptr<Context> State::FindContext(CUcontext handle) const {
  std::lock_guard lock(mutex_);
  auto found = contexts_.find(handle);
  return found == contexts_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Context>> State::Contexts() const {
  std::vector<std::shared_ptr<Context>> all;
  std::lock_guard lock(mutex_);
  for (const auto& entry : contexts_) all.push_back(entry.second);
  return all;
}

void State::SetCheckpointHandler(std::function<void(const CheckpointEvent&)> handler) {
  std::lock_guard lock(mutex_);
  checkpoint_handler_ = std::move(handler);
}

void State::OnSliceGranted(uint32_t device) {
  if (Device* mine = FindDaemonDevice(device)) mine->slice().Granted();
}

void State::OnSliceRevoke(uint32_t device) {
  if (Device* mine = FindDaemonDevice(device)) mine->slice().Revoked();
}

void State::OnDeviceFault(uint32_t device, const Fault& fault) {
  Device* mine = FindDaemonDevice(device);
  if (mine == nullptr) return;
  mine->set_slow_factor(fault.kind == FaultKind::kSlow ? fault.factor : 1.0);
  if (fault.kind == FaultKind::kFellOffBus) mine->slice().Lost();
  if (fault.kind != FaultKind::kFellOffBus && fault.kind != FaultKind::kEcc) return;
  for (const std::shared_ptr<Context>& context : Contexts()) {
    if (&context->device() == mine) context->Break(ErrorOfFault(fault.kind));
  }
}

void State::OnCheckpointOp(const CheckpointEvent& event) {
  std::function<void(const CheckpointEvent&)> handler;
  {
    std::lock_guard lock(mutex_);
    handler = checkpoint_handler_;
  }
  if (handler) handler(event);
}

void State::OnDisconnected(const stasis::Status& why) {
  RawLog(LogLevel::kError, "lost the device daemon: %s", why.ToString().c_str());
  std::vector<Device*> devices;
  {
    std::lock_guard lock(mutex_);
    for (const auto& device : devices_) devices.push_back(device.get());
  }
  for (Device* device : devices) device->slice().Lost();
  for (const std::shared_ptr<Context>& context : Contexts()) context->Break(CUDA_ERROR_DEVICE_UNAVAILABLE);
}

void State::Disconnect() {
  for (const auto& device : devices_) device->slice().Disconnect();
  client_->Close();
  client_.reset();
}

stasis::Status State::Reconnect(const std::function<CUuuid(const CUuuid&)>& new_uuid) {
  RETURN_IF_ERROR(Connect(true));
  for (const auto& device : devices_) {
    CUuuid uuid{};
    std::memcpy(uuid.bytes, device->info().uuid.data(), sizeof uuid.bytes);
    if (new_uuid) uuid = new_uuid(uuid);
    const DeviceInfo* found = nullptr;
    for (const DeviceInfo& candidate : client_->devices()) {
      if (std::memcmp(candidate.uuid.data(), uuid.bytes, sizeof uuid.bytes) == 0) found = &candidate;
    }
    if (found == nullptr) {
      client_->Close();
      client_.reset();
      return stasis::Errorf(stasis::StatusCode::kNotFound, "device %d is not there any more",
                            device->ordinal());
    }
    device->Rebind(*found);
    device->slice().Connect(client_.get(), found->ordinal);
  }
  for (const std::shared_ptr<Context>& context : Contexts()) {
    RETURN_IF_ERROR(client_->CtxCreate(context->device().daemon_ordinal()));
  }
  memory_->Reconnected(*this);
  return stasis::Status();
}

bool State::Shutdown() {
  for (const std::shared_ptr<Context>& context : Contexts()) context->Break(CUDA_ERROR_DEINITIALIZED);
  bool empty = CallGate().Close(stasis::Deadline::After(kLeaveWithin));
  for (const std::shared_ptr<Context>& context : Contexts()) DestroyContext(context, true);
  if (client_ != nullptr) client_->Close();
  CallGate().Open();
  if (!empty || left_behind_.load()) return false;
  the_state.store(nullptr, std::memory_order_release);
  delete this;
  return true;
}

void State::AbandonAfterFork() {
  if (client_ != nullptr) client_->AbandonAfterFork();
}

}  // namespace softgpu

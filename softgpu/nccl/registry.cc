#include <unistd.h>

#include <unordered_map>

#include "softgpu/nccl/communicator.h"

namespace softgpu::nccl {

namespace {

// Never destroyed: kernels may run while the process exits.
struct Registry {
  std::mutex mutex;
  std::unordered_map<ncclComm_t, CommunicatorPtr> by_handle;
  std::unordered_map<uint64_t, CommunicatorPtr> by_id;
  // The child of a fork has neither the threads nor the device.
  std::atomic<pid_t> owner{0};
};

Registry& TheRegistry() {
  static auto* registry = new Registry;
  return *registry;
}

}  // namespace

ncclComm_t Register(CommunicatorPtr communicator) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  auto* handle = reinterpret_cast<ncclComm_t>(communicator.get());
  registry.owner.store(getpid());
  registry.by_id[communicator->id()] = communicator;
  registry.by_handle[handle] = std::move(communicator);
  return handle;
}

CommunicatorPtr Find(ncclComm_t handle) {
  Registry& registry = TheRegistry();
  if (registry.owner.load() != getpid()) return nullptr;
  std::lock_guard lock(registry.mutex);
  const auto found = registry.by_handle.find(handle);
  return found == registry.by_handle.end() ? nullptr : found->second;
}

CommunicatorPtr FindById(uint64_t id) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  const auto found = registry.by_id.find(id);
  return found == registry.by_id.end() ? nullptr : found->second;
}

void Unregister(const CommunicatorPtr& communicator) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.by_handle.erase(reinterpret_cast<ncclComm_t>(communicator.get()));
}

void Forget(const CommunicatorPtr& communicator) {
  Registry& registry = TheRegistry();
  std::lock_guard lock(registry.mutex);
  registry.by_id.erase(communicator->id());
}

}  // namespace softgpu::nccl

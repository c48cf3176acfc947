// Contexts as owners of memory, and peer access between them.
#include <algorithm>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {

CUresult MemoryError(const stasis::Status& status) {
  switch (status.code()) {
    case stasis::StatusCode::kOk:
      return CUDA_SUCCESS;
    case stasis::StatusCode::kResourceExhausted:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case stasis::StatusCode::kInvalidArgument:
    case stasis::StatusCode::kNotFound:
      return CUDA_ERROR_INVALID_VALUE;
    case stasis::StatusCode::kUnsupported:
      return CUDA_ERROR_NOT_SUPPORTED;
    case stasis::StatusCode::kFailedPrecondition:
      return CUDA_ERROR_NOT_INITIALIZED;
    case stasis::StatusCode::kUnavailable:
    case stasis::StatusCode::kPeerDied:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case stasis::StatusCode::kTimeout:
      return CUDA_ERROR_TIMEOUT;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

MemoryManager::MemoryManager(DeviceClient* client, int devices) : source_(client, devices) {}

MemoryManager::~MemoryManager() {
  std::vector<CUcontext> contexts;
  for (const auto& [context, memory] : contexts_) contexts.push_back(context);
  for (CUcontext context : contexts) RemoveContext(context);
  for (const auto& [base, reservation] : reservations_) ReleaseAddresses(base, reservation.size);
  reservations_.clear();
  for (const auto& [base, block] : blocks_) DropMemoryLocked(block);
}

stasis::Result<std::unique_ptr<MemoryManager>> MemoryManager::Create(DeviceClient* client, int devices) {
  std::unique_ptr<MemoryManager> manager(new MemoryManager(client, devices));
  for (int device = 0; device < devices; ++device) {
    ASSIGN_OR_RETURN(std::unique_ptr<exec::AccessMap> map, exec::AccessMap::Create());
    manager->access_maps_.push_back(std::move(map));
  }
  return manager;
}

void MemoryManager::AddContext(CUcontext context, int device) {
  std::lock_guard lock(mutex_);
  contexts_[context].device = device;
}

void MemoryManager::RemoveContext(CUcontext context) {
  std::vector<std::shared_ptr<Physical>> dying;
  std::lock_guard lock(mutex_);
  // The references die after the lock, being declared before it.
  auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    if (it->second.context != context || it->second.kind == BlockKind::kPool) {
      ++it;
      continue;
    }
    Block block = std::move(it->second);
    it = blocks_.erase(it);
    dying.push_back(DropMemoryLocked(block));
  }
  for (auto& [key, other] : contexts_) {
    if (other.peers.erase(context) != 0)
      GrantContextMemoryLocked(other, key, found->second.device, exec::Access::kNone);
  }
  STASIS_CHECK(found->second.slabs.empty());
  contexts_.erase(found);
}

std::vector<int> MemoryManager::DevicesOfLocked(const ContextMemory& context) const {
  std::vector<int> devices = {context.device};
  for (CUcontext peer : context.peers) {
    int device = contexts_.at(peer).device;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

// Sets what `device` may do with everything that the context owns; taking rights away leaves those that
// another context on the same device still has.
void MemoryManager::GrantContextMemoryLocked(const ContextMemory& context, CUcontext key, int device,
                                             exec::Access access) {
  std::vector<int> entitled = DevicesOfLocked(context);
  bool still = std::find(entitled.begin(), entitled.end(), device) != entitled.end();
  if (access == exec::Access::kNone && still) return;
  for (const auto& [home, slab] : context.slabs) access_maps_[device]->Set(home, slab->size(), access);
  for (const auto& [base, block] : blocks_) {
    bool plain = block.kind == BlockKind::kDevice || block.kind == BlockKind::kModule ||
                 block.kind == BlockKind::kArray;
    if (block.context != key || !plain || block.shared_slab) continue;
    access_maps_[device]->Set(block.physical->home(), block.physical->size(), access);
  }
}

CUresult MemoryManager::EnablePeer(CUcontext from, CUcontext owner) {
  std::lock_guard lock(mutex_);
  auto user = contexts_.find(from), memory = contexts_.find(owner);
  if (user == contexts_.end() || memory == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!memory->second.peers.insert(from).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  GrantContextMemoryLocked(memory->second, owner, user->second.device, exec::Access::kReadWrite);
  return CUDA_SUCCESS;
}

CUresult MemoryManager::DisablePeer(CUcontext from, CUcontext owner) {
  std::lock_guard lock(mutex_);
  auto user = contexts_.find(from), memory = contexts_.find(owner);
  if (user == contexts_.end() || memory == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
  if (memory->second.peers.erase(from) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  GrantContextMemoryLocked(memory->second, owner, user->second.device, exec::Access::kNone);
  return CUDA_SUCCESS;
}

}  // namespace softgpu

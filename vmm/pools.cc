#include "vmm/pools.h"

#include <algorithm>
#include <utility>

#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

Pools& Pools::Get() {
  static Pools* const pools = new Pools;  // outlives every destructor
  return *pools;
}

Pools::PoolPtr Pools::FindLocked(CUmemoryPool pool) const {
  auto found = pools_.find(pool);
  return found == pools_.end() ? nullptr : found->second;
}

Pools::PoolPtr Pools::Find(CUmemoryPool pool) const {
  auto lock = Memory::Get().Lock();
  PoolPtr found = FindLocked(pool);
  return found == nullptr || found->destroyed ? nullptr : found;
}

std::vector<Pools::PoolPtr> Pools::All() const {
  auto lock = Memory::Get().Lock();
  std::vector<PoolPtr> all;
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  return all;
}

CUresult Pools::Create(CUmemoryPool* out, const CUmemPoolProps* props) {
  if (out == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps physical = *props;
  physical.location = ToPhysicalLocation(props->location);
  auto pool = std::make_shared<Pool>();
  const CUresult result = Driver().cuMemPoolCreate(&pool->real, &physical);
  if (result != CUDA_SUCCESS) return result;
  pool->props = *props;
  pool->device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : -1;
  pool->forwarded = pool->device < 0 || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (!pool->forwarded) pool->arena = std::make_shared<Arena>(pool->device, true);
  auto lock = Memory::Get().Lock();
  // The driver may give a handle again that the program knows for a pool of an earlier driver.
  pool->visible = pools_.count(pool->real) == 0 ? pool->real : reinterpret_cast<CUmemoryPool>(pool.get());
  *out = pool->visible;
  pools_.emplace(pool->visible, std::move(pool));
  return CUDA_SUCCESS;
}

CUresult Pools::Destroy(CUmemoryPool handle) {
  PoolPtr pool = Find(handle);
  const CUresult result = Driver().cuMemPoolDestroy(pool == nullptr ? handle : pool->real);
  if (result != CUDA_SUCCESS || pool == nullptr) return result;
  {
    auto lock = Memory::Get().Lock();
    pool->destroyed = true;
    pool->real = nullptr;
    for (auto& [device, current] : current_)
      if (current == handle) current = defaults_.at(device);
  }
  Trim(pool, 0);
  return CUDA_SUCCESS;
}

CUresult Pools::DefaultOf(int device, PoolPtr* out) {
  {
    auto lock = Memory::Get().Lock();
    auto found = defaults_.find(device);
    if (found != defaults_.end()) {
      *out = pools_.at(found->second);
      return CUDA_SUCCESS;
    }
  }
  auto pool = std::make_shared<Pool>();
  const CUresult result = Driver().cuDeviceGetDefaultMemPool(&pool->real, ToPhysicalDevice(device));
  if (result != CUDA_SUCCESS) return result;
  pool->device = device;
  pool->is_default = true;
  pool->arena = std::make_shared<Arena>(device, true);
  auto lock = Memory::Get().Lock();
  pool->visible = pools_.count(pool->real) == 0 ? pool->real : reinterpret_cast<CUmemoryPool>(pool.get());
  auto [entry, is_new] = defaults_.emplace(device, pool->visible);
  if (is_new) {
    current_[device] = pool->visible;
    pools_.emplace(pool->visible, pool);
  }
  *out = pools_.at(entry->second);
  return CUDA_SUCCESS;
}

CUresult Pools::CurrentOf(int device, PoolPtr* out) {
  const CUresult result = DefaultOf(device, out);
  if (result != CUDA_SUCCESS) return result;
  auto lock = Memory::Get().Lock();
  *out = pools_.at(current_.at(device));
  return CUDA_SUCCESS;
}

CUresult Pools::GetDefault(CUmemoryPool* out, int device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PoolPtr pool;
  const CUresult result = DefaultOf(device, &pool);
  if (result == CUDA_SUCCESS) *out = pool->visible;
  return result;
}

CUresult Pools::GetCurrent(CUmemoryPool* out, int device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PoolPtr pool;
  const CUresult result = CurrentOf(device, &pool);
  if (result == CUDA_SUCCESS) *out = pool->visible;
  return result;
}

CUresult Pools::SetCurrent(int device, CUmemoryPool handle) {
  PoolPtr current;
  CUresult result = DefaultOf(device, &current);
  if (result != CUDA_SUCCESS) return result;
  result = Driver().cuDeviceSetMemPool(ToPhysicalDevice(device), ToReal(handle));
  if (result != CUDA_SUCCESS) return result;
  auto lock = Memory::Get().Lock();
  current_[device] = handle;
  return CUDA_SUCCESS;
}

CUmemoryPool Pools::ToReal(CUmemoryPool visible) const {
  const PoolPtr pool = Find(visible);
  return pool == nullptr ? visible : pool->real;
}

CUmemoryPool Pools::ToVisible(CUmemoryPool real) const {
  if (real == nullptr) return real;
  for (const PoolPtr& pool : All())
    if (pool->real == real) return pool->visible;
  return real;
}

// The driver checks attribute and value, and its pool has the same settings as ours.
CUresult Pools::SetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const PoolPtr pool = Find(handle);
  const CUresult result =
      Driver().cuMemPoolSetAttribute(pool == nullptr ? handle : pool->real, attribute, value);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  auto lock = Memory::Get().Lock();
  return pool->Store(attribute, value);
}

CUresult Pools::GetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const PoolPtr pool = Find(handle);
  const CUresult result =
      Driver().cuMemPoolGetAttribute(pool == nullptr ? handle : pool->real, attribute, value);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  Trim(pool, pool->release_threshold);
  auto lock = Memory::Get().Lock();
  // What the driver knows and we do not is its answer.
  pool->Load(attribute, value);
  return CUDA_SUCCESS;
}

CUresult Pools::SetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptors, size_t count) {
  const PoolPtr pool = Find(handle);
  if (descriptors == nullptr || count == 0)
    return Driver().cuMemPoolSetAccess(pool == nullptr ? handle : pool->real, descriptors, count);
  std::vector<CUmemAccessDesc> physical(descriptors, descriptors + count);
  for (CUmemAccessDesc& one : physical) one.location = ToPhysicalLocation(one.location);
  CUresult result =
      Driver().cuMemPoolSetAccess(pool == nullptr ? handle : pool->real, physical.data(), count);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    std::vector<Extent> extents;
    {
      auto lock = Memory::Get().Lock();
      extents = pool->arena->SetRights(descriptors[i].location.id, descriptors[i].flags);
    }
    result =
        Memory::Get().ApplyRights(pool->arena, extents, descriptors[i].location.id, descriptors[i].flags);
  }
  return result;
}

CUresult Pools::GetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  if (location == nullptr) return Driver().cuMemPoolGetAccess(flags, ToReal(handle), location);
  CUmemLocation physical = ToPhysicalLocation(*location);
  return Driver().cuMemPoolGetAccess(flags, ToReal(handle), &physical);
}

CUresult Pools::TrimTo(CUmemoryPool handle, size_t keep) {
  const PoolPtr pool = Find(handle);
  const CUresult result = Driver().cuMemPoolTrimTo(pool == nullptr ? handle : pool->real, keep);
  if (result == CUDA_SUCCESS && pool != nullptr) Trim(pool, keep);
  return result;
}

bool Pools::CoversLocked(CUdeviceptr address) const {
  return std::any_of(pools_.begin(), pools_.end(), [address](const auto& entry) {
    return entry.second->arena != nullptr && entry.second->arena->Covers(address);
  });
}

}  // namespace stasis::vmm

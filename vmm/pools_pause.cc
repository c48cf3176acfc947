// What a pause does with pools.
#include <vector>

#include "vmm/device_map.h"
#include "vmm/pools.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

Status MakeAgain(Pool& pool) {
  if (pool.is_default)
    return DriverStatus(Driver().cuDeviceGetDefaultMemPool(&pool.real, ToPhysicalDevice(pool.device)),
                        "cuDeviceGetDefaultMemPool");
  CUmemPoolProps props = pool.props;
  props.location = ToPhysicalLocation(props.location);
  return DriverStatus(Driver().cuMemPoolCreate(&pool.real, &props), "cuMemPoolCreate");
}

// The counters are ours alone: the driver's pool is empty.
Status RestoreAttributes(const Pool& pool) {
  constexpr CUmemPool_attribute kSettings[] = {
      CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
      CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD};
  for (const CUmemPool_attribute attribute : kSettings) {
    cuuint64_t value = 0;
    pool.Load(attribute, &value);
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMemPoolSetAttribute(pool.real, attribute, &value), "cuMemPoolSetAttribute"));
  }
  return {};
}

Status RestoreAccess(const Pool& pool) {
  std::vector<CUmemAccessDesc> rights;
  for (const auto& [device, flags] : pool.arena->rights()) {
    CUmemAccessDesc one{};
    one.location = {CU_MEM_LOCATION_TYPE_DEVICE, ToPhysicalDevice(device)};
    one.flags = flags;
    if (device != pool.device) rights.push_back(one);
  }
  if (rights.empty()) return {};
  return DriverStatus(Driver().cuMemPoolSetAccess(pool.real, rights.data(), rights.size()),
                      "cuMemPoolSetAccess");
}

}  // namespace

std::vector<std::shared_ptr<Arena>> Pools::Arenas() const {
  std::vector<std::shared_ptr<Arena>> arenas;
  for (const PoolPtr& pool : All())
    if (pool->arena != nullptr) arenas.push_back(pool->arena);
  return arenas;
}

void Pools::Settle() {
  for (const PoolPtr& pool : All()) Trim(pool, pool->destroyed ? 0 : pool->release_threshold, true);
}

Status Pools::ReleaseObjects() {
  Status first;
  for (const PoolPtr& pool : All()) {
    if (pool->real == nullptr) continue;
    const CUresult result = pool->is_default ? CUDA_SUCCESS : Driver().cuMemPoolDestroy(pool->real);
    pool->real = nullptr;
    if (first.ok()) first = DriverStatus(result, "cuMemPoolDestroy");
  }
  return first;
}

Status Pools::RebuildObjects() {
  for (const PoolPtr& pool : All()) {
    if (pool->destroyed || pool->forwarded || pool->real != nullptr) continue;
    RETURN_IF_ERROR(MakeAgain(*pool));
    RETURN_IF_ERROR(RestoreAttributes(*pool));
    RETURN_IF_ERROR(RestoreAccess(*pool));
  }
  for (const auto& [device, handle] : current_) {
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuDeviceSetMemPool(ToPhysicalDevice(device), pools_.at(handle)->real),
                     "cuDeviceSetMemPool"));
  }
  return {};
}

}  // namespace stasis::vmm

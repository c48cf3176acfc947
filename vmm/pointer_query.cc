#include "vmm/pointer_query.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "vmm/device_map.h"
#include "vmm/environment.h"
#include "vmm/held_memory.h"
#include "vmm/host_memory.h"
#include "vmm/memory.h"
#include "vmm/opened_memory.h"
#include "vmm/pools.h"
#include "vmm/real_driver.h"
#include "vmm/virtual_memory.h"

namespace stasis::vmm {
namespace {

// No driver has memory here: asking it about this address gives its own answer for unknown ones.
constexpr CUdeviceptr kUnknownAddress = 8;

struct Facts {
  std::optional<Block> block;
  std::optional<HostBlock> host;
  std::optional<VirtualMemory::View> mapped;
  // What to ask the driver about instead of the pointer.
  CUdeviceptr asked = 0;
};

Facts Gather(CUdeviceptr pointer) {
  Facts facts;
  facts.asked = pointer;
  facts.block = Memory::Get().Find(pointer);
  if (!facts.block) facts.block = OpenedMemory::Get().Find(pointer);
  if (facts.block) return facts;
  facts.host = HostMemory::Get().Find(pointer);
  if (facts.host) return facts;
  if (Memory::Get().Covers(pointer) || OpenedMemory::Get().Covers(pointer))
    facts.asked = kUnknownAddress;
  else
    facts.mapped = VirtualMemory::Get().Find(pointer);
  return facts;
}

template <typename T>
bool Store(void* data, T value) {
  std::memcpy(data, &value, sizeof value);
  return true;
}

// True when the attribute of an allocation of ours was stored.
bool AnswerBlock(const Block& block, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Store<CUcontext>(data, block.context);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store<int>(data, block.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store<CUdeviceptr>(data, block.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store<size_t>(data, block.size);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<unsigned long long>(data, block.buffer_id);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store<unsigned>(data, block.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Store<unsigned>(data, block.kind == BlockKind::kPlain);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<unsigned long long>(data, CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store<CUmemoryPool>(data, block.pool);
    default:
      return false;
  }
}

bool AnswerHost(const HostBlock& block, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store<unsigned long long>(data, block.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Store<unsigned>(data, block.kind == HostKind::kManaged);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return block.kind == HostKind::kManaged && Store<unsigned>(data, CU_MEMORYTYPE_DEVICE);
    default:
      return false;
  }
}

bool AnswerMapped(const VirtualMemory::View& view, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store<unsigned long long>(data, view.buffer_id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<unsigned long long>(data, view.block_id);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<unsigned long long>(data, view.handle_types);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store<unsigned>(data, view.sync_memops);
    default:
      return false;
  }
}

// The driver's answer in the words of the program.
void TranslateAnswer(CUpointer_attribute attribute, void* data) {
  if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) {
    CUcontext* const context = static_cast<CUcontext*>(data);
    *context = VisibleContext(*context);
  } else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    int* const device = static_cast<int*>(data);
    if (*device >= 0) *device = ToVirtualDevice(*device);
  } else if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
    CUmemoryPool* const pool = static_cast<CUmemoryPool*>(data);
    *pool = Pools::Get().ToVisible(*pool);
  }
}

void Mend(const Facts& facts, CUpointer_attribute attribute, void* data) {
  if (facts.block && AnswerBlock(*facts.block, attribute, data)) return;
  if (facts.host && AnswerHost(*facts.host, attribute, data)) return;
  if (facts.mapped && AnswerMapped(*facts.mapped, attribute, data)) return;
  TranslateAnswer(attribute, data);
}

}  // namespace

CUresult PointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Facts facts = Gather(pointer);
  const CUresult result = Driver().cuPointerGetAttribute(data, attribute, facts.asked);
  if (data == nullptr) return result;
  // The driver has no such answer for mapped memory where it has one for an allocation.
  if (result == CUDA_ERROR_INVALID_VALUE && facts.block && AnswerBlock(*facts.block, attribute, data))
    return CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) Mend(facts, attribute, data);
  return result;
}

CUresult PointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                              CUdeviceptr pointer) {
  const Facts facts = Gather(pointer);
  const CUresult result = Driver().cuPointerGetAttributes(count, attributes, data, facts.asked);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; i < count; ++i) Mend(facts, attributes[i], data[i]);
  return result;
}

CUresult PointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr pointer) {
  const Facts facts = Gather(pointer);
  const CUresult result = Driver().cuPointerSetAttribute(value, attribute, facts.asked);
  if (result != CUDA_SUCCESS || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return result;
  const bool on = *static_cast<const unsigned*>(value) != 0;
  if (facts.block && facts.block->kind == BlockKind::kOpened)
    OpenedMemory::Get().NoteSyncMemops(pointer, on);
  else if (facts.block)
    Memory::Get().NoteSyncMemops(pointer, on);
  if (facts.host) HostMemory::Get().NoteSyncMemops(pointer, on);
  if (facts.mapped) VirtualMemory::Get().NoteSyncMemops(pointer, on);
  return result;
}

CUresult GetAddressRange(CUdeviceptr* base, size_t* size, CUdeviceptr pointer) {
  const Facts facts = Gather(pointer);
  const CUresult result = Driver().cuMemGetAddressRange_v2(base, size, facts.asked);
  const bool about_address =
      result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE;
  if (!facts.block || !about_address) return result;
  if (base != nullptr) *base = facts.block->base;
  if (size != nullptr) *size = facts.block->size;
  return CUDA_SUCCESS;
}

CUresult GetMemInfo(size_t* free, size_t* total) {
  Memory::Get().SettleDeferredFrees();
  Pools::Get().TrimToThresholds();
  size_t real_free = 0, real_total = 0;
  const CUresult result = Driver().cuMemGetInfo_v2(&real_free, &real_total);
  Caller caller;
  if (result != CUDA_SUCCESS || CurrentCaller(&caller) != CUDA_SUCCESS) return result;
  const std::vector<TaskDevice>& devices = VisibleDevices();
  const size_t device = static_cast<size_t>(caller.device);
  if (device < devices.size() && devices[device].total_memory != 0) real_total = devices[device].total_memory;
  const uint64_t ours = Memory::Get().FreeBytes(caller.device) + HeldMemory::Get().Bytes(caller.device);
  if (free != nullptr) *free = std::min<size_t>(real_free + ours, real_total);
  if (total != nullptr) *total = real_total;
  return result;
}

bool IsPlainMemory(CUdeviceptr pointer) {
  const Facts facts = Gather(pointer);
  return facts.block || facts.asked == kUnknownAddress;
}

}  // namespace stasis::vmm

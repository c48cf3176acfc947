// Entry points: what the driver knows of a pointer.
#include <cuda.h>

#include <cstring>
#include <optional>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

// All that the attributes ask of the place where a pointer points.
struct PointerFacts {
  CUdeviceptr pointer = 0;
  MemoryView view;
  std::optional<Block> block;
  std::optional<MemoryManager::MappingInfo> mapping;
  std::optional<MemoryManager::ReservationInfo> reservation;
  bool known() const { return block || reservation; }
  bool mapped() const { return block || mapping; }
  const Physical* physical() const {
    return block ? block->physical.get() : mapping ? mapping->mapping.physical.get() : nullptr;
  }
};

PointerFacts Gather(const MemoryManager& memory, CUdeviceptr pointer) {
  PointerFacts facts;
  facts.pointer = pointer;
  facts.view = memory.View(pointer);
  facts.block = memory.FindBlock(pointer);
  if (!facts.block) {
    facts.mapping = memory.FindMapping(pointer);
    facts.reservation = memory.FindReservation(pointer);
  }
  return facts;
}

template <typename T>
CUresult Store(void* data, T value) {
  memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

bool OnHost(const PointerFacts& facts) { return facts.view.where == MemoryView::Where::kPinned; }
bool Managed(const PointerFacts& facts) { return facts.view.where == MemoryView::Where::kManaged; }

// What the device of the current context may do with the memory.
CUmemAccess_flags AccessOf(const MemoryManager& memory, const PointerFacts& facts, int device) {
  const exec::AccessMap* map = memory.access_map(device);
  if (map->Allows(facts.pointer, 1, true)) return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return map->Allows(facts.pointer, 1, false) ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

unsigned long long HandleTypes(const PointerFacts& facts) {
  return facts.mapping ? facts.mapping->mapping.physical->prop.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE;
}

int CurrentDevice(const Entry& entry) {
  if (entry.thread().stack.empty()) return 0;
  std::shared_ptr<Context> current = entry.state().FindContext(entry.thread().stack.back());
  return current == nullptr ? 0 : current->ordinal();
}

uint64_t MappingBase(const PointerFacts& facts) {
  return facts.mapping ? facts.mapping->address : facts.view.base;
}

CUresult AnswerWhere(const PointerFacts& facts, CUpointer_attribute attribute, void* data) {
  bool host_visible = OnHost(facts) || Managed(facts);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Store(data, facts.view.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Store<unsigned>(data, OnHost(facts) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return Store(data, facts.pointer);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host_visible) return CUDA_ERROR_INVALID_VALUE;
      return Store(data, reinterpret_cast<void*>(facts.pointer));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Store<unsigned>(data, Managed(facts));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store<int>(data, facts.view.device);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult AnswerRange(const PointerFacts& facts, CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Store<CUdeviceptr>(data, facts.reservation ? facts.reservation->base : facts.view.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Store<size_t>(data, facts.reservation ? facts.reservation->size : facts.view.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Store<unsigned>(data, facts.mapped());
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store<CUdeviceptr>(data, MappingBase(facts));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store<size_t>(data, facts.mapping ? facts.mapping->mapping.size : facts.view.size);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store<unsigned long long>(data, facts.block ? facts.block->id : facts.reservation->id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<unsigned long long>(data, facts.physical() == nullptr ? 0 : facts.physical()->block_id);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Answer(const Entry& entry, const PointerFacts& facts, CUpointer_attribute attribute, void* data) {
  const MemoryManager& memory = entry.state().memory().manager();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store<unsigned>(data, facts.view.sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Store<unsigned>(data, facts.block && facts.block->kind == BlockKind::kDevice);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store(data, HandleTypes(facts));
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Store<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Store<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Store<unsigned>(data, AccessOf(memory, facts, CurrentDevice(entry)));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store<CUmemoryPool>(data, facts.block ? facts.block->pool : nullptr);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  CUresult result = AnswerWhere(facts, attribute, data);
  return result == CUDA_SUCCESS ? result : AnswerRange(facts, attribute, data);
}

// Bytes of an attribute's value.
size_t SizeOf(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return 8;
    default:
      return 4;
  }
}

// cuPointerGetAttributes answers unknown pointers with nulls, and with ordinals that say "none".
void StoreNothing(CUpointer_attribute attribute, void* data) {
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    (void)Store<int>(data, CU_DEVICE_INVALID);
  } else {
    memset(data, 0, SizeOf(attribute));
  }
}

bool KnownAttribute(CUpointer_attribute attribute) {
  return attribute >= CU_POINTER_ATTRIBUTE_CONTEXT &&
         attribute <= CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (data == nullptr || !KnownAttribute(attribute)) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts facts = Gather(entry.state().memory().manager(), ptr);
  if (!facts.known()) return CUDA_ERROR_INVALID_VALUE;
  return Answer(entry, facts, attribute, data);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                        void** data, CUdeviceptr ptr) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PointerFacts facts = Gather(entry.state().memory().manager(), ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr || !KnownAttribute(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < numAttributes; ++i) {
    bool answered = facts.known() && Answer(entry, facts, attributes[i], data[i]) == CUDA_SUCCESS;
    if (!answered) StoreNothing(attributes[i], data[i]);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  unsigned on = 0;
  memcpy(&on, value, sizeof on);
  return entry.state().memory().manager().SetSyncMemops(ptr, on != 0);
}

}  // extern "C"

#include "vmm/opened_memory.h"

#include <iterator>
#include <vector>

#include "vmm/extent.h"
#include "vmm/virtual_memory.h"

namespace stasis::vmm {

OpenedMemory& OpenedMemory::Get() {
  static OpenedMemory* const memory = new OpenedMemory;  // outlives every destructor
  return *memory;
}

bool OpenedMemory::OpenAgain(CUcontext context, uint64_t key, CUdeviceptr* address) {
  const std::lock_guard lock(mutex_);
  for (auto& [start, opened] : opened_) {
    if (opened.key != key || opened.block.context != context) continue;
    ++opened.opens;
    *address = opened.block.base;
    return true;
  }
  return false;
}

// The handle is given back at once: the mapping keeps the memory.
CUresult OpenedMemory::MapPiece(CUdeviceptr at, const SharedPiece& piece, const Fd& fd, uint32_t handle_types,
                                int caller_device, int* device) {
  VirtualMemory& own = VirtualMemory::Get();
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = own.Import(&handle, fd, piece, handle_types);
  if (result != CUDA_SUCCESS) return result;
  CUmemAllocationProp prop{};
  result = own.GetProperties(&prop, handle);
  if (result == CUDA_SUCCESS) result = own.Map(at, piece.size, 0, handle, 0);
  own.Release(handle);
  if (result != CUDA_SUCCESS) return result;
  *device = prop.location.id;
  std::vector<CUmemAccessDesc> rights(caller_device == *device ? 1 : 2);
  for (CUmemAccessDesc& right : rights) right.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  rights.front().location = {CU_MEM_LOCATION_TYPE_DEVICE, *device};
  rights.back().location = {CU_MEM_LOCATION_TYPE_DEVICE, caller_device};
  bool exact = true;
  result = own.SetAccess(at, piece.size, rights.data(), rights.size(), &exact);
  if (result != CUDA_SUCCESS) own.Unmap(at, piece.size);
  return result;
}

CUresult OpenedMemory::MapPieces(const Caller& caller, SharedMemory memory, Opened* opened) {
  VirtualMemory& own = VirtualMemory::Get();
  uint64_t total = 0, mapped = 0;
  for (const SharedPiece& piece : memory.pieces) total += piece.size;
  CUdeviceptr start = 0;
  CUresult result = own.Reserve(&start, total, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < memory.pieces.size() && result == CUDA_SUCCESS; ++i) {
    result = MapPiece(start + mapped, memory.pieces[i], memory.fds[i], memory.handle_types, caller.device,
                      &opened->block.device);
    if (result == CUDA_SUCCESS) mapped += memory.pieces[i].size;
  }
  if (result != CUDA_SUCCESS) {
    if (mapped != 0) own.Unmap(start, mapped);
    own.Unreserve(start, total);
    return result;
  }
  opened->start = start;
  opened->size = total;
  opened->block.kind = BlockKind::kOpened;
  opened->block.base = start + memory.offset;
  opened->block.size = memory.size;
  opened->block.context = caller.context;
  opened->block.buffer_id = Memory::Get().NextBufferId();
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::Open(CUdeviceptr* address, uint64_t key,
                            const std::function<Result<SharedMemory>()>& fetch) {
  Caller caller;
  CUresult result = CurrentCaller(&caller);
  if (result != CUDA_SUCCESS) return result;
  if (OpenAgain(caller.context, key, address)) return CUDA_SUCCESS;
  Result<SharedMemory> memory = fetch();
  if (!memory.ok()) return CUDA_ERROR_MAP_FAILED;
  Opened opened;
  opened.key = key;
  result = MapPieces(caller, *std::move(memory), &opened);
  if (result != CUDA_SUCCESS) return result;
  // Another thread may have been quicker: then both have its address.
  if (OpenAgain(caller.context, key, address)) return Unmap(opened);
  *address = opened.block.base;
  const std::lock_guard lock(mutex_);
  opened_.emplace(opened.start, std::move(opened));
  return CUDA_SUCCESS;
}

CUresult OpenedMemory::Unmap(const Opened& opened) {
  const CUresult result = VirtualMemory::Get().Unmap(opened.start, opened.size);
  return result == CUDA_SUCCESS ? VirtualMemory::Get().Unreserve(opened.start, opened.size) : result;
}

bool OpenedMemory::Close(CUdeviceptr address, CUresult* result) {
  Opened closing;
  {
    const std::lock_guard lock(mutex_);
    auto found = opened_.begin();
    while (found != opened_.end() && found->second.block.base != address) ++found;
    if (found == opened_.end()) return false;
    *result = CUDA_SUCCESS;
    if (--found->second.opens != 0) return true;
    closing = std::move(found->second);
    opened_.erase(found);
  }
  *result = Unmap(closing);
  if (*result == CUDA_SUCCESS) return true;
  const std::lock_guard lock(mutex_);
  closing.opens = 1;
  opened_.emplace(closing.start, std::move(closing));
  return true;
}

void OpenedMemory::ContextGone(CUcontext context) {
  std::vector<Opened> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = opened_.begin(); it != opened_.end();) {
      auto current = it++;
      if (current->second.block.context != context) continue;
      gone.push_back(std::move(current->second));
      opened_.erase(current);
    }
  }
  for (const Opened& opened : gone) Unmap(opened);
}

std::optional<Block> OpenedMemory::Find(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  auto next = opened_.upper_bound(address);
  if (next == opened_.begin()) return std::nullopt;
  const Block& block = std::prev(next)->second.block;
  const bool inside = address >= block.base && address < block.end();
  return inside ? std::optional<Block>(block) : std::nullopt;
}

void OpenedMemory::NoteSyncMemops(CUdeviceptr address, bool on) {
  {
    const std::lock_guard lock(mutex_);
    auto next = opened_.upper_bound(address);
    if (next == opened_.begin()) return;
    std::prev(next)->second.block.sync_memops = on;
  }
  VirtualMemory::Get().NoteSyncMemops(address, on);
}

bool OpenedMemory::Covers(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  auto next = opened_.upper_bound(address);
  return next != opened_.begin() && address - std::prev(next)->first < std::prev(next)->second.size;
}

}  // namespace stasis::vmm

#include "softgpu/driver/ipc.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace softgpu {

// What the 64 bytes of a handle say.
struct IpcTable::Wire {
  static constexpr uint64_t kMagic = 0x31435049'55504753;  // "SGPUIPC1"
  uint64_t magic = kMagic;
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t daemon_id = 0;
  uint64_t offset = 0;  // of the allocation in the memory
  uint64_t size = 0;    // of the allocation
  uint64_t reserved[3] = {};
};

CUresult IpcTable::GetHandle(CUdeviceptr address, CUipcMemHandle* handle) {
  static_assert(sizeof(Wire) == sizeof(CUipcMemHandle));
  std::optional<Block> block = memory_.FindBlock(address);
  if (!block || block->kind != BlockKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  Physical& memory = *block->physical;
  std::lock_guard lock(mutex_);
  auto found = exported_.find(block->base);
  if (found == exported_.end()) {
    stasis::Result<stasis::Fd> token = memory.Export();
    if (!token.ok()) return MemoryError(token.status());
    found = exported_.emplace(block->base, *std::move(token)).first;
    memory_.MarkShared(block->base);
  }
  Wire wire;
  wire.pid = getpid();
  wire.fd = found->second.get();
  wire.daemon_id = memory.daemon_id();
  wire.offset = block->base - memory.home();
  wire.size = block->size;
  *handle = std::bit_cast<CUipcMemHandle>(wire);
  return CUDA_SUCCESS;
}

void IpcTable::Freed(CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  exported_.erase(address);
}

CUresult IpcTable::Open(CUcontext context, int device, const CUipcMemHandle& handle, CUdeviceptr* address) {
  Wire wire = std::bit_cast<Wire>(handle);
  if (wire.magic != Wire::kMagic || wire.pid <= 0 || wire.fd < 0 || wire.size == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (wire.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  std::lock_guard lock(mutex_);
  Key key{context, {wire.daemon_id, wire.offset}};
  auto found = opened_.find(key);
  if (found != opened_.end()) {
    ++found->second.opens;
    *address = found->second.address;
    return CUDA_SUCCESS;
  }
  CUresult mapped = Map(context, device, wire, address);
  if (mapped == CUDA_SUCCESS) opened_.emplace(key, Opened{*address, 1});
  return mapped;
}

CUresult IpcTable::Map(CUcontext context, int device, const Wire& wire, CUdeviceptr* address) {
  std::string path = "/proc/" + std::to_string(wire.pid) + "/fd/" + std::to_string(wire.fd);
  // The token is a pipe's write end. Never wait for anybody: the number may be something else's by now.
  stasis::Fd token(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!token.valid()) return CUDA_ERROR_MAP_FAILED;
  stasis::Result<std::shared_ptr<Physical>> imported = Physical::Import(memory_.source(), token.get());
  if (!imported.ok()) {
    bool gone = imported.status().code() == stasis::StatusCode::kInvalidArgument;
    return gone ? CUDA_ERROR_MAP_FAILED : MemoryError(imported.status());
  }
  std::shared_ptr<Physical> memory = *std::move(imported);
  bool fits = wire.offset <= memory->size() && wire.size <= memory->size() - wire.offset;
  if (memory->daemon_id() != wire.daemon_id || !fits) return CUDA_ERROR_MAP_FAILED;
  Block block{.kind = BlockKind::kIpc,
              .base = memory->home() + wire.offset,
              .size = wire.size,
              .context = context,
              .device = memory->device()};
  std::vector<CUmemAccess_flags> access(static_cast<size_t>(memory_.devices()),
                                        CU_MEM_ACCESS_FLAGS_PROT_NONE);
  access[static_cast<size_t>(device)] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  access[static_cast<size_t>(memory->device())] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  block.physical = std::move(memory);
  *address = block.base;
  memory_.AddBlock(std::move(block), access);
  return CUDA_SUCCESS;
}

CUresult IpcTable::Close(CUdeviceptr address) {
  std::lock_guard lock(mutex_);
  auto found = std::find_if(opened_.begin(), opened_.end(),
                            [address](const auto& entry) { return entry.second.address == address; });
  if (found == opened_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.opens != 0) return CUDA_SUCCESS;
  opened_.erase(found);
  return memory_.Free(address, BlockKind::kIpc);
}

void IpcTable::RemoveContext(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::erase_if(exported_, [&](const auto& entry) {
    std::optional<Block> block = memory_.FindBlock(entry.first);
    return !block || block->context == context;
  });
  std::erase_if(opened_, [context](const auto& entry) { return entry.first.first == context; });
}

}  // namespace softgpu

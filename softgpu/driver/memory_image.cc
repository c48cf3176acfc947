// The device memory of a checkpointed process: copied into private memory of the process, which CRIU can
// dump, and back.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {
namespace {

std::byte* At(uint64_t address) { return reinterpret_cast<std::byte*>(address); }

stasis::Status ReadFully(int fd, std::byte* to, uint64_t offset, uint64_t size) {
  while (size != 0) {
    ssize_t got = pread(fd, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return stasis::ErrnoStatus(errno, "read device memory");
    if (got == 0) return stasis::Errorf(stasis::StatusCode::kCorrupt, "device memory is shorter than it was");
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<uint64_t>(got);
  }
  return {};
}

// Copies the parts that were ever written; the rest is zero, and stays unallocated on both sides.
stasis::Status CopyWritten(int fd, SavedMemory& saved) {
  uint64_t size = saved.memory->size();
  for (uint64_t offset = 0; offset < size;) {
    off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    off_t hole = data < 0 ? data : lseek(fd, data, SEEK_HOLE);
    if (hole < 0) return stasis::ErrnoStatus(errno, "find the written parts of device memory");
    uint64_t begin = static_cast<uint64_t>(data), bytes = static_cast<uint64_t>(hole) - begin;
    RETURN_IF_ERROR(ReadFully(fd, saved.bytes.bytes() + begin, begin, bytes));
    saved.extents.emplace_back(begin, bytes);
    offset = static_cast<uint64_t>(hole);
  }
  return {};
}

stasis::Result<SavedMemory> Save(Physical* memory) {
  SavedMemory saved;
  saved.memory = memory;
  ASSIGN_OR_RETURN(saved.bytes, stasis::Mapping::Anonymous(memory->size()));
  if (memory->device() >= 0) {
    ASSIGN_OR_RETURN(stasis::Fd file, memory->Open());
    RETURN_IF_ERROR(CopyWritten(file.get(), saved));
  } else {
    memcpy(saved.bytes.data(), At(memory->home()), memory->size());
    saved.extents.emplace_back(0, memory->size());
  }
  return saved;
}

}  // namespace

const char* MemoryManager::CheckpointObstacle() const {
  for (const Physical* memory : source_.All()) {
    if (memory->shared) return "memory shared with other processes";
  }
  std::lock_guard lock(mutex_);
  for (const auto& [base, block] : blocks_) {
    if (block.kind == BlockKind::kManaged) return "managed memory";
    if (block.kind == BlockKind::kIpc) return "memory opened from another process";
  }
  return nullptr;
}

stasis::Status MemoryManager::SaveAndDetach() {
  std::vector<SavedMemory> saved;
  for (Physical* memory : source_.All()) {
    ASSIGN_OR_RETURN(SavedMemory one, Save(memory));
    saved.push_back(std::move(one));
  }
  UnmapAliases();
  for (SavedMemory& one : saved) one.memory->Detach();
  saved_ = std::move(saved);
  return {};
}

stasis::Status MemoryManager::AttachAndLoad() {
  auto attach = [this]() -> stasis::Status {
    for (SavedMemory& one : saved_) {
      RETURN_IF_ERROR(one.memory->Attach());
      for (auto [offset, bytes] : one.extents) {
        memcpy(At(one.memory->home() + offset), one.bytes.bytes() + offset, bytes);
      }
    }
    return MapAliases();
  };
  stasis::Status attached = attach();
  if (attached.ok()) {
    saved_.clear();
    return {};
  }
  UnmapAliases();
  for (SavedMemory& one : saved_) one.memory->Detach();
  return attached;
}

void MemoryManager::UnmapAliases() {
  std::lock_guard lock(mutex_);
  for (const auto& [base, reservation] : reservations_) {
    for (const auto& [address, mapping] : reservation.mappings) UnmapPages(address, mapping.size);
  }
}

stasis::Status MemoryManager::MapAliases() {
  std::lock_guard lock(mutex_);
  for (const auto& [base, reservation] : reservations_) {
    for (const auto& [address, mapping] : reservation.mappings) {
      RETURN_IF_ERROR(AliasPages(address, mapping.physical->home() + mapping.offset, mapping.size));
    }
  }
  return {};
}

}  // namespace softgpu

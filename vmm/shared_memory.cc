#include "vmm/shared_memory.h"

#include <sys/random.h>

#include <cinttypes>

#include "base/payload.h"
#include "vmm/extent.h"
#include "vmm/memory.h"
#include "vmm/virtual_memory.h"

namespace stasis::vmm {

std::vector<std::byte> Encode(const SharedMemory& memory) {
  PayloadWriter out;
  out.U64(memory.offset);
  out.U64(memory.size);
  out.U32(memory.handle_types);
  out.U32(static_cast<uint32_t>(memory.pieces.size()));
  for (const SharedPiece& piece : memory.pieces) {
    out.U64(piece.share);
    out.U64(piece.size);
  }
  return out.Take();
}

Result<SharedMemory> DecodeSharedMemory(std::span<const std::byte> payload) {
  PayloadReader in(payload);
  SharedMemory memory;
  memory.offset = in.U64();
  memory.size = in.U64();
  memory.handle_types = in.U32();
  memory.pieces.resize(in.Count(16));
  uint64_t total = 0;
  bool sane = true;
  for (SharedPiece& piece : memory.pieces) {
    piece.share = in.U64();
    piece.size = in.U64();
    sane = sane && piece.share != 0 && piece.size != 0 && piece.size % kPage == 0 && piece.size >> 47 == 0;
    total += piece.size;
    sane = sane && total >> 47 == 0;
  }
  RETURN_IF_ERROR(in.Finish());
  sane = sane && memory.size != 0 && memory.offset < total && memory.size <= total - memory.offset;
  if (!sane) return Status(StatusCode::kCorrupt, "shared device memory that makes no sense");
  return memory;
}

Result<SharedMemory> GiveMemory(uint64_t key) {
  Result<SharedMemory> handle = VirtualMemory::Get().Give(key);
  if (handle.ok() || handle.status().code() != StatusCode::kNotFound) return handle;
  return Memory::Get().Give(key);
}

uint64_t NewShareKey() {
  uint64_t key = 0;
  while (key == 0)
    if (getrandom(&key, sizeof key, 0) != sizeof key) key = 0;
  return key;
}

}  // namespace stasis::vmm

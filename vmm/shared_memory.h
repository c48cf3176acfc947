// Device memory that a process of the task gives to others, on its way: what cuMemExportToShareableHandle and
// cuIpcGetMemHandle name. The pieces follow each other; the allocation lies somewhere in them.
#ifndef VMM_SHARED_MEMORY_H_
#define VMM_SHARED_MEMORY_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace stasis::vmm {

struct SharedPiece {
  uint64_t share = 0;  // TaskExtent::share
  uint64_t size = 0;
};

struct SharedMemory {
  uint64_t offset = 0, size = 0;  // of the allocation in the pieces
  uint32_t handle_types = 0;      // that its maker asked for
  std::vector<SharedPiece> pieces;
  std::vector<Fd> fds;  // one a piece
};

// Everything but the descriptors. Decode: kCorrupt unless the allocation lies within pieces of whole pages.
std::vector<std::byte> Encode(const SharedMemory& memory);
Result<SharedMemory> DecodeSharedMemory(std::span<const std::byte> payload);

// The memory of this process that has this key. kNotFound: there is none any more. Any thread, while the
// driver is there.
Result<SharedMemory> GiveMemory(uint64_t key);
// A key, and a TaskExtent::share, that nobody else has.
uint64_t NewShareKey();

}  // namespace stasis::vmm

#endif  // VMM_SHARED_MEMORY_H_

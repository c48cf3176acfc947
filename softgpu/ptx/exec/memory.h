// Addresses of one memory instruction, translated to host memory, and element access.
#ifndef SOFTGPU_PTX_EXEC_MEMORY_H_
#define SOFTGPU_PTX_EXEC_MEMORY_H_

#include <cstdint>

#include "base/status.h"
#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/warp.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

// Where the lanes of one access lie. kStride: lane l is at first + l * step (step 0: all lanes at the same
// place).
struct LaneAddresses {
  enum class Kind : uint8_t { kStride, kScattered } kind;
  uint32_t step;
  uint8_t* first;
  uint8_t* host[kWarpSize];  // kScattered: of the active lanes

  uint8_t* Of(unsigned lane) const {
    return kind == Kind::kStride ? first + uint64_t{lane} * step : host[lane];
  }
};

// Fills *at with the addresses of the lanes of w.mask of a `bytes` wide access by *i, all checked for rights
// and alignment (`bytes` is a power of two). False after having recorded a fault.
bool ResolveAddresses(Warp& w, const Inst* i, MemSpace space, unsigned bytes, bool write, LaneAddresses* at);

// One lane's address of `space` as host memory, or null when the lane may not access it. Does not check
// alignment.
uint8_t* Translate(const Warp& w, unsigned lane, MemSpace space, uint64_t address, uint64_t bytes,
                   bool write);

// Handlers by space; `strong` accesses (volatile, relaxed, acquire ...) are single host accesses.
Handler LoadHandler(MemSpace space, bool strong_vector);
Handler StoreHandler(MemSpace space, bool strong_vector);
// Null when memory of `memory_bytes` cannot be held by registers of `register_bytes`.
LoadFn LoadElement(unsigned memory_bytes, unsigned register_bytes, bool sign, bool strong);
StoreFn StoreElement(unsigned memory_bytes, unsigned register_bytes, bool strong);

// A fence of all scopes between the accesses of this thread.
void FullFence();

// Copies a NUL-terminated string from generic address `address` as `lane` sees it, at most `limit` bytes.
// False when it leaves accessible memory.
bool ReadGuestString(const Warp& w, unsigned lane, uint64_t address, size_t limit, std::string* out);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_MEMORY_H_

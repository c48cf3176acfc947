// What a process says of device memory that it shares, to another one that may not be its friend.
#include <cstddef>
#include <cstdint>
#include <span>

#include "vmm/shared_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stasis::Result<stasis::vmm::SharedMemory> memory =
      stasis::vmm::DecodeSharedMemory(std::as_bytes(std::span(data, size)));
  if (!memory.ok()) return 0;
  if (!stasis::vmm::DecodeSharedMemory(stasis::vmm::Encode(*memory)).ok()) __builtin_trap();
  return 0;
}

// The generated table behind cuGetProcAddress (gen_driver.py): sorted by base name, then by per_thread, then
// by version.
#ifndef SOFTGPU_DRIVER_PROC_ADDRESS_H_
#define SOFTGPU_DRIVER_PROC_ADDRESS_H_

#include <cuda.h>

#include <cstddef>

namespace softgpu {

struct ProcAddress {
  const char* base;
  int version;      // of CUDA, in which the variant appeared
  bool per_thread;  // a _ptsz or _ptds variant
  void* function;
};
extern const ProcAddress kProcAddresses[];
extern const size_t kProcAddressCount;

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_PROC_ADDRESS_H_

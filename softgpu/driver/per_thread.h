// What the generated _ptsz and _ptds variants do around the plain function.
#ifndef SOFTGPU_DRIVER_PER_THREAD_H_
#define SOFTGPU_DRIVER_PER_THREAD_H_

#include <cuda.h>

#include "softgpu/driver/entry.h"

namespace softgpu {

class PerThreadDefault {
 public:
  PerThreadDefault() { CurrentCalls().per_thread_default = true; }
  ~PerThreadDefault() { CurrentCalls().per_thread_default = false; }
  PerThreadDefault(const PerThreadDefault&) = delete;
  PerThreadDefault& operator=(const PerThreadDefault&) = delete;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_PER_THREAD_H_

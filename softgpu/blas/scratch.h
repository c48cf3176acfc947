// Workspaces: device memory that a running routine uses as its own.
#ifndef SOFTGPU_BLAS_SCRATCH_H_
#define SOFTGPU_BLAS_SCRATCH_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "softgpu/native/native.h"

namespace softgpu::blas {

// What a handle or the caller gives a routine.
struct Workspace {
  uint64_t address = 0;
  size_t bytes = 0;
};

// A workspace that belongs to a handle, for a launch in `stream`: none while the stream captures, because the
// graph may outlive the handle.
Workspace OfHandle(const Workspace& own, CUstream stream);

// Holds a workspace while a body runs. Two launches of one handle may run at the same time, when its stream
// was changed in between or a graph holds one of them; then one waits for the other here. A workspace that is
// too small is replaced by memory of the process, with the same results.
class Scratch {
 public:
  Scratch(native::Device& device, const Workspace& workspace, size_t bytes);
  // Null after a fault.
  void* data() const { return data_; }

 private:
  static std::mutex& LockOf(uint64_t address);

  std::unique_lock<std::mutex> lock_;
  std::unique_ptr<unsigned char[]> own_;
  void* data_ = nullptr;
};

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_SCRATCH_H_

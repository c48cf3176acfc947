// Kernel launches: checking what a call asks for, and the action that runs it.
#ifndef SOFTGPU_DRIVER_LAUNCH_H_
#define SOFTGPU_DRIVER_LAUNCH_H_

#include <cuda.h>

#include <memory>
#include <vector>

#include "softgpu/driver/module.h"
#include "softgpu/driver/work.h"
#include "softgpu/ptx/exec/grid.h"

namespace softgpu {

class Event;
class Stream;

struct LaunchShape {
  exec::Dim3 grid, block, cluster;
  unsigned dynamic_shared = 0;
  bool cooperative = false;
};

// Limits of a block and a grid (CUDA C++ Programming Guide, technical specifications), also told as
// attributes.
inline constexpr unsigned kMaxBlockThreads = 1024;
inline constexpr exec::Dim3 kMaxBlock{1024, 1024, 64};
inline constexpr exec::Dim3 kMaxGrid{0x7fffffff, 65535, 65535};
inline constexpr unsigned kMaxThreadsPerSm = 1536;
inline constexpr unsigned kMaxBlocksPerSm = 24;
inline constexpr unsigned kSharedPerSm = 100 * 1024;
inline constexpr unsigned kReservedShared = 1024;  // of every block
inline constexpr unsigned kRegistersPerSm = 64 * 1024;
inline constexpr unsigned kPortableCluster = 8, kLargestCluster = 16;

// How many blocks of `threads` threads run on one SM at the same time.
unsigned BlocksPerSm(const exec::KernelInfo& info, unsigned threads, size_t dynamic_shared);

// INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES, INVALID_CLUSTER_SIZE, COOPERATIVE_LAUNCH_TOO_LARGE.
CUresult CheckShape(const Function& function, const LaunchShape& shape);

class KernelAction final : public Action {
 public:
  // `params` has KernelInfo::param_bytes bytes; `handle` is the function as the program named it.
  KernelAction(CUfunction handle, std::shared_ptr<Function> function, const LaunchShape& shape,
               std::vector<uint8_t> params, std::vector<CUlaunchAttribute> attributes);
  void Begin(Context& context, const OpPtr& op) const override;
  // Of a kernel whose body is native code.
  CUresult Run(Context& context) const override;
  // Before it is submitted: instead of the stream's priority.
  void SetPriority(int priority) {
    has_priority_ = true;
    priority_ = priority;
  }

  const std::shared_ptr<Function> function;
  const CUfunction handle;
  const LaunchShape shape;
  const std::vector<uint8_t> params;
  const std::vector<CUlaunchAttribute> attributes;
  // Where each parameter lies in `params`, as CUDA_KERNEL_NODE_PARAMS wants it.
  std::vector<void*> pointers;

 private:
  bool has_priority_ = false;
  int priority_ = 0;
};

// The function behind a CUfunction, or behind a CUkernel that was passed as one, in `context`.
// INVALID_HANDLE.
CUresult ResolveFunction(Context& context, CUfunction handle, std::shared_ptr<Function>* out);

// Gathers the parameters from `kernel_params`, or from `extra` (cuLaunchKernel). INVALID_VALUE when both or
// neither are given though the kernel has parameters.
CUresult GatherParams(const exec::KernelInfo& info, void** kernel_params, void** extra,
                      std::vector<uint8_t>* out);

// What attributes mean for the launch itself.
struct LaunchEffects {
  bool has_priority = false;
  int priority = 0;
  std::vector<CUevent> events_after;  // recorded behind the kernel
};
// INVALID_VALUE for attributes that cuda.h does not have or values out of range, NOT_SUPPORTED.
CUresult ReadAttributes(const Function& function, const CUlaunchAttribute* attributes, unsigned count,
                        LaunchShape* shape, LaunchEffects* effects);
// What the function demands by its own settings.
void ApplySettings(const Function& function, LaunchShape* shape);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_LAUNCH_H_

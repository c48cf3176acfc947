// One kernel launch in execution.
//
// The driver owns the threads ("SMs"). Each of them calls Run() with its worker index; blocks are taken in
// order of their linear index. A block that spins (on another block, on host memory) does not hold its SM for
// ever: warps get quanta, a worker rotates between up to `max_resident` resident blocks, and Run() returns
// when *yield is set, keeping the state of the blocks it has begun.
#ifndef SOFTGPU_PTX_EXEC_GRID_H_
#define SOFTGPU_PTX_EXEC_GRID_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "softgpu/ptx/exec/access_map.h"
#include "softgpu/ptx/exec/program.h"

namespace softgpu::exec {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

// Texture and surface descriptors that kernels reach by 64-bit handle.
struct TextureView {
  uint64_t data = 0;                          // device address of the first texel
  uint32_t width = 0, height = 0, depth = 0;  // texels; 0 = dimension not there
  uint32_t layers = 0;                        // 0 = not layered
  uint64_t row_pitch = 0, slice_pitch = 0;    // bytes
  uint8_t channels = 1, channel_bytes = 4;
  enum class Format : uint8_t { kUint, kSint, kFloat } format = Format::kFloat;
  enum class Address : uint8_t { kWrap, kClamp, kMirror, kBorder } address[3] = {};
  bool linear_filter = false, normalized_coords = false, read_as_float = false, srgb = false;
  float border[4] = {0, 0, 0, 0};
  bool linear_memory = false;  // bound to linear memory: tex1Dfetch only
};

// What running code asks of the driver. Called from worker threads, possibly several at once; must not block
// on a kernel's end.
class DeviceServices {
 public:
  virtual ~DeviceServices() = default;
  // Output of device printf, one call's text. Kept by the driver in launch order per block and shown at
  // synchronising calls.
  virtual void Print(std::string_view text) = 0;
  // Device-side malloc/free; 0 when the heap (CU_LIMIT_MALLOC_HEAP_SIZE) is used up.
  virtual uint64_t Malloc(uint64_t bytes) = 0;
  virtual void Free(uint64_t address) = 0;
  // The value of a conditional node of a graph; false when the handle is none of this context.
  virtual bool SetCondition(uint64_t /*handle*/, uint32_t /*value*/) { return false; }
  // Null when the handle is not a live texture/surface object of this context.
  virtual const TextureView* FindTexture(uint64_t handle) = 0;
  virtual const TextureView* FindSurface(uint64_t handle) = 0;
};

enum class FaultKind : uint8_t {
  kNone,
  kIllegalAddress,       // CUDA_ERROR_ILLEGAL_ADDRESS
  kMisalignedAddress,    // CUDA_ERROR_MISALIGNED_ADDRESS
  kIllegalInstruction,   // CUDA_ERROR_ILLEGAL_INSTRUCTION
  kInvalidAddressSpace,  // CUDA_ERROR_INVALID_ADDRESS_SPACE
  kInvalidPc,            // CUDA_ERROR_INVALID_PC (bad function pointer)
  kAssert,               // CUDA_ERROR_ASSERT
  kTrap,                 // CUDA_ERROR_LAUNCH_FAILED
  kStackOverflow,        // CUDA_ERROR_LAUNCH_FAILED: call depth or local memory exhausted
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  std::string message;  // kernel, block, thread, PTX line, address
};

struct LaunchConfig {
  std::shared_ptr<Program> program;  // keeps the code alive
  const Kernel* kernel = nullptr;
  Dim3 grid, block;
  Dim3 cluster;  // 1,1,1 when no cluster was asked for
  uint32_t dynamic_shared = 0;
  std::vector<uint8_t> params;  // KernelInfo::param_bytes bytes
  bool cooperative = false;     // grid sync allowed; all blocks become resident
  uint64_t grid_sync_workspace =
      0;                      // device address of {u32 size, u32 barrier}, zeroed; 0 unless cooperative
  unsigned workers = 1;       // how many worker indices will call Run()
  unsigned max_resident = 8;  // blocks a worker may have begun and not finished
  uint32_t local_limit = 64 * 1024 * 1024;  // bound on local memory of a block, bytes
  uint64_t grid_id = 0;                     // %gridid
  uint32_t clock_khz = 1000000;             // rate of %clock and %clock64
  const AccessMap* access = nullptr;
  DeviceServices* services = nullptr;
};

class Grid {
 public:
  virtual ~Grid() = default;
  // The configuration must have been checked against the device's limits by the driver.
  static std::unique_ptr<Grid> Create(LaunchConfig config);

  enum class Outcome : uint8_t {
    kNoMoreBlocks,  // nothing left for this worker; the grid is done when every worker that began has seen
                    // this
    kYielded,       // *yield was set, or cancelled
    kFaulted,       // the launch has failed; see fault()
  };
  // Runs blocks on the calling thread. Each worker index is used by one thread at a time. *yield is polled at
  // least every ~100 microseconds of work.
  virtual Outcome Run(unsigned worker, const std::atomic<bool>& yield) = 0;
  // True when every block has finished, or after a fault.
  virtual bool done() const = 0;
  // Makes running and further Run() calls return soon; the grid is then done.
  virtual void Cancel() = 0;
  // Valid once done().
  virtual Fault fault() const = 0;
};

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_GRID_H_

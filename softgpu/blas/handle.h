// The handle of cuBLAS, and what every routine does with it first.
#ifndef SOFTGPU_BLAS_HANDLE_H_
#define SOFTGPU_BLAS_HANDLE_H_

#include <cublas_v2.h>
#include <cuda.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>

#include "softgpu/blas/context_scope.h"
#include "softgpu/blas/matmul.h"
#include "softgpu/blas/scratch.h"
#include "softgpu/blas/status.h"
#include "softgpu/native/native.h"

namespace softgpu::blas {

// Of hidden device memory: the workspace, and behind it places for results that go to the host.
inline constexpr size_t kWorkspaceBytes = size_t{8} << 20;
inline constexpr size_t kResultBytes = 64;
inline constexpr unsigned kResults = 64;

// What the program set. A handle may be used by several threads, but not be changed by one while another uses
// it, so nothing here is locked.
struct Handle {
  CUcontext context = nullptr;
  uint64_t hidden = 0;  // device memory: kWorkspaceBytes, then kResults results
  Workspace workspace;  // the hidden one, or the program's
  CUstream stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  int sm_count = 0;
  cublasEmulationStrategy_t emulation = CUBLAS_EMULATION_STRATEGY_DEFAULT;
  // Kept for the getters: nothing is emulated.
  cudaEmulationSpecialValuesSupport special_values = CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_DEFAULT;
  cudaEmulationMantissaControl mantissa_control = CUDA_EMULATION_MANTISSA_CONTROL_DYNAMIC;
  int max_mantissa_bits = 0;
  int mantissa_bit_offset = 0;
  int* mantissa_bits = nullptr;
  std::atomic<unsigned> next_result{0};

  // For a launch in the stream.
  Workspace WorkspaceNow() const {
    return workspace.address == hidden ? OfHandle(workspace, stream) : workspace;
  }
};

// Of a live handle, or null. Thread-safe.
std::shared_ptr<Handle> FindHandle(cublasHandle_t handle);

// One call of a routine: the handle, its context made current, and its scalars.
class Call {
 public:
  explicit Call(cublasHandle_t handle);
  bool ok() const { return status_ == CUBLAS_STATUS_SUCCESS; }
  cublasStatus_t status() const { return status_; }
  Handle& handle() const { return *handle_; }

  // An input that is at `from` on the host now, or on the device later.
  Scalar In(const void* from, size_t bytes) const {
    Scalar scalar;
    if (handle_->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
      scalar.address = reinterpret_cast<uint64_t>(from);
    } else {
      std::memcpy(scalar.bits, from, bytes);
    }
    return scalar;
  }
  // Whether a scalar that is on the host has the value `is`; false for one on the device.
  template <typename Value>
  bool Known(const void* scalar, Value is) const {
    if (handle_->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) return false;
    Value value;
    std::memcpy(static_cast<void*>(&value), scalar, sizeof value);
    return value == is;
  }

  // Runs `body(Device&)`, which is copied, in the handle's stream.
  template <typename Closure>
  cublasStatus_t Run(const Closure& body) const {
    static_assert(std::is_trivially_copyable_v<Closure> && sizeof(Closure) <= native::kMaxArguments &&
                  alignof(Closure) <= alignof(native::Body));
    native::Body run = [](const void* bytes, native::Device& device) {
      (*static_cast<const Closure*>(bytes))(device);
    };
    return StatusOf(native::Launch(handle_->stream, run, &body, sizeof body));
  }

  // The same for a body that has a result: body(Device&, void* result) writes `bytes` bytes there. With the
  // pointer mode of the host this waits, which a stream that captures refuses.
  template <typename Closure>
  cublasStatus_t RunForResult(void* result, size_t bytes, const Closure& body) const {
    bool on_host = handle_->pointer_mode == CUBLAS_POINTER_MODE_HOST;
    uint64_t to = on_host ? PlaceOfResult() : reinterpret_cast<uint64_t>(result);
    cublasStatus_t status = Run([body, to, bytes](native::Device& device) {
      void* out = device.Write(to, bytes);
      if (out != nullptr) body(device, out);
    });
    return on_host && status == CUBLAS_STATUS_SUCCESS ? Fetch(result, to, bytes) : status;
  }

 private:
  uint64_t PlaceOfResult() const;
  cublasStatus_t Fetch(void* to, uint64_t from, size_t bytes) const;

  std::shared_ptr<Handle> handle_;
  std::optional<ContextScope> scope_;
  cublasStatus_t status_ = CUBLAS_STATUS_SUCCESS;
};

inline uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_HANDLE_H_

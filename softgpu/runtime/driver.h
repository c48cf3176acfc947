// The way to the driver: libcuda.so.1, opened at the first call that needs it, one slot per function used.
#ifndef SOFTGPU_RUNTIME_DRIVER_H_
#define SOFTGPU_RUNTIME_DRIVER_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>

namespace softgpu::runtime {

// Opens and initialises the driver once. cudaErrorInsufficientDriver when there is none or it is older than
// this runtime, else what cuInit said. The first answer stands for the life of the process. Thread-safe.
cudaError_t DriverStatus();

// The version the driver reports, 0 when there is no driver.
int DriverVersion();

// Address of an exported driver function, or null. Opens the driver library if need be, but does not
// initialise it.
void* FindDriverFunction(const char* name);

// True from the moment the process runs its exit handlers: the driver's own state may be gone by then.
bool ProcessExiting();

// Runtime error for a driver result. Shared errors have the same number in both APIs; a number that the
// runtime's enumeration lacks becomes cudaErrorUnknown.
cudaError_t FromDriver(CUresult result);

template <typename Fn>
class DriverFunction;

// One driver function, looked up by its exported name when first called.
template <typename... Params>
class DriverFunction<CUresult (*)(Params...)> {
 public:
  using Pointer = CUresult (*)(Params...);

  constexpr explicit DriverFunction(const char* name) : name_(name) {}

  cudaError_t operator()(Params... params) {
    Pointer fn = address_.load(std::memory_order_acquire);
    if (fn == nullptr) {
      fn = reinterpret_cast<Pointer>(FindDriverFunction(name_));
      if (fn == nullptr) return cudaErrorCallRequiresNewerDriver;
      address_.store(fn, std::memory_order_release);
    }
    return FromDriver(fn(params...));
  }

 private:
  const char* const name_;
  std::atomic<Pointer> address_{nullptr};
};

}  // namespace softgpu::runtime

#define SOFTGPU_RUNTIME_STRING_(x) #x
#define SOFTGPU_RUNTIME_STRING(x) SOFTGPU_RUNTIME_STRING_(x)

// CU(cuMemAlloc)(&p, n): the driver's cuMemAlloc under the name that cuda.h's macros give it (cuMemAlloc_v2,
// or a _ptsz name in the files compiled for the per-thread default stream). Yields a cudaError_t.
#define CU(fn)                                                                                              \
  ([]() -> ::softgpu::runtime::DriverFunction<decltype(&::fn)>& {                                           \
    static constinit ::softgpu::runtime::DriverFunction<decltype(&::fn)> entry{SOFTGPU_RUNTIME_STRING(fn)}; \
    return entry;                                                                                           \
  }())

#endif  // SOFTGPU_RUNTIME_DRIVER_H_

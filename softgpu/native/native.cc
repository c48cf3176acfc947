#include "softgpu/native/native.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "softgpu/native/abi.h"
#include "softgpu/native/driver.h"

namespace softgpu::native {

namespace {

// A driver that does not know the pragma runs a kernel that does nothing.
constexpr char kModule[] = R"(
.version 9.0
.target sm_75
.address_size 64
.visible .entry softgpu_native(.param .align 16 .b8 call[1024])
.pragma "softgpu.native";
{
  ret;
}
)";
static_assert(kParameterBytes == 1024);

// Once a process and for all contexts; only success is kept.
CUresult Kernel(CUfunction* function) {
  static constinit std::atomic<CUkernel> loaded{nullptr};
  static constinit std::mutex mutex;
  CUkernel kernel = loaded.load(std::memory_order_acquire);
  if (kernel == nullptr) {
    std::lock_guard lock(mutex);
    kernel = loaded.load(std::memory_order_relaxed);
    CUlibrary library = nullptr;
    CUresult result = CUDA_SUCCESS;
    if (kernel == nullptr) {
      result = Driver().cuLibraryLoadData(&library, kModule, nullptr, nullptr, 0, nullptr, nullptr, 0);
      if (result == CUDA_SUCCESS) result = Driver().cuLibraryGetKernel(&kernel, library, "softgpu_native");
    }
    if (result != CUDA_SUCCESS) return result;
    loaded.store(kernel, std::memory_order_release);
  }
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Launch(CUstream stream, Body body, const void* arguments, size_t bytes) {
  if (body == nullptr || bytes > kMaxArguments || (bytes != 0 && arguments == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  CUfunction function = nullptr;
  CUresult result = Kernel(&function);
  if (result != CUDA_SUCCESS) return result;
  Parameters parameters{body, {}};
  if (bytes != 0) std::memcpy(parameters.arguments, arguments, bytes);
  void* pointers[] = {&parameters};
  return Driver().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, nullptr);
}

}  // namespace softgpu::native

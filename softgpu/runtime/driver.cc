#include "softgpu/runtime/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "softgpu/runtime/errors.h"
#include "softgpu/runtime/once.h"

namespace softgpu::runtime {
namespace {

constinit Once g_opened;
constinit Once g_initialised;
constinit std::atomic<void*> g_library{nullptr};
constinit cudaError_t g_status = cudaErrorInsufficientDriver;
constinit int g_version = 0;
constinit std::atomic<bool> g_exiting{false};

// The plain name: a library preloaded under this SONAME answers instead of the one on the search path.
cudaError_t OpenLibrary() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  g_library.store(library, std::memory_order_release);
  // Registered after the driver's constructors ran, so that it runs before the driver's destructors.
  if (library != nullptr) std::atexit([] { g_exiting.store(true, std::memory_order_release); });
  return cudaSuccess;
}

void* Library() {
  g_opened.Run(OpenLibrary);
  return g_library.load(std::memory_order_acquire);
}

cudaError_t Initialise() {
  if (Library() == nullptr) return cudaErrorInsufficientDriver;
  int version = 0;
  if (CU(cuDriverGetVersion)(&version) != cudaSuccess) return cudaErrorInsufficientDriver;
  g_version = version;
  if (version / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
  return CU(cuInit)(0);
}

}  // namespace

void* FindDriverFunction(const char* name) {
  void* library = Library();
  return library == nullptr ? nullptr : dlsym(library, name);
}

cudaError_t DriverStatus() {
  if (!g_initialised.done()) {
    g_initialised.Run([] {
      g_status = Initialise();
      return cudaSuccess;
    });
  }
  return g_status;
}

int DriverVersion() {
  DriverStatus();
  return g_version;
}

bool ProcessExiting() { return g_exiting.load(std::memory_order_acquire); }

cudaError_t FromDriver(CUresult result) {
  if (result == CUDA_SUCCESS) return cudaSuccess;
  const cudaError_t error = static_cast<cudaError_t>(result);
  return IsKnownError(error) ? error : cudaErrorUnknown;
}

}  // namespace softgpu::runtime

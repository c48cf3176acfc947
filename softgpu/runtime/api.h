// What every exported function is made of: visibility, first-use initialisation, last-error bookkeeping.
#ifndef SOFTGPU_RUNTIME_API_H_
#define SOFTGPU_RUNTIME_API_H_

#include "softgpu/runtime/context.h"
#include "softgpu/runtime/driver.h"
#include "softgpu/runtime/errors.h"

// Marks the definition of an exported function; the build finds them by this word to know which names need a
// stub.
#define RT_API extern "C" __attribute__((visibility("default")))

namespace softgpu::runtime {

// Runs the body of an API function that needs the driver, but no context.
template <typename Body>
cudaError_t WithDriver(Body&& body) {
  cudaError_t error = DriverStatus();
  if (error == cudaSuccess) error = body();
  return Report(error);
}

// Runs the body of an API function that needs a context current on the calling thread.
template <typename Body>
cudaError_t WithContext(Body&& body) {
  cudaError_t error = EnsureContext();
  if (error == cudaSuccess) error = body();
  return Report(error);
}

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_API_H_

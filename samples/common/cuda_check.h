// Checks for CUDA runtime calls: any error ends the program with one clear line and exit status 1.
#pragma once

#include <cuda_runtime.h>

#include "fail.h"

#define CUDA_CHECK(call) ::sample::CheckCuda((call), #call, __FILE__, __LINE__)

// To be written after a kernel launch, which itself returns nothing.
#define CUDA_CHECK_LAUNCH() ::sample::CheckCuda(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

namespace sample {

inline void CheckCuda(cudaError_t error, const char* what, const char* file, int line) {
  if (error == cudaSuccess) return;
  Fail(kExitFailure, "%s failed: %s (%s) at %s:%d", what, cudaGetErrorName(error), cudaGetErrorString(error),
       file, line);
}

}  // namespace sample

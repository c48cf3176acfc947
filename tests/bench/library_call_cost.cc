// What one call of cuBLAS costs that does nothing on a device.
//
// usage: library_call_cost MODE COUNT   MODE: get (cublasGetPointerMode) stream (cublasSetStream)
// Prints nanoseconds a call.
#include <cublas_v2.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  const long count = argc == 3 ? std::atol(argv[2]) : 0;
  cublasHandle_t handle = nullptr;
  if (count <= 0 || cublasCreate_v2(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  const bool get = std::strcmp(argv[1], "get") == 0;
  cublasPointerMode_t mode;
  int failed = 0;
  const double started = Now();
  for (long i = 0; i < count; ++i)
    failed |= get ? cublasGetPointerMode_v2(handle, &mode) : cublasSetStream_v2(handle, nullptr);
  std::printf("%f\n", (Now() - started) / static_cast<double>(count));
  return failed;
}

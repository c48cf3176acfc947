// Errors as programs see them: which call reports what, what stays, and what a reset repairs.
#include "check.h"

__device__ int counter;

__global__ void Touch(int* data) { *data = 1; }
__global__ void Count() { ++counter; }

static void Reported() {
  Count<<<1, 2048>>>();
  FAILS(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  FAILS(cudaGetLastError(), cudaErrorInvalidConfiguration);
  OK(cudaGetLastError());
  Count<<<0, 1>>>();
  FAILS(cudaGetLastError(), cudaErrorInvalidConfiguration);
  Count<<<1, 1, 64 << 20>>>();
  FAILS(cudaGetLastError(), cudaErrorInvalidValue);
  void* memory = nullptr;
  FAILS(cudaMalloc(&memory, size_t{1} << 60), cudaErrorMemoryAllocation);
  FAILS(cudaGetLastError(), cudaErrorMemoryAllocation);
  FAILS(cudaSetDevice(1000), cudaErrorInvalidDevice);
  FAILS(cudaFree(&memory), cudaErrorInvalidValue);
  FAILS(cudaGetLastError(), cudaErrorInvalidValue);
  FAILS(cudaLaunchKernel(reinterpret_cast<const void*>(&Reported), 1, 1, nullptr, 0, nullptr),
        cudaErrorInvalidDeviceFunction);
  FAILS(cudaGetLastError(), cudaErrorInvalidDeviceFunction);
  Count<<<1, 1>>>();
  OK(cudaDeviceSynchronize());
  OK(cudaGetLastError());
}

static void Sticky() {
  Touch<<<1, 1>>>(reinterpret_cast<int*>(0x10));
  OK(cudaGetLastError());
  FAILS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  FAILS(cudaGetLastError(), cudaErrorIllegalAddress);
  FAILS(cudaGetLastError(), cudaErrorIllegalAddress);
  void* memory = nullptr;
  FAILS(cudaMalloc(&memory, 16), cudaErrorIllegalAddress);
}

// Device memory is as at the start of the program; the compiler's kernel handles go on working.
static void Reset() {
  OK(cudaDeviceReset());
  OK(cudaGetLastError());
  Count<<<1, 1>>>();
  OK(cudaGetLastError());
  int value = 0;
  OK(cudaMemcpyFromSymbol(&value, counter, sizeof value));
  EXPECT(value == 1);
}

int main() {
  Reported();
  Sticky();
  Reset();
  return Finish();
}

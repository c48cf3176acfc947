// Memory that kernels allocate: it lies in a heap of the driver's, which nobody sees into. A program of its own, since the
// code alone is what is refused.
#include "matrix.h"

namespace {

__device__ unsigned* kept;

__global__ void Keep(unsigned number) {
  if (kept == nullptr) {
    kept = static_cast<unsigned*>(malloc(64));
    kept[0] = 0;
  }
  kept[0] = kept[0] * 7 + number;
}

__global__ void Show(unsigned* to) { *to = kept[0]; }

unsigned* cell;

void Make() { CHECK(cudaMalloc(&cell, sizeof *cell)); }

void Step(unsigned number) {
  unsigned value = 0;
  Keep<<<1, 1>>>(number);
  Show<<<1, 1>>>(cell);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(&value, cell, sizeof value, cudaMemcpyDeviceToHost));
  matrix::Say("kept %u", value);
}
MATRIX_CASE(device_malloc, "device-malloc", "kLibrary", Make, Step, nullptr, "reconstruct malloc");

}  // namespace

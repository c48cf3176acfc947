// A managed variable: a program of its own, since the driver sees to it as soon as the program uses CUDA.
#include "matrix.h"

namespace {

__managed__ unsigned total = 9;

__global__ void Add(unsigned number) { total = total * 5 + number; }

void Make() { CHECK(cudaFree(nullptr)); }

void Step(unsigned number) {
  Add<<<1, 1>>>(number);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  matrix::Say("managed %u", total);
  total += 1000;
}
// The driver does not carry managed memory of its own, and says so.
MATRIX_CASE(managed_variable, "managed-variable", "kVariable", Make, Step, nullptr, "driver cuCheckpointProcessCheckpoint");

}  // namespace

// One of two files whose device code is linked.
#include <cstdio>

extern __device__ int Twice(int value);

__global__ void Call(int* out) { *out = Twice(*out); }

int main() {
  int* out = nullptr;
  cudaMalloc(&out, sizeof *out);
  Call<<<1, 1>>>(out);
  printf("launch: %s\n", cudaGetErrorName(cudaGetLastError()));
  return 0;
}

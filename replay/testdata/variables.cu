// One variable of each sort, all of them used, so that none is dropped.
#include <cstdio>

__device__ int counter = 5;
__device__ double matrix[3][4];
__constant__ float weights[8] = {1, 2, 3};
__managed__ int shared_value = 9;
extern "C" __device__ void* address_of_counter = &counter;
namespace deep {
__device__ unsigned long long seen;
}
namespace {
__device__ int hidden = 1;
}

extern "C" __global__ void use(int* out) {
  static __device__ int calls = 0;
  __shared__ int scratch[4];
  scratch[threadIdx.x & 3] = counter++;
  __syncthreads();
  out[0] = scratch[0] + static_cast<int>(matrix[1][out[1]]) + static_cast<int>(weights[out[1]]) + shared_value++;
  out[1] = static_cast<int>(deep::seen++) + hidden++ + calls++ + *static_cast<int*>(address_of_counter);
  printf("text; with { marks\n");
}

// One of two units of relocatable device code; unit_b.cu holds what this one declares.
#include <cstdio>

extern __device__ int shared_total;
extern __device__ float Transform(float x);
extern __constant__ float kScale[4];
static __device__ int hidden = 1;
static __device__ __noinline__ int Hidden(int x) { return x + hidden; }
template <typename T>
__device__ __noinline__ T Common(T x) {
  return x * x + 1;
}

__global__ void RunA(float* out, int n) {
  extern __shared__ float scratch[];
  scratch[threadIdx.x] = Transform(out[threadIdx.x]) * kScale[n & 3];
  atomicAdd(&shared_total, Hidden(n));
  out[threadIdx.x] = scratch[threadIdx.x] + Common(n);
  printf("unit a %d\n", n);
}

// The other unit: same private names as unit_a.cu, other contents.
#include <cstdio>

__device__ int shared_total = 5;
__constant__ float kScale[4] = {1, 2, 3, 4};
static __device__ int hidden = 2;
static __device__ __noinline__ int Hidden(int x) { return x * hidden; }
template <typename T>
__device__ __noinline__ T Common(T x) {
  return x * x + 1;
}
__device__ __noinline__ float Transform(float x) { return x + Hidden(static_cast<int>(x)); }

__global__ void RunB(int* out) {
  extern __shared__ double doubles[];
  doubles[threadIdx.x] = Common(out[0]);
  out[0] = Hidden(static_cast<int>(doubles[0]));
  printf("unit b %d\n", out[0]);
}

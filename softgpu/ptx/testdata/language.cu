// One of everything that makes the compiler emit another construct of PTX.
#include <cuda_runtime.h>
#include <mma.h>

#include <cstdint>
#include <cstdio>

struct alignas(16) Packet {
  double weight;
  int ids[5];
  char tag;
};
struct Empty {};

__constant__ float kTable[16] = {0.5f, 1.5f, -2.25f, 1e-30f};
__constant__ double kMatrix[2][3] = {{1, 2, 3}, {4, 5, 6}};
__device__ int counters[64];
__device__ long long total = -1;
__device__ double ratio = 0.1;
__managed__ int managed_counter = 3;
__device__ const char* names[3] = {"zero", "one", "two"};
struct Mixed {
  const char* name;
  int value;
  int* where;
};
__device__ Mixed mixed[2] = {{"a", 1, &counters[4]}, {"b", -2, &counters[9]}};

using Unary = float (*)(float);
__device__ float Twice(float x) { return 2 * x; }
__device__ float Square(float x) { return x * x; }
__device__ Unary functions[2] = {Twice, Square};

class Shape {
 public:
  __device__ virtual ~Shape() {}
  __device__ virtual float Area(Packet packet) const = 0;
};
class Circle : public Shape {
 public:
  __device__ explicit Circle(float r) : r_(r) {}
  __device__ float Area(Packet packet) const override { return 3.14159f * r_ * r_ + packet.ids[0]; }

 private:
  float r_;
};
class Box : public Shape {
 public:
  __device__ float Area(Packet packet) const override { return packet.weight; }
};

__device__ __noinline__ int Fibonacci(int n) { return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2); }
__device__ __noinline__ Packet Scale(Packet packet, float by) {
  packet.weight *= by;
  for (int& id : packet.ids) id += 1;
  return packet;
}

template <typename T, int N>
__global__ void Template(T* data, const T* __restrict__ other) {
  __shared__ T tile[N];
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[N - 1 - threadIdx.x] + other[threadIdx.x];
}
template __global__ void Template<float, 64>(float*, const float*);
template __global__ void Template<double, 32>(double*, const double*);
template __global__ void Template<int4, 16>(int4*, const int4*);
__device__ int4 operator+(int4 a, int4 b) { return make_int4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

__global__ __launch_bounds__(128, 2) void Calls(Packet packet, Empty, bool flag, char c, float* out, int which) {
  extern __shared__ double dynamic[];
  Packet scaled = Scale(packet, kTable[which & 15]);
  dynamic[threadIdx.x] = scaled.weight + kMatrix[which & 1][which % 3];
  out[0] = functions[which & 1](static_cast<float>(dynamic[0])) + Fibonacci(which) + c;
  if (flag) printf("%s %d %f %lld\n", names[which % 3], which, out[0], total);
  total += mixed[which & 1].value;
  ratio *= 2;
}

__global__ void Virtual(float* out, int kind, Packet packet) {
  Shape* shape = kind == 0 ? static_cast<Shape*>(new Circle(kind)) : new Box;
  *out = shape->Area(packet);
  delete shape;
}

__global__ void Switch(int* data, int n) {
  switch (data[threadIdx.x]) {
    case 0: atomicAdd(&counters[0], n); break;
    case 1: atomicMax(&counters[1], n); break;
    case 2: atomicCAS(&managed_counter, 1, n); break;
    case 3: data[0] = __popc(n); break;
    case 4: data[1] = __clz(n); break;
    case 5: data[2] = __brev(n); break;
    case 6: data[3] = __byte_perm(n, n + 1, 0x3210); break;
    case 7: data[4] = __vadd4(n, 7); break;
    default: data[5] = warpSize; break;
  }
}

__global__ void Assembly(unsigned* data, float* reals) {
  unsigned lanes, sum = threadIdx.x, both;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
  // The same scoped names twice in one function, with labels.
  for (int i = 0; i < 2; ++i) {
    asm volatile(
        "{\n\t.reg .pred p;\n\t.reg .b32 t<3>;\n\t"
        "setp.ne.u32 p, %1, 0;\n\t"
        "@!p bra DONE;\n\tmov.u32 t0, 1; mov.u32 t1, -0x10; add.u32 t2, t0, t1;\n\t"
        "@p add.u32 %0, %0, t2;\n\tDONE:\n\t}"
        : "+r"(sum)
        : "r"(lanes));
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 017; DONE: @p mov.b32 %0, 0b101; }" : "+r"(sum) : "r"(i));
  }
  asm volatile("{ .reg .b64 w; mov.b64 w, {%1, %2}; mov.b64 {%0, _}, w; }" : "=r"(both) : "r"(sum), "r"(lanes));
  asm volatile("{ .reg .pred q; shfl.sync.idx.b32 %0|q, %0, 0, 0x1f, -1; @!q trap; }" : "+r"(both));
  asm volatile("fma.rn.f32 %0, %0, 0f40000000, 0F3F800000;" : "+f"(*reals));
  asm volatile("st.global.cg.v2.u32 [%0+8], {%1, 5};" ::"l"(data), "r"(both) : "memory");
  asm volatile("/* nothing */ // at all\n");
  data[threadIdx.x] = sum + both;
}

__global__ void Textures(cudaTextureObject_t one, cudaTextureObject_t two, cudaSurfaceObject_t surface, float4* out) {
  out[0] = tex1Dfetch<float4>(one, threadIdx.x);
  out[1] = tex2D<float4>(two, 0.5f, 0.25f);
  out[2].x = tex3D<float>(two, 0.5f, 0.25f, 1.0f);
  out[3].x = tex2DLod<float>(two, 0.5f, 0.25f, 1.0f);
  surf2Dwrite(42.0f, surface, 4, 4);
}

__global__ void Matrix(const half* a, const half* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> fa;
  fragment<matrix_b, 16, 16, 16, half, col_major> fb;
  fragment<accumulator, 16, 16, 16, float> acc;
  fill_fragment(acc, 0.0f);
  load_matrix_sync(fa, a, 16);
  load_matrix_sync(fb, b, 16);
  mma_sync(acc, fa, fb, acc);
  store_matrix_sync(c, acc, 16, mem_row_major);
}

__global__ void Locals(int* out, int n, uint8_t bytes) {
  int stack[32];
  for (int i = 0; i < 32; ++i) stack[i] = i * n;
  int* more = static_cast<int*>(__builtin_alloca(n));
  more[0] = stack[bytes & 31];
#pragma unroll 1
  for (int i = 0; i < n; ++i) out[i] = stack[(i * 7) & 31] + more[0] + __ldg(out + i);
  if (n == 77) __trap();
  __nanosleep(20);
}

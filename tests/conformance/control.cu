// Control flow, calls and data layout: divergent loops, switches, recursion, function pointers, virtual
// functions, local arrays, structures by value, constant tables, 64-bit indexing. The same functions run on
// the host.
#include "check.h"

using namespace check;

__host__ __device__ unsigned Collatz(unsigned n) {
  unsigned steps = 0;
  while (n > 1 && steps < 300) {
    if (n & 1) {
      if (n > 0x50000000u) break;
      n = 3 * n + 1;
    } else {
      n >>= 1;
    }
    ++steps;
  }
  return steps;
}

__host__ __device__ int Switchboard(int selector, int value) {
  switch (selector % 23) {
    case 0:
      return value;
    case 1:
      return value * 3;
    case 2:
      value += 7;  // falls through
    case 3:
      value ^= 0x55;
      break;
    case 5:
      return Collatz(value & 1023);
    case 8:
      value = -value;
      break;
    case 11:
      for (int i = 0; i < value % 7; ++i) value += i * i;
      break;
    case 12:
      return selector / (value | 1);
    case 17:
      value <<= 3;
      break;
    case 22:
      return ~value;
    default:
      value -= selector;
  }
  return value * 5 + 1;
}

__host__ __device__ int Ackermann(int m, int n) {
  if (m == 0) return n + 1;
  if (n == 0) return Ackermann(m - 1, 1);
  return Ackermann(m - 1, Ackermann(m, n - 1));
}

// Mutual recursion that the compiler cannot flatten.
__host__ __device__ int Odd(int n, int salt);
__host__ __device__ int Even(int n, int salt) { return n == 0 ? salt : Odd(n - 1, salt * 3 + 1) + 1; }
__host__ __device__ int Odd(int n, int salt) { return n == 0 ? -salt : Even(n - 1, salt ^ 0x33) - 2; }

struct Shape {
  __host__ __device__ virtual int Area(int scale) const = 0;
  __host__ __device__ virtual ~Shape() {}
};
struct Square : Shape {
  int side;
  __host__ __device__ explicit Square(int s) : side(s) {}
  __host__ __device__ int Area(int scale) const override { return side * side * scale; }
};
struct Strip : Shape {
  int length, width;
  __host__ __device__ Strip(int l, int w) : length(l), width(w) {}
  __host__ __device__ int Area(int scale) const override { return length * width + scale; }
};
__host__ __device__ int Virtual(int i) {
  Square square(i % 13);
  Strip strip(i % 7, i % 11);
  const Shape* shape = i % 3 ? static_cast<const Shape*>(&square) : &strip;
  return shape->Area(i % 5);
}

typedef int (*Operation)(int, int);
__host__ __device__ int Plus(int a, int b) { return a + b; }
__host__ __device__ int Times(int a, int b) { return a * b; }
__host__ __device__ int Minus(int a, int b) { return a - b; }
__device__ Operation device_operations[3] = {Plus, Times, Minus};
static Operation host_operations[3] = {Plus, Times, Minus};

struct Record {
  char tag;
  short small[3];
  double weight;
  int tail[5];
};
__host__ __device__ __noinline__ Record Transform(Record record, int step) {
  record.tag = static_cast<char>(record.tag + step);
  for (int i = 0; i < 3; ++i) record.small[i] = static_cast<short>(record.small[(i + 1) % 3] * 2 + step);
  record.weight = record.weight * 0.5 + step;
  for (int i = 0; i < 5; ++i) record.tail[i] += record.small[i % 3];
  return record;
}

// Indexing by run-time values keeps the array in local memory.
__host__ __device__ int LocalArray(int seed) {
  int values[32];
  for (int i = 0; i < 32; ++i) values[i] = (seed * (i + 3)) % 101;
  for (int i = 1; i < 32; ++i) {
    int value = values[i], j = i;
    for (; j > 0 && values[j - 1] > value; --j) values[j] = values[j - 1];
    values[j] = value;
  }
  int folded = 0;
  for (int i = 0; i < 32; ++i) folded = folded * 31 + values[(i * 7 + seed) & 31];
  return folded;
}

__constant__ float table[64];
__constant__ struct {
  int first;
  double second;
} pair = {42, 2.5};
__device__ unsigned char bytes[] = {1, 2, 3, 250};
__device__ int cells[128];
__device__ int* cursor = cells + 5;
__managed__ int managed_cell = 17;

struct Results {
  unsigned collatz;
  int switched, ackermann, parity, area, pointer, local;
  Record record;
  double table_value;
};

template <typename Operations>
__host__ __device__ Results Compute(int i, const Operations& operations, const float* lookup) {
  Results r;
  r.collatz = Collatz(i * 7 + 1);
  r.switched = Switchboard(i, i * 3 - 50);
  r.ackermann = Ackermann(i % 3, i % 5);
  r.parity = Even(i % 40, i);
  r.area = Virtual(i);
  r.pointer = operations[i % 3](i, i + 9);
  r.local = LocalArray(i);
  Record record = {};
  record.tag = static_cast<char>('a' + i % 20);
  for (int k = 0; k < 3; ++k) record.small[k] = static_cast<short>(i * k);
  record.weight = i * 0.25;
  for (int k = 0; k < 5; ++k) record.tail[k] = k - i;
  r.record = Transform(Transform(record, i % 4), 3);
  r.table_value = lookup[i & 63] * 2.0;
  return r;
}

__global__ void Everything(Results* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = Compute(i, device_operations, table);
}

__global__ void Globals(double* out) {
  out[0] = pair.first + pair.second;
  out[1] = bytes[3] * 4 + bytes[0];
  *cursor = 99;
  out[2] = cells[5];
  managed_cell += 4;
  out[3] = managed_cell;
}

template <typename T>
void SameField(const char* name, int i, T got, T want) {
  Same(name, got, want, "thread " + std::to_string(i));
}

void CheckEverything() {
  constexpr int kCount = 700;
  std::vector<float> lookup(64);
  for (int i = 0; i < 64; ++i) lookup[i] = static_cast<float>(i) * 1.25f - 3;
  CUDA_OK(cudaMemcpyToSymbol(table, lookup.data(), sizeof table));
  CUDA_OK(cudaDeviceSetLimit(cudaLimitStackSize, 16384));
  Device<Results> out(kCount);
  Everything<<<(kCount + 95) / 96, 96>>>(out.get(), kCount);
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<Results> got = out.Read();
  for (int i = 0; i < kCount; ++i) {
    Results want = Compute(i, host_operations, lookup.data());
    SameField("collatz", i, got[i].collatz, want.collatz);
    SameField("switch", i, got[i].switched, want.switched);
    SameField("ackermann", i, got[i].ackermann, want.ackermann);
    SameField("mutual recursion", i, got[i].parity, want.parity);
    SameField("virtual", i, got[i].area, want.area);
    SameField("function pointer", i, got[i].pointer, want.pointer);
    SameField("local array", i, got[i].local, want.local);
    SameField("struct tag", i, got[i].record.tag, want.record.tag);
    for (int k = 0; k < 3; ++k) SameField("struct small", i, got[i].record.small[k], want.record.small[k]);
    SameField("struct weight", i, got[i].record.weight, want.record.weight);
    for (int k = 0; k < 5; ++k) SameField("struct tail", i, got[i].record.tail[k], want.record.tail[k]);
    SameField("constant table", i, got[i].table_value, want.table_value);
  }
}

void CheckGlobals() {
  Device<double> out(4);
  Globals<<<1, 1>>>(out.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<double> got = out.Read();
  Same("constant structure", got[0], 44.5);
  Same("byte array", got[1], 1001.0);
  Same("pointer to global", got[2], 99.0);
  Same("managed in kernel", got[3], 21.0);
  Same("managed on host", managed_cell, 21);
  int from_symbol[128];
  CUDA_OK(cudaMemcpyFromSymbol(from_symbol, cells, sizeof from_symbol));
  Same("symbol copy", from_symbol[5], 99);
  size_t size = 0;
  CUDA_OK(cudaGetSymbolSize(&size, cells));
  Same("symbol size", size, sizeof cells);
}

int main() {
  CheckEverything();
  CheckGlobals();
  return Finish("control");
}

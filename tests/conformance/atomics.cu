// Atomics in global and shared memory and through generic pointers, over every type and scope: contended
// totals against the arithmetic result, and the values returned against what a serial order allows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "check.h"

using namespace check;

constexpr int kBlocks = 8, kThreads = 96, kTotal = kBlocks * kThreads;

enum Op { kAdd, kSub, kMin, kMax, kAnd, kOr, kXor, kExch, kInc, kDec, kOps };
constexpr const char* kNames[kOps] = {"add", "sub", "min", "max", "and", "or", "xor", "exch", "inc", "dec"};

template <typename T>
__device__ T Apply(int op, T* target, T value) {
  switch (op) {
    case kAdd:
      return atomicAdd(target, value);
    case kMin:
      return atomicMin(target, value);
    case kMax:
      return atomicMax(target, value);
    case kAnd:
      return atomicAnd(target, value);
    case kOr:
      return atomicOr(target, value);
    case kXor:
      return atomicXor(target, value);
    case kExch:
      return atomicExch(target, value);
  }
  if constexpr (sizeof(T) == 4) {
    if (op == kSub) return atomicSub(target, value);
  }
  if constexpr (std::is_same_v<T, unsigned>) {
    if (op == kInc) return atomicInc(target, 50);
    if (op == kDec) return atomicDec(target, 50);
  }
  return value;
}

template <typename T>
__host__ __device__ T ValueOf(int i) {
  return static_cast<T>(static_cast<unsigned long long>(i + 1) * 2654435761ull ^
                        static_cast<unsigned long long>(i));
}

// Counts per block in shared memory, then the same operation once more on one global cell by every thread.
template <typename T>
__global__ void Integers(int op, T start, T* shared_results, T* global_cell) {
  __shared__ T cell;
  if (threadIdx.x == 0) cell = start;
  __syncthreads();
  T value = ValueOf<T>(blockIdx.x * blockDim.x + threadIdx.x);
  Apply(op, &cell, value);
  Apply(op, global_cell, value);
  __syncthreads();
  if (threadIdx.x == 0) shared_results[blockIdx.x] = cell;
}

template <typename T>
T HostApply(int op, T current, T value) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case kAdd:
      return static_cast<T>(static_cast<U>(current) + static_cast<U>(value));
    case kSub:
      return static_cast<T>(static_cast<U>(current) - static_cast<U>(value));
    case kMin:
      return value < current ? value : current;
    case kMax:
      return value > current ? value : current;
    case kAnd:
      return current & value;
    case kOr:
      return current | value;
    case kXor:
      return current ^ value;
    case kInc:
      return current >= 50 ? 0 : current + 1;
    case kDec:
      return current == 0 || current > 50 ? 50 : current - 1;
  }
  return value;
}

template <typename T>
void CheckIntegers(const char* type) {
  for (int op = 0; op < kOps; ++op) {
    if (op == kSub && sizeof(T) != 4) continue;
    if ((op == kInc || op == kDec) && !std::is_same_v<T, unsigned>) continue;
    T start = static_cast<T>(12345);
    Device<T> results(kBlocks), cell(std::vector<T>{start});
    Integers<T><<<kBlocks, kThreads>>>(op, start, results.get(), cell.get());
    CUDA_OK(cudaDeviceSynchronize());
    std::vector<T> blocks = results.Read();
    T global = start;
    for (int b = 0; b < kBlocks; ++b) {
      T shared = start;
      bool held = false;
      for (int t = 0; t < kThreads; ++t) {
        T value = ValueOf<T>(b * kThreads + t);
        shared = HostApply(op, shared, value);
        global = HostApply(op, global, value);
        held |= value == blocks[b];
      }
      std::string name = std::string(kNames[op]) + "." + type;
      if (op == kExch)
        Report(held, name + " shared", "a value nobody stored");
      else
        Same(name + " shared", blocks[b], shared);
    }
    T got = cell.Read()[0];
    if (op != kExch) Same(std::string(kNames[op]) + "." + type + " global", got, global);
  }
}

// Floating sums of integers small enough to be exact in any order, in bfloat16 too (up to 256).
template <typename T>
__global__ void Floats(T* shared_results, T* global_cell) {
  __shared__ T cell;
  if (threadIdx.x == 0) cell = T(0.0f);
  __syncthreads();
  T value = T(static_cast<float>(threadIdx.x % 2));
  atomicAdd(&cell, value);
  if (threadIdx.x < 32) atomicAdd(global_cell, value);
  __syncthreads();
  if (threadIdx.x == 0) shared_results[blockIdx.x] = cell;
}
template <typename T>
void CheckFloats(const char* type) {
  Device<T> results(kBlocks), cell(1);
  Floats<T><<<kBlocks, kThreads>>>(results.get(), cell.get());
  CUDA_OK(cudaDeviceSynchronize());
  for (T block : results.Read())
    Same(std::string("add.") + type + " shared", static_cast<float>(block), 0.5f * kThreads);
  Same(std::string("add.") + type + " global", static_cast<float>(cell.Read()[0]), 0.5f * 32 * kBlocks);
}
__global__ void HalfPairs(__half2* cell) { atomicAdd(cell, __floats2half2_rn(1.0f, 2.0f)); }
void CheckHalfPairs() {
  Device<__half2> cell(1);
  HalfPairs<<<4, 64>>>(cell.get());
  CUDA_OK(cudaDeviceSynchronize());
  __half2 got = cell.Read()[0];
  Same("add.f16x2 low", __low2float(got), 256.0f);
  Same("add.f16x2 high", __high2float(got), 512.0f);
}

// Every thread takes a ticket: the returned old values must be a permutation.
__global__ void Tickets(unsigned* counter, unsigned* tickets, unsigned long long* wide_counter,
                        unsigned long long* wide_tickets) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tickets[i] = atomicAdd(counter, 1u);
  unsigned long long old = *wide_counter, assumed;
  do {
    assumed = old;
    old = atomicCAS(wide_counter, assumed, assumed + 3);
  } while (old != assumed);
  wide_tickets[i] = old;
}
void CheckTickets() {
  Device<unsigned> counter(1), tickets(kTotal);
  Device<unsigned long long> wide_counter(1), wide_tickets(kTotal);
  Tickets<<<kBlocks, kThreads>>>(counter.get(), tickets.get(), wide_counter.get(), wide_tickets.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<bool> seen(kTotal), wide_seen(kTotal);
  for (unsigned ticket : tickets.Read()) {
    Report(ticket < kTotal && !seen[ticket], "ticket", Text(ticket));
    if (ticket < kTotal) seen[ticket] = true;
  }
  for (unsigned long long ticket : wide_tickets.Read()) {
    Report(ticket % 3 == 0 && ticket / 3 < kTotal && !wide_seen[ticket / 3], "cas ticket", Text(ticket));
    if (ticket / 3 < kTotal) wide_seen[ticket / 3] = true;
  }
  Same("ticket counter", counter.Read()[0], static_cast<unsigned>(kTotal));
}

// Scopes, 16-bit compare-and-swap, and a pointer whose space only the hardware knows.
__global__ void Scopes(int* cells, unsigned short* narrow, int use_shared, int* out) {
  __shared__ int local;
  if (threadIdx.x == 0) local = 0;
  __syncthreads();
  atomicAdd_block(&cells[0], 1);
  atomicAdd_system(&cells[1], 2);
  atomicMax_system(&cells[2], static_cast<int>(threadIdx.x));
  int* generic = use_shared ? &local : &cells[3];
  atomicAdd(generic, 5);
  unsigned short old = *narrow, assumed;
  do {
    assumed = old;
    old = atomicCAS(narrow, assumed, static_cast<unsigned short>(assumed + 1));
  } while (old != assumed);
  __syncthreads();
  if (threadIdx.x == 0) *out = local;
}
void CheckScopes() {
  Device<int> cells(4), out(1);
  Device<unsigned short> narrow(2);
  Scopes<<<1, 64>>>(cells.get(), narrow.get() + 1, 1, out.get());
  Scopes<<<1, 64>>>(cells.get(), narrow.get() + 1, 0, out.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> got = cells.Read();
  Same("block scope", got[0], 128);
  Same("system scope", got[1], 256);
  Same("system max", got[2], 63);
  Same("generic global", got[3], 320);
  Same("generic shared", out.Read()[0], 0);
  Same("cas.b16", narrow.Read()[1], static_cast<unsigned short>(128));
  Same("cas.b16 neighbour", narrow.Read()[0], static_cast<unsigned short>(0));
}

int main() {
  CheckIntegers<int>("s32");
  CheckIntegers<unsigned>("u32");
  CheckIntegers<unsigned long long>("u64");
  CheckFloats<float>("f32");
  CheckFloats<double>("f64");
  CheckFloats<__half>("f16");
  CheckFloats<__nv_bfloat16>("bf16");
  CheckHalfPairs();
  CheckTickets();
  CheckScopes();
  return Finish("atomics");
}

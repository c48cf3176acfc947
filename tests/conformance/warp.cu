// Warp and block level cooperation: shuffles, votes, matches, reductions and cooperative groups against plain
// host loops.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "check.h"

using namespace check;
namespace cg = cooperative_groups;

constexpr unsigned kFull = 0xffffffffu;
constexpr int kOutputs = 16;

__global__ void Shuffles(const int* in, int* out) {
  int lane = threadIdx.x;
  int value = in[lane];
  int* row = out + lane;
  row[0 * 32] = __shfl_sync(kFull, value, 5);
  row[1 * 32] = __shfl_sync(kFull, value, (lane * 7) & 31);
  row[2 * 32] = __shfl_up_sync(kFull, value, 3);
  row[3 * 32] = __shfl_down_sync(kFull, value, 9);
  row[4 * 32] = __shfl_xor_sync(kFull, value, 21);
  row[5 * 32] = __shfl_sync(kFull, value, lane + 3, 8);
  row[6 * 32] = __shfl_up_sync(kFull, value, 2, 16);
  row[7 * 32] = __shfl_down_sync(kFull, value, 5, 8);
  row[8 * 32] = __shfl_xor_sync(kFull, value, 3, 4);
  double wide = __shfl_down_sync(kFull, value * 1.5, 1);
  row[9 * 32] = static_cast<int>(wide * 2);
  row[10 * 32] = __any_sync(kFull, value > 90) | __all_sync(kFull, value > -1) << 1;
  row[11 * 32] = static_cast<int>(__ballot_sync(kFull, value & 1));
  row[12 * 32] = static_cast<int>(__match_any_sync(kFull, value % 5));
  int same = 0;
  row[13 * 32] = static_cast<int>(__match_all_sync(kFull, value / 1000, &same)) ^ same;
  // Only half the warp takes part.
  row[14 * 32] = -1;
  if (lane & 1) row[14 * 32] = __shfl_sync(0xaaaaaaaa, value, (lane + 2) & 31);
  row[15 * 32] = -1;
  if (lane < 12)
    row[15 * 32] = static_cast<int>(__activemask()) | (__popc(__ballot_sync(0xfff, value > 50)) << 16);
}

void CheckShuffles() {
  std::vector<int> in(32);
  std::mt19937 random(3);
  for (int& value : in) value = static_cast<int>(random() % 100);
  Device<int> din(in), dout(32 * kOutputs);
  Shuffles<<<1, 32>>>(din.get(), dout.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> out = dout.Read();
  unsigned odd = 0, any = 0, all = 1, over_fifty = 0;
  for (int i = 0; i < 32; ++i) {
    odd |= static_cast<unsigned>(in[i] & 1) << i;
    any |= in[i] > 90;
    all &= in[i] > -1;
    if (i < 12) over_fifty += in[i] > 50;
  }
  for (int i = 0; i < 32; ++i) {
    unsigned match = 0;
    for (int j = 0; j < 32; ++j) match |= static_cast<unsigned>(in[j] % 5 == in[i] % 5) << j;
    int want[kOutputs] = {in[5],
                          in[(i * 7) & 31],
                          i >= 3 ? in[i - 3] : in[i],
                          i + 9 < 32 ? in[i + 9] : in[i],
                          in[i ^ 21],
                          in[(i & ~7) | ((i + 3) & 7)],
                          (i & 15) >= 2 ? in[i - 2] : in[i],
                          (i & 7) + 5 < 8 ? in[i + 5] : in[i],
                          in[i ^ 3],
                          static_cast<int>((i + 1 < 32 ? in[i + 1] : in[i]) * 1.5 * 2),
                          static_cast<int>(any | all << 1),
                          static_cast<int>(odd),
                          static_cast<int>(match),
                          static_cast<int>(kFull ^ 1),
                          i & 1 ? in[(i + 2) & 31] : -1,
                          i < 12 ? static_cast<int>(0xfff | over_fifty << 16) : -1};
    for (int k = 0; k < kOutputs; ++k)
      Same("shuffle row " + std::to_string(k), out[32 * k + i], want[k], "lane " + std::to_string(i));
  }
}

// Every lane runs its own number of iterations, then the warp must be whole again.
__global__ void DivergentSum(const int* in, int* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int total = 0;
  for (int k = 0; k < in[i] % 17; ++k) {
    if ((k + i) % 3 == 0) continue;
    if (k * i % 29 == 28) break;
    total += k * (i % 2 ? 3 : -1);
  }
  for (int offset = 16; offset > 0; offset >>= 1) total += __shfl_xor_sync(kFull, total, offset);
  if (i < n) out[i] = total;
}
void CheckDivergentSum() {
  std::vector<int> in = Values<int>(512, 17);
  for (int& value : in) value &= 0x7fffffff;
  Device<int> din(in), dout(in.size());
  DivergentSum<<<4, 128>>>(din.get(), dout.get(), 512);
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> out = dout.Read();
  for (int warp = 0; warp < 16; ++warp) {
    int sum = 0;
    for (int i = warp * 32; i < warp * 32 + 32; ++i) {
      for (int k = 0; k < in[i] % 17; ++k) {
        if ((k + i) % 3 == 0) continue;
        if (k * i % 29 == 28) break;
        sum += k * (i % 2 ? 3 : -1);
      }
    }
    for (int i = warp * 32; i < warp * 32 + 32; ++i) Same("divergent sum", out[i], sum);
  }
}

template <int kTile>
__global__ void Tiles(const int* in, int* out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<kTile> tile = cg::tiled_partition<kTile>(block);
  int i = block.thread_rank();
  out[i] = cg::reduce(tile, in[i], cg::plus<int>()) + 1000 * tile.thread_rank() +
           100000 * tile.meta_group_rank() + (tile.any(in[i] == 3) ? 7 : 0) + tile.shfl(in[i], kTile - 1);
}
template <int kTile>
void CheckTiles() {
  std::vector<int> in(96);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>((i * 37 + 11) % 50);
  Device<int> din(in), dout(in.size());
  Tiles<kTile><<<1, 96>>>(din.get(), dout.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> out = dout.Read();
  for (int i = 0; i < 96; ++i) {
    int first = i / kTile * kTile, sum = 0, three = 0;
    for (int j = first; j < first + kTile; ++j) {
      sum += in[j];
      three |= in[j] == 3;
    }
    Same("tile " + std::to_string(kTile), out[i],
         sum + 1000 * (i % kTile) + 100000 * (i / kTile) + (three ? 7 : 0) + in[first + kTile - 1]);
  }
}

__global__ void Coalesced(int* counter, int* out) {
  int i = threadIdx.x;
  out[i] = -1;
  if (i % 3 == 1) {
    cg::coalesced_group group = cg::coalesced_threads();
    int base = 0;
    if (group.thread_rank() == 0) base = atomicAdd(counter, group.size());
    base = group.shfl(base, 0);
    out[i] = base + group.thread_rank();
    group.sync();
  }
}
void CheckCoalesced() {
  Device<int> counter(1), out(128);
  Coalesced<<<1, 128>>>(counter.get(), out.get());
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> ranks = out.Read();
  int expected = 0;
  std::vector<bool> seen(128);
  for (int i = 0; i < 128; ++i) {
    if (i % 3 != 1) {
      Same("coalesced inactive", ranks[i], -1);
      continue;
    }
    ++expected;
    bool fresh = ranks[i] >= 0 && ranks[i] < 128 && !seen[ranks[i]];
    Report(fresh, "coalesced rank", std::to_string(ranks[i]));
    if (fresh) seen[ranks[i]] = true;
  }
  Same("coalesced counter", counter.Read()[0], expected);
}

// Block barriers, counted barriers and barrier reductions with dynamic shared memory.
__global__ void BlockReduce(const float* in, float* out, int* counts, int n) {
  extern __shared__ float shared[];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  shared[t] = i < n ? in[i] : 0;
  __syncthreads();
  for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
    if (t < stride) shared[t] += shared[t + stride];
    __syncthreads();
  }
  int positive = __syncthreads_count(i < n && in[i] > 0);
  int all = __syncthreads_and(i < n), any = __syncthreads_or(i < n && in[i] > 0.9f);
  if (t == 0) {
    out[blockIdx.x] = shared[0];
    counts[blockIdx.x] = positive + 10000 * all + 20000 * any;
  }
}
void CheckBlockReduce() {
  constexpr int kBlock = 256, kCount = 1000;
  std::vector<float> in(kCount);
  std::mt19937 random(23);
  for (float& value : in) value = static_cast<float>(random() % 2001) / 1000 - 1;
  Device<float> din(in), dout(4);
  Device<int> dcounts(4);
  BlockReduce<<<4, kBlock, kBlock * sizeof(float)>>>(din.get(), dout.get(), dcounts.get(), kCount);
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<float> out = dout.Read();
  std::vector<int> counts = dcounts.Read();
  for (int block = 0; block < 4; ++block) {
    std::vector<float> tree(kBlock);
    int positive = 0, all = 1, any = 0;
    for (int t = 0; t < kBlock; ++t) {
      int i = block * kBlock + t;
      tree[t] = i < kCount ? in[i] : 0;
      positive += tree[t] > 0;
      all &= i < kCount;
      any |= tree[t] > 0.9f;
    }
    for (int stride = kBlock / 2; stride > 0; stride /= 2) {
      for (int t = 0; t < stride; ++t) tree[t] += tree[t + stride];
    }
    Same("block reduce", out[block], tree[0]);
    Same("block counts", counts[block], positive + 10000 * all + 20000 * any);
  }
}

// A lock taken by single lanes of one warp: needs forward progress of diverged lanes (compute capability 7.0
// and later).
__global__ void LaneLock(int* lock, int* counter) {
  bool done = false;
  while (!done) {
    if (atomicCAS(lock, 0, 1) == 0) {
      *reinterpret_cast<volatile int*>(counter) += 1;
      __threadfence();
      atomicExch(lock, 0);
      done = true;
    }
  }
}
__global__ void LaneSpin(int* flag, int* out) {
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) {
    }
    out[0] = 1;
  } else if (threadIdx.x == 31) {
    atomicExch(flag, 1);
  }
}
void CheckProgress() {
  Device<int> lock(1), counter(1), flag(1), out(1);
  LaneLock<<<3, 64>>>(lock.get(), counter.get());
  LaneSpin<<<1, 32>>>(flag.get(), out.get());
  CUDA_OK(cudaDeviceSynchronize());
  Same("lane lock", counter.Read()[0], 192);
  Same("lane spin", out.Read()[0], 1);
}

// Grid-wide synchronisation of a cooperative launch.
__global__ void GridRounds(int* cells, int rounds) {
  cg::grid_group grid = cg::this_grid();
  int i = grid.thread_rank(), n = grid.size();
  for (int round = 0; round < rounds; ++round) {
    int next = cells[(i + 1) % n];
    grid.sync();
    cells[i] = next + 1;
    grid.sync();
  }
}
void CheckGridSync() {
  constexpr int kBlocks = 6, kThreads = 64, kRounds = 5, kCells = kBlocks * kThreads;
  std::vector<int> cells(kCells);
  for (int i = 0; i < kCells; ++i) cells[i] = i * 10;
  Device<int> device(cells);
  int* pointer = device.get();
  int rounds = kRounds;
  void* arguments[] = {&pointer, &rounds};
  CUDA_OK(cudaLaunchCooperativeKernel(GridRounds, dim3(kBlocks), dim3(kThreads), arguments, 0, nullptr));
  CUDA_OK(cudaDeviceSynchronize());
  std::vector<int> got = device.Read();
  for (int i = 0; i < kCells; ++i) Same("grid sync", got[i], (i + kRounds) % kCells * 10 + kRounds);
}

int main() {
  CheckShuffles();
  CheckDivergentSum();
  CheckTiles<32>();
  CheckTiles<16>();
  CheckTiles<8>();
  CheckTiles<4>();
  CheckTiles<2>();
  CheckCoalesced();
  CheckBlockReduce();
  CheckProgress();
  CheckGridSync();
  return Finish("warp");
}

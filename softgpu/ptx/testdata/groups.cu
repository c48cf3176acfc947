// Cooperative groups, votes, shuffles, scoped atomics, and the 16-bit formats.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

__global__ void Reduce(const int* in, int* out) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
  const int sum = cg::reduce(tile, in[block.thread_rank()], cg::plus<int>());
  if (tile.thread_rank() == 0) atomicAdd_system(out, sum);
  cg::coalesced_group active = cg::coalesced_threads();
  if (active.any(sum > 3)) out[1] = active.shfl(sum, 0) + __match_any_sync(0xffffffff, sum);
}

__global__ void Grid(int* data) {
  cg::grid_group grid = cg::this_grid();
  data[grid.thread_rank()] = grid.size();
  grid.sync();
  data[0] += data[grid.size() - 1];
}

__global__ void Halves(__half2* h, __nv_bfloat162* b, __half* one) {
  h[0] = __hfma2(h[1], h[2], h[3]);
  h[4] = __hadd2(h[5], __float2half2_rn(1.5f));
  b[0] = __hmul2(b[1], b[2]);
  b[3] = __float22bfloat162_rn(make_float2(1, 2));
  one[0] = __hlt(one[1], one[2]) ? hsqrt(one[3]) : hexp(one[4]);
  atomicAdd(h + 8, h[9]);
}

// Occupancy: how many blocks of a kernel fit, from the limits in launch.h.
#include <algorithm>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/state.h"

using softgpu::Entry;
using softgpu::Function;

namespace {

constexpr int kWarp = 32;

CUresult Find(Entry& entry, CUfunction handle, const void* out, std::shared_ptr<Function>* function) {
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::ResolveFunction(entry.context(), handle, function);
}

CUresult ActiveBlocks(int* blocks, CUfunction handle, int block_size, size_t dynamic_shared, unsigned flags) {
  Entry entry;
  std::shared_ptr<Function> function;
  CUresult found = Find(entry, handle, blocks, &function);
  if (found != CUDA_SUCCESS) return found;
  if (block_size <= 0 || (flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned threads = static_cast<unsigned>(block_size);
  bool fits = threads <= function->info().max_threads;
  *blocks = fits ? static_cast<int>(softgpu::BlocksPerSm(function->info(), threads, dynamic_shared)) : 0;
  return CUDA_SUCCESS;
}

struct Best {
  int block = 0, blocks = 0;
};

// The largest block among those that keep most threads resident.
Best Search(const softgpu::exec::KernelInfo& info, CUoccupancyB2DSize shared_of, size_t shared, int limit) {
  int most = static_cast<int>(info.max_threads);
  if (limit > 0) most = std::min(most, limit);
  Best best;
  for (int block = (most + kWarp - 1) / kWarp * kWarp; block > 0; block -= kWarp) {
    int threads = std::min(block, most);
    size_t dynamic = shared_of != nullptr ? shared_of(threads) : shared;
    int blocks = static_cast<int>(softgpu::BlocksPerSm(info, static_cast<unsigned>(threads), dynamic));
    if (threads * blocks > best.block * best.blocks) best = {threads, blocks};
  }
  return best;
}

CUresult PotentialBlock(int* min_grid, int* block, CUfunction handle, CUoccupancyB2DSize shared_of,
                        size_t shared, int limit) {
  Entry entry;
  std::shared_ptr<Function> function;
  CUresult found = Find(entry, handle, block, &function);
  if (found != CUDA_SUCCESS) return found;
  if (min_grid == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  Best best = Search(function->info(), shared_of, shared, limit);
  *block = best.block;
  *min_grid = best.blocks * static_cast<int>(entry.context().device().info().sm_count);
  return CUDA_SUCCESS;
}

CUresult Shape(const CUlaunchConfig* config, const Function& function, softgpu::LaunchShape* shape) {
  softgpu::LaunchEffects effects;
  softgpu::ApplySettings(function, shape);
  shape->block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  return softgpu::ReadAttributes(function, config->attrs, config->numAttrs, shape, &effects);
}

int BlocksOf(const Function& function, const softgpu::LaunchShape& shape, unsigned dynamic_shared) {
  uint64_t threads = uint64_t{shape.block.x} * shape.block.y * shape.block.z;
  if (threads > function.info().max_threads) return 0;
  unsigned per_sm = softgpu::BlocksPerSm(function.info(), static_cast<unsigned>(threads), dynamic_shared);
  return static_cast<int>(per_sm * function.context().device().info().sm_count);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction func, int blockSize,
                                                             size_t dynamicSMemSize) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction func,
                                                                      int blockSize, size_t dynamicSMemSize,
                                                                      unsigned int flags) {
  return ActiveBlocks(numBlocks, func, blockSize, dynamicSMemSize, flags);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                                                  CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                  size_t dynamicSMemSize, int blockSizeLimit) {
  return PotentialBlock(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                        blockSizeLimit);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int* minGridSize, int* blockSize, CUfunction func,
                                                           CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                           size_t dynamicSMemSize, int blockSizeLimit,
                                                           unsigned int flags) {
  if ((flags & ~static_cast<unsigned>(CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return PotentialBlock(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, dynamicSMemSize,
                        blockSizeLimit);
}

CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamicSmemSize, CUfunction func,
                                                         int numBlocks, int blockSize) {
  Entry entry;
  std::shared_ptr<Function> function;
  CUresult found = Find(entry, func, dynamicSmemSize, &function);
  if (found != CUDA_SUCCESS) return found;
  if (numBlocks <= 0 || blockSize <= 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned threads = static_cast<unsigned>(blockSize);
  if (softgpu::BlocksPerSm(function->info(), threads, 0) < static_cast<unsigned>(numBlocks)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t per_block = softgpu::kSharedPerSm / static_cast<unsigned>(numBlocks) / 128 * 128;
  size_t taken = softgpu::kReservedShared + function->info().static_shared;
  size_t room = per_block > taken ? per_block - taken : 0;
  *dynamicSmemSize = std::min<size_t>(room, softgpu::kLargestShared - function->info().static_shared);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(int* clusterSize, CUfunction func,
                                                    const CUlaunchConfig* config) {
  Entry entry;
  std::shared_ptr<Function> function;
  CUresult found = Find(entry, func, clusterSize, &function);
  if (found != CUDA_SUCCESS) return found;
  softgpu::LaunchShape shape;
  CUresult result = config != nullptr ? Shape(config, *function, &shape) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  int most = function->settings().non_portable_cluster.load() != 0
                 ? static_cast<int>(softgpu::kLargestCluster)
                 : static_cast<int>(softgpu::kPortableCluster);
  *clusterSize = std::min(most, BlocksOf(*function, shape, config->sharedMemBytes));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* numClusters, CUfunction func,
                                              const CUlaunchConfig* config) {
  Entry entry;
  std::shared_ptr<Function> function;
  CUresult found = Find(entry, func, numClusters, &function);
  if (found != CUDA_SUCCESS) return found;
  softgpu::LaunchShape shape;
  CUresult result = config != nullptr ? Shape(config, *function, &shape) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  uint64_t size = uint64_t{shape.cluster.x} * shape.cluster.y * shape.cluster.z;
  if (size == 0 || size > softgpu::kLargestCluster) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  *numClusters = BlocksOf(*function, shape, config->sharedMemBytes) / static_cast<int>(size);
  return CUDA_SUCCESS;
}

}  // extern "C"

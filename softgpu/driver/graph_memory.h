// Memory that graphs allocate: at one address for the life of the node, whose memory the graph's executions
// share.
//
// The memory is the device's from the moment the node is made until the node and all executable forms of it
// are gone, so that an execution can never find it missing. Freeing it outside of graphs is not offered.
#ifndef SOFTGPU_DRIVER_GRAPH_MEMORY_H_
#define SOFTGPU_DRIVER_GRAPH_MEMORY_H_

#include <cuda.h>

#include <memory>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class Stream;

class MemAllocAction final : public Action {
 public:
  // INVALID_VALUE for parameters that no graph can have, NOT_SUPPORTED for memory that is not of this device,
  // OUT_OF_MEMORY.
  static CUresult Create(Context& context, const CUDA_MEM_ALLOC_NODE_PARAMS& params,
                         std::shared_ptr<MemAllocAction>* out);
  MemAllocAction(Context& context, const CUDA_MEM_ALLOC_NODE_PARAMS& params);
  ~MemAllocAction() override;
  CUresult Run(Context& context) const override;
  // Its `accessDescs` points into this.
  const CUDA_MEM_ALLOC_NODE_PARAMS& params() const { return params_; }

 private:
  Device& device_;
  CUDA_MEM_ALLOC_NODE_PARAMS params_;
  std::vector<CUmemAccessDesc> access_;
};

// Stream-ordered memory of a stream that captures becomes nodes of the graph (CUDA C++ Programming Guide,
// "Graph Memory Nodes"). INVALID_VALUE for a free of what the graph does not allocate, or frees already.
CUresult CaptureAllocation(Stream& stream, uint64_t bytes, CUdeviceptr* address);
CUresult CaptureFree(Stream& stream, CUdeviceptr address);

class MemFreeAction final : public Action {
 public:
  MemFreeAction(CUdeviceptr address, uint64_t bytes)
      : Action(CU_GRAPH_NODE_TYPE_MEM_FREE, Runs::kInline), address(address), bytes(bytes) {}
  CUresult Run(Context& context) const override;
  const CUdeviceptr address;
  const uint64_t bytes;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_GRAPH_MEMORY_H_

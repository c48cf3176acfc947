#include "softgpu/driver/graph_memory.h"

#include <algorithm>

#include "softgpu/driver/api_graph.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/stream.h"

namespace softgpu {

namespace {

// The node of the graph that allocates at `address`; null when there is none.
std::shared_ptr<const MemAllocAction> FindAllocation(Graph& graph, CUdeviceptr address) {
  for (Node* node : graph.Nodes()) {
    auto action = ActionOf<MemAllocAction>(node->handle(), CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    if (action != nullptr && action->params().dptr == address) return action;
  }
  return nullptr;
}

bool IsFreed(Graph& graph, CUdeviceptr address) {
  for (Node* node : graph.Nodes()) {
    auto action = ActionOf<MemFreeAction>(node->handle(), CU_GRAPH_NODE_TYPE_MEM_FREE);
    if (action != nullptr && action->address == address) return true;
  }
  return false;
}

CUresult ReadCounter(Device& device, CUgraphMem_attribute attribute, cuuint64_t* value) {
  GraphMemoryUse& use = device.graph_memory();
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      *value = use.used.load();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *value = use.used_high.load();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *value = use.reserved.load();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *value = use.reserved_high.load();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void Raise(std::atomic<uint64_t>& counter, std::atomic<uint64_t>& high, uint64_t bytes) {
  uint64_t now = counter.fetch_add(bytes) + bytes;
  uint64_t seen = high.load();
  while (seen < now && !high.compare_exchange_weak(seen, now)) {
  }
}

}  // namespace

CUresult MemAllocAction::Create(Context& context, const CUDA_MEM_ALLOC_NODE_PARAMS& params,
                                std::shared_ptr<MemAllocAction>* out) {
  if (params.bytesize == 0 || params.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      params.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      (params.accessDescCount != 0 && params.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUmemLocation& location = params.poolProps.location;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE || location.id != context.ordinal())
    return CUDA_ERROR_NOT_SUPPORTED;
  if (params.accessDescCount > State::Get()->devices().size()) return CUDA_ERROR_INVALID_VALUE;
  auto action = std::make_shared<MemAllocAction>(context, params);
  CUresult result = State::Get()->memory().manager().AllocateDevice(
      context.handle(), params.bytesize, BlockKind::kModule, &action->params_.dptr);
  if (result == CUDA_SUCCESS) {
    GraphMemoryUse& use = context.device().graph_memory();
    Raise(use.reserved, use.reserved_high, params.bytesize);
    *out = std::move(action);
  }
  return result;
}

MemAllocAction::MemAllocAction(Context& context, const CUDA_MEM_ALLOC_NODE_PARAMS& params)
    : Action(CU_GRAPH_NODE_TYPE_MEM_ALLOC, Runs::kInline),
      device_(context.device()),
      params_(params),
      access_(params.accessDescs, params.accessDescs + params.accessDescCount) {
  params_.accessDescs = access_.data();
  params_.dptr = 0;
}

MemAllocAction::~MemAllocAction() {
  State* state = State::Get();
  if (params_.dptr == 0 || state == nullptr) return;
  // Fails only after the end of the context, which has freed it already.
  static_cast<void>(state->memory().manager().Free(params_.dptr, BlockKind::kModule));
  device_.graph_memory().reserved.fetch_sub(params_.bytesize);
}

CUresult MemAllocAction::Run(Context&) const {
  Raise(device_.graph_memory().used, device_.graph_memory().used_high, params_.bytesize);
  return CUDA_SUCCESS;
}

CUresult MemFreeAction::Run(Context& context) const {
  context.device().graph_memory().used.fetch_sub(bytes);
  return CUDA_SUCCESS;
}

CUresult CaptureAllocation(Stream& stream, uint64_t bytes, CUdeviceptr* address) {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, stream.context().ordinal()};
  params.bytesize = bytes;
  std::shared_ptr<MemAllocAction> action;
  CUresult result = MemAllocAction::Create(stream.context(), params, &action);
  if (result != CUDA_SUCCESS) return result;
  const CUdeviceptr allocated = action->params().dptr;
  result = stream.Submit(std::move(action));
  if (result == CUDA_SUCCESS) *address = allocated;
  return result;
}

CUresult CaptureFree(Stream& stream, CUdeviceptr address) {
  const std::shared_ptr<Capture> capture = stream.capture();
  auto allocation = capture == nullptr ? nullptr : FindAllocation(*capture->graph(), address);
  if (allocation == nullptr || IsFreed(*capture->graph(), address)) return CUDA_ERROR_INVALID_VALUE;
  return stream.Submit(std::make_shared<MemFreeAction>(address, allocation->params().bytesize));
}

}  // namespace softgpu

using softgpu::ActionPtr;
using softgpu::Context;
using softgpu::Device;
using softgpu::Entry;
using softgpu::MemAllocAction;
using softgpu::MemFreeAction;
using softgpu::Need;

extern "C" {

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                        const CUgraphNode* dependencies, size_t numDependencies,
                                        CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                               [&](Context& context, ActionPtr* out) {
                                 std::shared_ptr<MemAllocAction> action;
                                 CUresult result = MemAllocAction::Create(context, *nodeParams, &action);
                                 if (result != CUDA_SUCCESS) return result;
                                 nodeParams->dptr = action->params().dptr;
                                 *out = std::move(action);
                                 return CUDA_SUCCESS;
                               });
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode hNode, CUDA_MEM_ALLOC_NODE_PARAMS* params_out) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  auto action = softgpu::ActionOf<MemAllocAction>(hNode, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  if (action == nullptr || params_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params_out = action->params();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                       const CUgraphNode* dependencies, size_t numDependencies,
                                       CUdeviceptr dptr) {
  return softgpu::AddGraphNode(
      phGraphNode, hGraph, dependencies, numDependencies, [&](Context&, ActionPtr* out) {
        std::shared_ptr<softgpu::Graph> graph = softgpu::State::Get()->graphs.Find(hGraph);
        auto allocation = graph != nullptr ? softgpu::FindAllocation(*graph, dptr) : nullptr;
        if (allocation == nullptr || softgpu::IsFreed(*graph, dptr)) return CUDA_ERROR_INVALID_VALUE;
        *out = std::make_shared<MemFreeAction>(dptr, allocation->params().bytesize);
        return CUDA_SUCCESS;
      });
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode hNode, CUdeviceptr* dptr_out) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  auto action = softgpu::ActionOf<MemFreeAction>(hNode, CU_GRAPH_NODE_TYPE_MEM_FREE);
  if (action == nullptr || dptr_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *dptr_out = action->address;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  Device* found = entry.state().FindDevice(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return softgpu::ReadCounter(*found, attr, static_cast<cuuint64_t*>(value));
}

// Only the high marks can be set, and only to zero, which means to what is now (cuda.h).
CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void* value) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  Device* found = entry.state().FindDevice(device);
  if (found == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (value == nullptr || *static_cast<cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
  softgpu::GraphMemoryUse& use = found->graph_memory();
  if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    use.used_high.store(use.used.load());
  } else if (attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    use.reserved_high.store(use.reserved.load());
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// Nothing is kept beyond the nodes that use it.
CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice device) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  return entry.state().FindDevice(device) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // extern "C"

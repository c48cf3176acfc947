#include "softgpu/driver/graph_params.h"

#include <cstring>
#include <utility>

#include "softgpu/driver/actions.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/graph_conditional.h"
#include "softgpu/driver/mem_ops.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {

CUresult NodeContext(Context& current, CUcontext named, std::shared_ptr<Context>* out) {
  *out = named != nullptr ? State::Get()->FindContext(named) : current.shared_from_this();
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult MakeKernel(Context& context, const CUDA_KERNEL_NODE_PARAMS_v2& params,
                    const std::vector<CUlaunchAttribute>& attributes, ActionPtr* out) {
  std::shared_ptr<Context> target;
  CUresult result = NodeContext(context, params.func != nullptr ? nullptr : params.ctx, &target);
  if (result != CUDA_SUCCESS) return result;
  CUfunction handle = params.func != nullptr ? params.func : reinterpret_cast<CUfunction>(params.kern);
  std::shared_ptr<Function> function;
  result = ResolveFunction(*target, handle, &function);
  if (result != CUDA_SUCCESS) return result;
  LaunchShape shape;
  LaunchEffects effects;
  shape.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  shape.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  shape.dynamic_shared = params.sharedMemBytes;
  ApplySettings(*function, &shape);
  result = ReadAttributes(*function, attributes.data(), static_cast<unsigned>(attributes.size()), &shape,
                          &effects);
  if (result == CUDA_SUCCESS) result = CheckShape(*function, shape);
  std::vector<uint8_t> bytes;
  if (result == CUDA_SUCCESS)
    result = GatherParams(function->info(), params.kernelParams, params.extra, &bytes);
  if (result != CUDA_SUCCESS) return result;
  auto action =
      std::make_shared<KernelAction>(handle, std::move(function), shape, std::move(bytes), attributes);
  if (effects.has_priority) action->SetPriority(effects.priority);
  *out = std::move(action);
  return CUDA_SUCCESS;
}

CUresult MakeCopy(const CUDA_MEMCPY3D& params, ActionPtr* out) {
  MemoryParts& memory = State::Get()->memory();
  CopyJob job;
  CUresult result = ResolveCopy(memory.manager(), memory.arrays(), params, &job);
  if (result == CUDA_SUCCESS) *out = std::make_shared<CopyAction>(params, std::move(job));
  return result;
}

CUresult MakeSet(const CUDA_MEMSET_NODE_PARAMS& params, ActionPtr* out) {
  SetJob job;
  CUresult result = ResolveSet(State::Get()->memory().manager(), params.dst, params.pitch, params.value,
                               params.elementSize, params.width, params.height, &job);
  if (result == CUDA_SUCCESS) *out = std::make_shared<SetAction>(params, job);
  return result;
}

CUresult MakeHost(const CUDA_HOST_NODE_PARAMS& params, ActionPtr* out) {
  if (params.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = std::make_shared<HostAction>(params);
  return CUDA_SUCCESS;
}

CUresult MakeChild(CUgraph handle, ActionPtr* out) {
  std::shared_ptr<Graph> graph = State::Get()->graphs.Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!graph->MayBeCloned()) return CUDA_ERROR_NOT_SUPPORTED;
  *out = std::make_shared<ChildAction>(graph->Clone());
  return CUDA_SUCCESS;
}

CUresult MakeEvent(CUevent handle, CUgraphNodeType type, ActionPtr* out) {
  std::shared_ptr<Event> event = State::Get()->events.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
    *out = std::make_shared<EventRecordAction>(std::move(event));
  } else {
    *out = std::make_shared<EventWaitAction>(std::move(event));
  }
  return CUDA_SUCCESS;
}

CUresult MakeMemOps(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, ActionPtr* out) {
  std::shared_ptr<MemOpsAction> action;
  if (params.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = MemOpsAction::Create(params.paramArray, params.count, &action);
  if (result == CUDA_SUCCESS) *out = std::move(action);
  return result;
}

CUresult MakeAny(Context& context, const CUgraphNodeParams& params, ActionPtr* out) {
  static bool said = false;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return MakeKernel(context, ToV2(params.kernel), {}, out);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return MakeCopy(params.memcpy.copyParams, out);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return MakeSet({params.memset.dst, params.memset.pitch, params.memset.value, params.memset.elementSize,
                      params.memset.width, params.memset.height},
                     out);
    case CU_GRAPH_NODE_TYPE_HOST:
      return MakeHost({params.host.fn, params.host.userData}, out);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return MakeChild(params.graph.graph, out);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *out = std::make_shared<EmptyAction>();
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return MakeEvent(params.eventRecord.event, params.type, out);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return MakeEvent(params.eventWait.event, params.type, out);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return MakeMemOps({params.memOp.ctx, params.memOp.count, params.memOp.paramArray, params.memOp.flags},
                        out);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return ConditionalAction::Create(params.conditional, out);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return NotSupported("graph node: memory through cuGraphAddNode", &said);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return NotSupported("graph node: external semaphore", &said);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_KERNEL_NODE_PARAMS_v2 ToV2(const CUDA_KERNEL_NODE_PARAMS_v3& params) {
  CUDA_KERNEL_NODE_PARAMS_v2 copy;
  static_assert(sizeof copy == sizeof params);
  std::memcpy(&copy, &params, sizeof copy);
  return copy;
}

void Describe(const KernelAction& action, CUDA_KERNEL_NODE_PARAMS_v2* params) {
  *params = {};
  bool is_kernel = State::Get()->kernels.Find(reinterpret_cast<CUkernel>(action.handle)) != nullptr;
  if (is_kernel) {
    params->kern = reinterpret_cast<CUkernel>(action.handle);
    params->ctx = action.function->context().handle();
  } else {
    params->func = action.handle;
  }
  params->gridDimX = action.shape.grid.x;
  params->gridDimY = action.shape.grid.y;
  params->gridDimZ = action.shape.grid.z;
  params->blockDimX = action.shape.block.x;
  params->blockDimY = action.shape.block.y;
  params->blockDimZ = action.shape.block.z;
  params->sharedMemBytes = action.shape.dynamic_shared;
  params->kernelParams = const_cast<void**>(action.pointers.data());
}

}  // namespace softgpu

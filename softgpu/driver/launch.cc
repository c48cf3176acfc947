#include "softgpu/driver/launch.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/raw_log.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/device_heap.h"
#include "softgpu/driver/graph_conditional.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/native_call.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/sm_pool.h"
#include "softgpu/driver/state.h"
#include "softgpu/native/abi.h"

namespace softgpu {

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kResidentBlocks = 8;
// The header that a cooperative kernel finds behind envreg1/2: its size, and the barrier.
constexpr uint32_t kGridSyncBytes = 8;

uint64_t Volume(const exec::Dim3& dim) { return uint64_t{dim.x} * dim.y * dim.z; }

bool Fits(const exec::Dim3& dim, const exec::Dim3& most) {
  return dim.x >= 1 && dim.y >= 1 && dim.z >= 1 && dim.x <= most.x && dim.y <= most.y && dim.z <= most.z;
}

CUresult ErrorOf(exec::FaultKind kind) {
  switch (kind) {
    case exec::FaultKind::kNone:
      return CUDA_SUCCESS;
    case exec::FaultKind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case exec::FaultKind::kMisalignedAddress:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case exec::FaultKind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case exec::FaultKind::kInvalidAddressSpace:
      return CUDA_ERROR_INVALID_ADDRESS_SPACE;
    case exec::FaultKind::kInvalidPc:
      return CUDA_ERROR_INVALID_PC;
    case exec::FaultKind::kAssert:
      return CUDA_ERROR_ASSERT;
    case exec::FaultKind::kTrap:
    case exec::FaultKind::kStackOverflow:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
  return CUDA_ERROR_UNKNOWN;
}

// What one running launch asks of the driver. Lives until the launch has ended.
class LaunchServices final : public exec::DeviceServices {
 public:
  explicit LaunchServices(Context& context) : context_(context), output_(context.print().Open()) {}
  ~LaunchServices() override { context_.print().Close(*output_); }

  void Print(std::string_view text) override { context_.print().Append(*output_, text); }
  uint64_t Malloc(uint64_t bytes) override { return context_.heap().Malloc(bytes); }
  void Free(uint64_t address) override { context_.heap().Free(address); }
  bool SetCondition(uint64_t handle, uint32_t value) override {
    return Condition::Set(context_.handle(), handle, value);
  }
  const exec::TextureView* FindTexture(uint64_t handle) override {
    return State::Get()->memory().textures().Find(handle, context_.handle(), false);
  }
  const exec::TextureView* FindSurface(uint64_t handle) override {
    return State::Get()->memory().textures().Find(handle, context_.handle(), true);
  }

 private:
  Context& context_;
  const std::shared_ptr<PrintFifo::Buffer> output_;
};

// Device memory for the barrier of a cooperative grid; 0 when there is none left.
CUdeviceptr TakeWorkspace(Context& context) {
  CUdeviceptr address = 0;
  MemoryManager& memory = State::Get()->memory().manager();
  if (memory.AllocateDevice(context.handle(), kGridSyncBytes, BlockKind::kModule, &address) != CUDA_SUCCESS)
    return 0;
  const uint32_t header[2] = {kGridSyncBytes, 0};
  std::memcpy(reinterpret_cast<void*>(address), header, sizeof header);
  return address;
}

uint64_t NextGridId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

void EndLaunch(Context& context, const OpPtr& op, CUdeviceptr workspace, const exec::Fault& fault) {
  // Cannot fail: the block is this launch's own.
  if (workspace != 0) static_cast<void>(State::Get()->memory().manager().Free(workspace, BlockKind::kModule));
  CUresult error = ErrorOf(fault.kind);
  if (error != CUDA_SUCCESS) {
    if (context.error() == CUDA_SUCCESS) {
      stasis::RawLog(stasis::LogLevel::kWarning, "kernel failed: %s", fault.message.c_str());
    }
    context.Break(error);
  }
  op->Complete();
}

CUresult CheckCluster(const Function& function, const LaunchShape& shape) {
  uint64_t size = Volume(shape.cluster);
  if (size == 1) return CUDA_SUCCESS;
  if (size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (shape.grid.x % shape.cluster.x != 0 || shape.grid.y % shape.cluster.y != 0 ||
      shape.grid.z % shape.cluster.z != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned most = function.settings().non_portable_cluster.load() != 0 ? kLargestCluster : kPortableCluster;
  return size <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

bool MatchesRequired(const exec::KernelInfo& info, const exec::Dim3& block) {
  if (info.reqntid[0] == 0) return true;
  return block.x == info.reqntid[0] && block.y == std::max(1u, info.reqntid[1]) &&
         block.z == std::max(1u, info.reqntid[2]);
}

bool IsNative(const exec::KernelInfo& info) {
  return std::find(info.pragmas.begin(), info.pragmas.end(), native::kPragma) != info.pragmas.end();
}

}  // namespace

unsigned BlocksPerSm(const exec::KernelInfo& info, unsigned threads, size_t dynamic_shared) {
  if (threads == 0 || threads > kMaxBlockThreads) return 0;
  unsigned warps = (threads + kWarp - 1) / kWarp;
  unsigned blocks = std::min(kMaxBlocksPerSm, kMaxThreadsPerSm / (warps * kWarp));
  // Registers are given out to warps in units of 256.
  unsigned per_warp = (std::max(info.registers, 16u) * kWarp + 255) / 256 * 256;
  blocks = std::min(blocks, kRegistersPerSm / (per_warp * warps));
  size_t shared = info.static_shared + dynamic_shared;
  if (shared > kLargestShared) return 0;
  size_t shared_units = (shared + kReservedShared + 127) / 128 * 128;
  return std::min(blocks, static_cast<unsigned>(kSharedPerSm / shared_units));
}

CUresult CheckShape(const Function& function, const LaunchShape& shape) {
  const exec::KernelInfo& info = function.info();
  if (!Fits(shape.grid, kMaxGrid) || !Fits(shape.block, kMaxBlock)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t threads = Volume(shape.block);
  if (threads > kMaxBlockThreads) return CUDA_ERROR_INVALID_VALUE;
  if (!MatchesRequired(info, shape.block)) return CUDA_ERROR_INVALID_VALUE;
  if (threads > info.max_threads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  int dynamic = 0;
  static_cast<void>(GetAttribute(info, *function.program(), function.settings(),
                                 CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &dynamic));
  if (shape.dynamic_shared > static_cast<unsigned>(dynamic)) return CUDA_ERROR_INVALID_VALUE;
  unsigned per_sm = BlocksPerSm(info, static_cast<unsigned>(threads), shape.dynamic_shared);
  if (per_sm == 0) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (shape.cooperative &&
      Volume(shape.grid) > uint64_t{per_sm} * function.context().device().info().sm_count) {
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  return CheckCluster(function, shape);
}

KernelAction::KernelAction(CUfunction handle, std::shared_ptr<Function> function, const LaunchShape& shape,
                           std::vector<uint8_t> params, std::vector<CUlaunchAttribute> attributes)
    : Action(CU_GRAPH_NODE_TYPE_KERNEL, IsNative(function->info()) ? Runs::kWorker : Runs::kDevice),
      function(std::move(function)),
      handle(handle),
      shape(shape),
      params(std::move(params)),
      attributes(std::move(attributes)) {
  for (const exec::ParamInfo& param : this->function->info().params) {
    pointers.push_back(const_cast<uint8_t*>(this->params.data()) + param.offset);
  }
}

void KernelAction::Begin(Context& context, const OpPtr& op) const {
  CUdeviceptr workspace = 0;
  if (shape.cooperative) {
    workspace = TakeWorkspace(context);
    if (workspace == 0) {
      context.Break(CUDA_ERROR_OUT_OF_MEMORY);
      return op->Complete();
    }
  }
  uint64_t blocks = Volume(shape.grid);
  auto services = std::make_shared<LaunchServices>(context);
  exec::LaunchConfig config;
  config.program = function->program();
  config.kernel = function->kernel();
  config.grid = shape.grid;
  config.block = shape.block;
  config.cluster = shape.cluster;
  config.dynamic_shared = shape.dynamic_shared;
  config.params = params;
  config.cooperative = shape.cooperative;
  config.grid_sync_workspace = workspace;
  config.workers = static_cast<unsigned>(std::min<uint64_t>(blocks, context.sms().width()));
  config.max_resident = kResidentBlocks;
  if (shape.cooperative)
    config.max_resident = static_cast<unsigned>((blocks + config.workers - 1) / config.workers);
  config.grid_id = NextGridId();
  config.clock_khz = context.device().info().clock_khz;
  config.access = State::Get()->memory().manager().access_map(context.ordinal());
  config.services = services.get();
  unsigned workers = config.workers;
  std::unique_ptr<exec::Grid> grid = exec::Grid::Create(std::move(config));
  context.sms().Submit(std::move(grid), workers, has_priority_ ? priority_ : op->priority(),
                       [&context, op, workspace, services](const exec::Fault& fault) {
                         EndLaunch(context, op, workspace, fault);
                       });
}

// Native code may block, as a worker may: it takes no thread and no time slice from what computes.
CUresult KernelAction::Run(Context& context) const { return RunNative(context, params); }

CUresult ResolveFunction(Context& context, CUfunction handle, std::shared_ptr<Function>* out) {
  State* state = State::Get();
  *out = state->functions.Find(handle);
  if (*out != nullptr) return CUDA_SUCCESS;
  std::shared_ptr<Kernel> kernel = state->kernels.Find(reinterpret_cast<CUkernel>(handle));
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return kernel->library()->FunctionFor(context, *kernel, out);
}

CUresult GatherParams(const exec::KernelInfo& info, void** kernel_params, void** extra,
                      std::vector<uint8_t>* out) {
  out->assign(info.param_bytes, 0);
  if (extra != nullptr) {
    if (kernel_params != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* buffer = nullptr;
    size_t size = 0;
    for (void** item = extra; *item != CU_LAUNCH_PARAM_END; item += 2) {
      if (*item == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = item[1];
      } else if (*item == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size = *static_cast<const size_t*>(item[1]);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    if (info.param_bytes == 0) return CUDA_SUCCESS;
    if (buffer == nullptr || size < info.param_bytes) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out->data(), buffer, info.param_bytes);
    return CUDA_SUCCESS;
  }
  if (info.params.empty()) return CUDA_SUCCESS;
  if (kernel_params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info.params.size(); i++) {
    if (kernel_params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(out->data() + info.params[i].offset, kernel_params[i], info.params[i].size);
  }
  return CUDA_SUCCESS;
}

void ApplySettings(const Function& function, LaunchShape* shape) {
  const FunctionSettings& settings = function.settings();
  auto at_least_one = [](const std::atomic<int>& value) {
    return static_cast<uint32_t>(std::max(1, value.load()));
  };
  shape->cluster = {at_least_one(settings.cluster_width), at_least_one(settings.cluster_height),
                    at_least_one(settings.cluster_depth)};
}

CUresult ReadAttributes(const Function&, const CUlaunchAttribute* attributes, unsigned count,
                        LaunchShape* shape, LaunchEffects* effects) {
  if (count != 0 && attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++) {
    const CUlaunchAttributeValue& value = attributes[i].value;
    switch (attributes[i].id) {
      case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape->cooperative = value.cooperative != 0;
        break;
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        shape->cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z};
        break;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        effects->has_priority = true;
        effects->priority = value.priority;
        break;
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        effects->events_after.push_back(value.programmaticEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        effects->events_after.push_back(value.launchCompletionEvent.event);
        break;
      case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        if (value.deviceUpdatableKernelNode.deviceUpdatable != 0) return CUDA_ERROR_NOT_SUPPORTED;
        break;
      // Hints about caches, scheduling and overlap: none of them changes what a program may observe here.
      case CU_LAUNCH_ATTRIBUTE_IGNORE:
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

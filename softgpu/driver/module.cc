#include "softgpu/driver/module.h"

#include <cstring>
#include <utility>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/library.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {

namespace {

constexpr int kCacheModeCa = 1;

int MaxDynamicShared(const exec::KernelInfo& info, const FunctionSettings& settings) {
  int set = settings.max_dynamic_shared.load();
  return set >= 0 ? set : static_cast<int>(kDefaultShared - std::min(kDefaultShared, info.static_shared));
}

CUresult Store(std::atomic<int>* setting, int value, int least, int most) {
  if (value < least || value > most) return CUDA_ERROR_INVALID_VALUE;
  setting->store(value);
  return CUDA_SUCCESS;
}

}  // namespace

Function::Function(Context* context, Module* module, std::shared_ptr<exec::Program> program,
                   const exec::Kernel* kernel, std::shared_ptr<FunctionSettings> settings)
    : context_(context),
      module_(module),
      program_(std::move(program)),
      kernel_(kernel),
      settings_(settings != nullptr ? std::move(settings) : std::make_shared<FunctionSettings>()) {}

CUresult GetAttribute(const exec::KernelInfo& info, const exec::Program& program,
                      const FunctionSettings& settings, CUfunction_attribute attribute, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(info.max_threads);
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.static_shared);
      break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: {
      uint64_t bytes = 0;
      for (const exec::GlobalInfo& global : program.globals()) bytes += global.constant ? global.size : 0;
      *value = static_cast<int>(bytes);
      break;
    }
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = static_cast<int>(info.registers);
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      // Both are compute capabilities: of the PTX, and of the device it was compiled for, which is the PTX's
      // here.
      *value = program.target_sm();
      break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = kCacheModeCa;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = MaxDynamicShared(info, settings);
      break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = settings.carveout.load();
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      *value = 0;
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      *value = settings.cluster_width.load();
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      *value = settings.cluster_height.load();
      break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      *value = settings.cluster_depth.load();
      break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      *value = settings.non_portable_cluster.load();
      break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      *value = settings.cluster_policy.load();
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult SetAttribute(const exec::KernelInfo& info, FunctionSettings& settings,
                      CUfunction_attribute attribute, int value) {
  constexpr int kLargestCluster = 16;
  switch (static_cast<int>(attribute)) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      return Store(&settings.max_dynamic_shared, value, 0,
                   static_cast<int>(kLargestShared - info.static_shared));
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return Store(&settings.carveout, value, -1, 100);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      return Store(&settings.cluster_width, value, 0, kLargestCluster);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      return Store(&settings.cluster_height, value, 0, kLargestCluster);
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      return Store(&settings.cluster_depth, value, 0, kLargestCluster);
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      return Store(&settings.non_portable_cluster, value, 0, 1);
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return Store(&settings.cluster_policy, value, 0, 2);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

Module::Module(Context* context, std::shared_ptr<exec::Program> program, Library* library)
    : context_(context), program_(std::move(program)), library_(library) {}
Module::~Module() = default;

CUresult Module::Create(Context& context, std::shared_ptr<exec::Program> program, Library* library,
                        CUdeviceptr managed_base, std::shared_ptr<Module>* out) {
  auto module = std::make_shared<Module>(&context, std::move(program), library);
  CUresult bound = module->Bind(managed_base);
  if (bound != CUDA_SUCCESS) {
    module->FreeMemory();
    return bound;
  }
  for (const exec::Kernel* kernel : module->program_->kernels()) {
    std::shared_ptr<FunctionSettings> settings =
        library != nullptr ? library->SettingsOf(exec::InfoOf(*kernel).name, context.ordinal()) : nullptr;
    module->functions_.push_back(
        std::make_shared<Function>(&context, module.get(), module->program_, kernel, std::move(settings)));
  }
  *out = std::move(module);
  return CUDA_SUCCESS;
}

CUresult Module::Bind(CUdeviceptr managed_base) {
  MemoryManager& memory = State::Get()->memory().manager();
  if (uint64_t bytes = program_->device_bytes()) {
    CUresult result = memory.AllocateDevice(context_->handle(), bytes, BlockKind::kModule, &device_base_);
    if (result != CUDA_SUCCESS) return result;
  }
  managed_base_ = managed_base;
  uint64_t managed = program_->managed_bytes();
  if (managed != 0 && managed_base_ == 0) {
    CUresult result = memory.AllocateManaged(context_->handle(), context_->ordinal(), managed,
                                             CU_MEM_ATTACH_GLOBAL, &managed_base_, /*of_module=*/true);
    if (result != CUDA_SUCCESS) return result;
    owns_managed_ = true;
  }
  // A library's managed variables exist once in the process; binding it for one more context must not reset
  // them.
  std::vector<std::byte> kept;
  if (managed != 0 && !owns_managed_) {
    kept.resize(managed);
    std::memcpy(kept.data(), reinterpret_cast<void*>(managed_base_), managed);
  }
  stasis::Status bound = program_->Bind(device_base_, managed_base_);
  if (!kept.empty()) std::memcpy(reinterpret_cast<void*>(managed_base_), kept.data(), managed);
  return bound.ok() ? CUDA_SUCCESS : FromStatus(bound);
}

void Module::FreeMemory() {
  MemoryManager& memory = State::Get()->memory().manager();
  // Neither can fail: the blocks are this module's own. After the end of the context they are gone already.
  if (device_base_ != 0) static_cast<void>(memory.Free(device_base_, BlockKind::kModule));
  if (owns_managed_) static_cast<void>(memory.Free(managed_base_, BlockKind::kManaged));
  device_base_ = managed_base_ = 0;
  owns_managed_ = false;
}

std::shared_ptr<Function> Module::Find(std::string_view name) const {
  for (const std::shared_ptr<Function>& function : functions_) {
    if (function->info().name == name) return function;
  }
  return nullptr;
}

bool Module::FindGlobal(std::string_view name, CUdeviceptr* address, size_t* bytes) const {
  const exec::GlobalInfo* global = program_->FindGlobal(name);
  if (global == nullptr) return false;
  if (address != nullptr) *address = (global->managed ? managed_base_ : device_base_) + global->offset;
  if (bytes != nullptr) *bytes = global->size;
  return true;
}

void Publish(const std::shared_ptr<Module>& module) {
  State* state = State::Get();
  for (const std::shared_ptr<Function>& function : module->functions()) state->functions.Add(function);
  state->modules.Add(module);
}

void Withdraw(Module& module) {
  State* state = State::Get();
  for (const std::shared_ptr<Function>& function : module.functions())
    state->functions.Remove(function->handle());
  state->modules.Remove(module.handle());
}

}  // namespace softgpu

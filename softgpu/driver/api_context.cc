// Contexts: primary ones, those a program creates, the thread's stack, limits and flags.
#include <algorithm>

#include "softgpu/driver/device_heap.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

using softgpu::Context;
using softgpu::Device;
using softgpu::Entry;
using softgpu::Need;
using softgpu::State;

namespace {

constexpr unsigned kApiVersion = 3020;
constexpr int kLeastPriority = 0, kGreatestPriority = -5;
constexpr size_t kLargestStack = 512 << 10;

bool ValidFlags(unsigned flags) {
  if ((flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) != 0) return false;
  unsigned sched = flags & CU_CTX_SCHED_MASK;
  return sched == CU_CTX_SCHED_AUTO || sched == CU_CTX_SCHED_SPIN || sched == CU_CTX_SCHED_YIELD ||
         sched == CU_CTX_SCHED_BLOCKING_SYNC;
}

CUresult CreateContext(CUcontext* out, unsigned flags, CUdevice ordinal) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (out == nullptr || !ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  Device* device = entry.state().FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto handle = std::make_unique<CUctx_st>(CUctx_st{device->ordinal(), false});
  std::shared_ptr<Context> context;
  CUresult result = entry.state().CreateContext(*device, handle.get(), flags, kApiVersion, &context);
  if (result != CUDA_SUCCESS) return result;
  context->OwnHandle(std::move(handle));
  entry.thread().stack.push_back(context->handle());
  *out = context->handle();
  return CUDA_SUCCESS;
}

CUresult DestroyContext(CUcontext handle) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context = entry.state().FindContext(handle);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  // Popped from this thread; threads that still have it current get CONTEXT_IS_DESTROYED.
  if (!entry.thread().stack.empty() && entry.thread().stack.back() == handle) entry.thread().stack.pop_back();
  entry.state().DestroyContext(context, false);
  return CUDA_SUCCESS;
}

// The context that a handle names, or the current one for a null handle.
CUresult NamedContext(Entry& entry, CUcontext handle, std::shared_ptr<Context>* out) {
  if (handle == nullptr && entry.thread().stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *out = entry.state().FindContext(handle != nullptr ? handle : entry.thread().stack.back());
  if (*out != nullptr) return CUDA_SUCCESS;
  return handle != nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult ReleasePrimary(CUdevice ordinal, bool reset) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  Device* device = entry.state().FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Device::Primary& primary = device->primary();
  std::lock_guard lock(primary.mutex);
  if (!reset) {
    if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--primary.references > 0) return CUDA_SUCCESS;
  }
  if (primary.context == nullptr) return CUDA_SUCCESS;
  entry.state().DestroyContext(primary.context, false);
  primary.context.reset();
  primary.references = 0;
  return CUDA_SUCCESS;
}

CUresult SetPrimaryFlags(CUdevice ordinal, unsigned flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  Device* device = entry.state().FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->primary().mutex);
  device->primary().flags = flags;
  if (device->primary().context != nullptr) device->primary().context->flags() = flags;
  return CUDA_SUCCESS;
}

CUresult SetLimit(Context& context, CUlimit limit, size_t value) {
  std::lock_guard lock(context.settings_mutex());
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE:
      if (value > kLargestStack) return CUDA_ERROR_INVALID_VALUE;
      context.limits.stack_size = (value + 15) / 16 * 16;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      context.limits.printf_fifo_size = value;
      context.print().SetCapacity(value);
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      // "must be set before any kernel that uses the heap is launched, otherwise CUDA_ERROR_INVALID_VALUE"
      // (cuda.h).
      if (context.heap().in_use()) return CUDA_ERROR_INVALID_VALUE;
      context.limits.malloc_heap_size = std::max<size_t>(value, 4096);
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      if (value > 128) return CUDA_ERROR_INVALID_VALUE;
      context.limits.l2_fetch_granularity = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      context.limits.pending_launches = value;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult GetLimit(Context& context, CUlimit limit, size_t* value) {
  std::lock_guard lock(context.settings_mutex());
  switch (static_cast<int>(limit)) {
    case CU_LIMIT_STACK_SIZE:
      *value = context.limits.stack_size;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = context.limits.printf_fifo_size;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = context.limits.malloc_heap_size;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      *value = context.limits.pending_launches;
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      *value = context.limits.l2_fetch_granularity;
      return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Device* device = entry.state().FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  Device::Primary& primary = device->primary();
  std::lock_guard lock(primary.mutex);
  if (primary.context == nullptr) {
    CUresult result =
        entry.state().CreateContext(*device, primary.handle, primary.flags, kApiVersion, &primary.context);
    if (result != CUDA_SUCCESS) return result;
  }
  primary.references++;
  *pctx = primary.handle;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev) { return ReleasePrimary(dev, false); }
CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev) { return ReleasePrimary(dev, false); }
CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev) { return ReleasePrimary(dev, true); }
CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev) { return ReleasePrimary(dev, true); }
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return SetPrimaryFlags(dev, flags);
}
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return SetPrimaryFlags(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  Device* device = entry.state().FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(device->primary().mutex);
  *flags = device->primary().flags;
  *active = device->primary().context != nullptr;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return CreateContext(pctx, flags, dev);
}
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return CreateContext(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                                unsigned int flags, CUdevice dev) {
  static_cast<void>(paramsArray);
  if (numParams != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return CreateContext(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                                CUdevice dev) {
  if (ctxCreateParams != nullptr && ctxCreateParams->numExecAffinityParams != 0) {
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  }
  if (ctxCreateParams != nullptr && ctxCreateParams->cigParams != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return CreateContext(pctx, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext ctx) { return DestroyContext(ctx); }
CUresult CUDAAPI cuCtxDestroy(CUcontext ctx) { return DestroyContext(ctx); }

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext ctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (ctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (entry.state().FindContext(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  entry.thread().stack.push_back(ctx);
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* pctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (entry.thread().stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = entry.thread().stack.back();
  entry.thread().stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }

// Replaces the top of the stack; null empties it by one (cuda.h).
CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (ctx != nullptr && entry.state().FindContext(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<CUcontext>& stack = entry.thread().stack;
  if (!stack.empty()) stack.pop_back();
  if (ctx != nullptr) stack.push_back(ctx);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* pctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = entry.thread().stack.empty() ? nullptr : entry.thread().stack.back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  CUresult result = NamedContext(entry, ctx, &context);
  if (result == CUDA_SUCCESS) *device = context->ordinal();
  return result;
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) { return cuCtxGetDevice_v2(device, nullptr); }

CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
  Entry entry(Need::kAnyContext);
  if (!entry.ok()) return entry.result();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = entry.context().flags().load();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (!ValidFlags(flags)) return CUDA_ERROR_INVALID_VALUE;
  entry.context().flags().store(flags);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  CUresult result = NamedContext(entry, ctx, &context);
  if (result == CUDA_SUCCESS) *ctxId = context->id();
  return result;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  CUresult result = NamedContext(entry, ctx, &context);
  if (result == CUDA_SUCCESS) *version = context->api_version();
  return result;
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Context> context;
  CUresult result = NamedContext(entry, ctx, &context);
  return result == CUDA_SUCCESS ? context->Synchronize() : result;
}
CUresult CUDAAPI cuCtxSynchronize(void) { return cuCtxSynchronize_v2(nullptr); }

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value) {
  Entry entry;
  return entry.ok() ? SetLimit(entry.context(), limit, value) : entry.result();
}

CUresult CUDAAPI cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  return pvalue != nullptr ? GetLimit(entry.context(), limit, pvalue) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pconfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(entry.context().settings_mutex());
  *pconfig = entry.context().cache_config;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL)
    return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(entry.context().settings_mutex());
  entry.context().cache_config = config;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig* pConfig) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pConfig == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(entry.context().settings_mutex());
  *pConfig = entry.context().shared_config;
  return CUDA_SUCCESS;
}

// The size of banks is fixed on all recent devices; the setting is taken and changes nothing.
CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE || config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (leastPriority != nullptr) *leastPriority = kLeastPriority;
  if (greatestPriority != nullptr) *greatestPriority = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void) {
  Entry entry;
  return entry.result();
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam* pExecAffinity, CUexecAffinityType type) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pExecAffinity == nullptr || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT) return CUDA_ERROR_INVALID_VALUE;
  pExecAffinity->type = type;
  pExecAffinity->param.smCount.val = entry.context().device().info().sm_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDetach(CUcontext ctx) { return DestroyContext(ctx); }

}  // extern "C"

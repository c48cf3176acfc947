// Contexts: which there are, and which is current in each thread.
#include "base/raw_log.h"
#include "intercept/capture_streams.h"
#include "intercept/gate.h"
#include "intercept/libraries/handle_library.h"
#include "intercept/taint.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/context_record.h"
#include "replay/graph_records.h"
#include "vmm/memory.h"
#include "vmm/stand_in.h"

namespace stasis::hooks {
namespace {

using replay::ContextRecord;
using replay::CreatedContext;
using replay::FindAs;

std::vector<CUcontext>& Stack() { return CurrentThreadObjects().context_stack; }

// What the driver does with the stack in cuCtxSetCurrent: the top is replaced, by nothing if need be.
void ReplaceTop(CUcontext visible) {
  if (!Stack().empty()) Stack().pop_back();
  if (visible != nullptr) Stack().push_back(visible);
}

// What was in the context is gone as well.
void Gone(CUcontext visible) {
  vmm::Memory::Get().ContextGone(visible);
  replay::DropGraphsOfContext(visible);
  CaptureContextGone(visible);
  libraries::ContextGone(visible);
}

// The first use of a device that the program saw at its start, and that has not come along to where it is
// now.
bool IsNotHere(CUdevice device, const char* call) {
  if (!DeviceMapActive() || !IsStandIn(device)) return false;
  RawLog(LogLevel::kError,
         "%s: device %d of this program is not here: there are fewer devices than at its start", call,
         device);
  return true;
}

CUresult Retain(const Call& call, CUcontext* context, CUdevice device) {
  if (IsNotHere(device, "cuDevicePrimaryCtxRetain")) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const CUresult result = call.Real<decltype(&::cuDevicePrimaryCtxRetain)>()(context, PhysicalDevice(device));
  if (result != CUDA_SUCCESS) return result;
  *context = replay::PrimaryRetained(device, *context);
  MarkDeviceUsed(device);
  return result;
}

CUresult Release(const Call& call, CUdevice device) {
  const CUresult result = call.Real<decltype(&::cuDevicePrimaryCtxRelease_v2)>()(PhysicalDevice(device));
  if (result != CUDA_SUCCESS) return result;
  if (CUcontext gone = replay::PrimaryReleased(device)) Gone(gone);
  return result;
}

CUresult Reset(const Call& call, CUdevice device) {
  const CUresult result = call.Real<decltype(&::cuDevicePrimaryCtxReset_v2)>()(PhysicalDevice(device));
  if (result != CUDA_SUCCESS) return result;
  if (CUcontext gone = replay::PrimaryReset(device)) Gone(gone);
  return result;
}

CUresult SetPrimaryFlags(const Call& call, CUdevice device, unsigned flags) {
  const CUresult result =
      call.Real<decltype(&::cuDevicePrimaryCtxSetFlags_v2)>()(PhysicalDevice(device), flags);
  if (result == CUDA_SUCCESS) replay::PrimaryFlagsSet(device, flags);
  return result;
}

void Created(const Call& call, CUcontext* context, unsigned flags, CUdevice device) {
  replay::AddRecord(std::make_shared<CreatedContext>(device, call.fn, flags), context);
  Stack().push_back(*context);
  MarkDeviceUsed(device);
}

CUresult Create(const Call& call, CUcontext* context, unsigned flags, CUdevice device) {
  if (IsNotHere(device, "cuCtxCreate")) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const CUresult result = call.Real<decltype(&::cuCtxCreate_v2)>()(context, flags, PhysicalDevice(device));
  if (result == CUDA_SUCCESS) Created(call, context, flags, device);
  return result;
}

CUresult Destroy(const Call& call, CUcontext context) {
  const auto record = FindAs<CreatedContext>(context);
  const CUresult result = call.Real<decltype(&::cuCtxDestroy_v2)>()(replay::ToReal(context));
  if (result != CUDA_SUCCESS) return result;
  if (!Stack().empty() && Stack().back() == context) Stack().pop_back();
  if (record != nullptr) replay::ObjectTable::Get().Remove(record);
  Gone(context);
  return result;
}

CUresult Push(const Call& call, CUcontext context) {
  const CUresult result = call.Real<decltype(&::cuCtxPushCurrent_v2)>()(replay::ToReal(context));
  if (result == CUDA_SUCCESS) Stack().push_back(context);
  return result;
}

CUresult Pop(const Call& call, CUcontext* context) {
  const CUresult result = call.Real<decltype(&::cuCtxPopCurrent_v2)>()(context);
  ReturnHandle(result, context);
  if (result == CUDA_SUCCESS && !Stack().empty()) Stack().pop_back();
  return result;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(const Call& call, CUcontext* pctx, CUdevice dev) {
  return Retain(call, pctx, dev);
}
CUresult cuDevicePrimaryCtxRelease(const Call& call, CUdevice dev) { return Release(call, dev); }
CUresult cuDevicePrimaryCtxRelease_v2(const Call& call, CUdevice dev) { return Release(call, dev); }
CUresult cuDevicePrimaryCtxReset(const Call& call, CUdevice dev) { return Reset(call, dev); }
CUresult cuDevicePrimaryCtxReset_v2(const Call& call, CUdevice dev) { return Reset(call, dev); }
CUresult cuDevicePrimaryCtxSetFlags(const Call& call, CUdevice dev, unsigned int flags) {
  return SetPrimaryFlags(call, dev, flags);
}
CUresult cuDevicePrimaryCtxSetFlags_v2(const Call& call, CUdevice dev, unsigned int flags) {
  return SetPrimaryFlags(call, dev, flags);
}

CUresult cuCtxCreate(const Call& call, CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return Create(call, pctx, flags, dev);
}
CUresult cuCtxCreate_v2(const Call& call, CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return Create(call, pctx, flags, dev);
}

CUresult cuCtxCreate_v3(const Call& call, CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (IsNotHere(dev, "cuCtxCreate")) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const CUresult result =
      call.Real<decltype(&::cuCtxCreate_v3)>()(pctx, paramsArray, numParams, flags, PhysicalDevice(dev));
  if (result != CUDA_SUCCESS) return result;
  if (numParams != 0) TaintOnce(call.fn, false);
  Created(call, pctx, flags, dev);
  return result;
}

CUresult cuCtxCreate_v4(const Call& call, CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                        unsigned int flags, CUdevice dev) {
  if (IsNotHere(dev, "cuCtxCreate")) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  const CUresult result =
      call.Real<decltype(&::cuCtxCreate_v4)>()(pctx, ctxCreateParams, flags, PhysicalDevice(dev));
  if (result != CUDA_SUCCESS) return result;
  const bool plain = ctxCreateParams == nullptr ||
                     (ctxCreateParams->numExecAffinityParams == 0 && ctxCreateParams->cigParams == nullptr);
  if (!plain) TaintOnce(call.fn, false);
  Created(call, pctx, flags, dev);
  return result;
}

CUresult cuCtxDestroy(const Call& call, CUcontext ctx) { return Destroy(call, ctx); }
CUresult cuCtxDestroy_v2(const Call& call, CUcontext ctx) { return Destroy(call, ctx); }
CUresult cuCtxPushCurrent(const Call& call, CUcontext ctx) { return Push(call, ctx); }
CUresult cuCtxPushCurrent_v2(const Call& call, CUcontext ctx) { return Push(call, ctx); }
CUresult cuCtxPopCurrent(const Call& call, CUcontext* pctx) { return Pop(call, pctx); }
CUresult cuCtxPopCurrent_v2(const Call& call, CUcontext* pctx) { return Pop(call, pctx); }

CUresult cuCtxSetCurrent(const Call& call, CUcontext ctx) {
  const CUresult result = call.Real<decltype(&::cuCtxSetCurrent)>()(replay::ToReal(ctx));
  if (result == CUDA_SUCCESS) ReplaceTop(ctx);
  return result;
}

CUresult cuCtxGetId(const Call& call, CUcontext ctx, unsigned long long* ctxId) {
  const CUresult result = call.Real<decltype(&::cuCtxGetId)>()(replay::ToReal(ctx), ctxId);
  if (result != CUDA_SUCCESS || !replay::Translating()) return result;
  const replay::ContextPtr record =
      ctx != nullptr ? FindAs<ContextRecord>(ctx) : replay::CurrentContextRecord();
  const bool kept = record != nullptr && record->id() != 0;
  *ctxId = kept ? record->id() : replay::VisibleContextId(*ctxId);
  return result;
}

CUresult cuThreadExchangeStreamCaptureMode(const Call& call, CUstreamCaptureMode* mode) {
  const CUstreamCaptureMode wanted = mode != nullptr ? *mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
  const CUresult result = call.Real<decltype(&::cuThreadExchangeStreamCaptureMode)>()(mode);
  if (result == CUDA_SUCCESS) CurrentThreadObjects().capture_mode = wanted;
  return result;
}

}  // namespace stasis::hooks

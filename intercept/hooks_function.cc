// Functions: what the program sets about them. The driver takes a kernel wherever it takes a function.
#include "intercept/taint.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/code_record.h"

namespace stasis::hooks {
namespace {

using replay::FindAs;
using replay::FunctionRecord;
using replay::KernelRecord;

// The settings of a function, or of a kernel on the current device.
replay::FunctionSettings* SettingsOf(CUfunction function) {
  if (const auto record = FindAs<FunctionRecord>(function)) return &record->settings();
  const auto kernel = FindAs<KernelRecord>(function);
  const replay::ContextPtr context = replay::CurrentContextRecord();
  return kernel != nullptr && context != nullptr ? &kernel->settings(context->device()) : nullptr;
}

}  // namespace

CUresult cuFuncSetAttribute(const Call& call, CUfunction hfunc, CUfunction_attribute attrib, int value) {
  const CUresult result = call.Real<decltype(&::cuFuncSetAttribute)>()(replay::ToReal(hfunc), attrib, value);
  if (result != CUDA_SUCCESS) return result;
  if (replay::FunctionSettings* settings = SettingsOf(hfunc)) {
    settings->SetAttribute(attrib, value);
  } else {
    TaintOnce(call.fn, false);
  }
  return result;
}

CUresult cuFuncSetCacheConfig(const Call& call, CUfunction hfunc, CUfunc_cache config) {
  const CUresult result = call.Real<decltype(&::cuFuncSetCacheConfig)>()(replay::ToReal(hfunc), config);
  if (result != CUDA_SUCCESS) return result;
  if (replay::FunctionSettings* settings = SettingsOf(hfunc)) {
    settings->SetCacheConfig(config);
  } else {
    TaintOnce(call.fn, false);
  }
  return result;
}

CUresult cuFuncGetModule(const Call& call, CUmodule* hmod, CUfunction hfunc) {
  const CUresult result = call.Real<decltype(&::cuFuncGetModule)>()(hmod, replay::ToReal(hfunc));
  if (result != CUDA_SUCCESS) return result;
  if (const auto record = FindAs<FunctionRecord>(hfunc)) {
    record->ShowModule(hmod);
  } else if (const auto kernel = FindAs<KernelRecord>(hfunc)) {
    replay::ShowLibraryModule(kernel->library(), hmod);
  } else {
    ReturnHandle(result, hmod);
  }
  return result;
}

}  // namespace stasis::hooks

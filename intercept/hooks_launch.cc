// Launches whose parameters are structures with handles in them.
#include <vector>

#include "intercept/taint.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"

namespace stasis::hooks {
namespace {

std::vector<CUlaunchAttribute> RealAttributes(const CUlaunchConfig& config) {
  std::vector<CUlaunchAttribute> attributes(config.attrs, config.attrs + config.numAttrs);
  for (CUlaunchAttribute& attribute : attributes) {
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      CUevent& event = attribute.value.programmaticEvent.event;
      event = replay::ToReal(event);
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) {
      CUevent& event = attribute.value.launchCompletionEvent.event;
      event = replay::ToReal(event);
    }
  }
  return attributes;
}

// It returns a handle by which the device may change a graph's node behind our back.
bool MakesUpdatableNode(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE) return true;
  }
  return false;
}

CUresult LaunchTranslated(const Call& call, CUlaunchConfig config, CUfunction f, void** params,
                          void** extra) {
  std::vector<CUlaunchAttribute> attributes = RealAttributes(config);
  config.attrs = attributes.data();
  config.hStream = replay::ToReal(config.hStream);
  return call.Real<decltype(&::cuLaunchKernelEx)>()(&config, replay::ToReal(f), params, extra);
}

}  // namespace

CUresult cuLaunchKernelEx(const Call& call, const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  const bool readable = config != nullptr && (config->attrs != nullptr || config->numAttrs == 0);
  const bool updatable = readable && MakesUpdatableNode(*config);
  const CUresult result = readable && !updatable && replay::Translating()
                              ? LaunchTranslated(call, *config, f, kernelParams, extra)
                              : call.Real<decltype(&::cuLaunchKernelEx)>()(config, f, kernelParams, extra);
  if (updatable && result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuLaunchCooperativeKernelMultiDevice(const Call& call, CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int flags) {
  const auto real = call.Real<decltype(&::cuLaunchCooperativeKernelMultiDevice)>();
  if (!replay::Translating() || launchParamsList == nullptr) return real(launchParamsList, numDevices, flags);
  std::vector<CUDA_LAUNCH_PARAMS> launches(launchParamsList, launchParamsList + numDevices);
  for (CUDA_LAUNCH_PARAMS& launch : launches) {
    launch.function = replay::ToReal(launch.function);
    launch.hStream = replay::ToReal(launch.hStream);
  }
  return real(launches.data(), numDevices, flags);
}

}  // namespace stasis::hooks

// Launching kernels and host functions.
#include <utility>

#include "softgpu/driver/actions.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

using softgpu::Context;
using softgpu::Entry;
using softgpu::Event;
using softgpu::Function;
using softgpu::KernelAction;
using softgpu::LaunchEffects;
using softgpu::LaunchShape;
using softgpu::Stream;

namespace {

struct Request {
  CUfunction function;
  LaunchShape shape;
  CUstream stream;
  void** params;
  void** extra;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

CUresult RecordEvents(Context& context, Stream& stream, const std::vector<CUevent>& handles) {
  static_cast<void>(context);
  for (CUevent handle : handles) {
    std::shared_ptr<Event> event = softgpu::State::Get()->events.Find(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUresult recorded = event->RecordIn(stream, false);
    if (recorded != CUDA_SUCCESS) return recorded;
  }
  return CUDA_SUCCESS;
}

CUresult Launch(Entry& entry, const Request& request) {
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), request.stream, &result);
  if (stream == nullptr) return result;
  Context& context = stream->context();
  std::shared_ptr<Function> function;
  result = softgpu::ResolveFunction(context, request.function, &function);
  if (result != CUDA_SUCCESS) return result;
  if (&function->context() != &context) return CUDA_ERROR_INVALID_CONTEXT;
  LaunchShape shape = request.shape;
  LaunchEffects effects;
  softgpu::ApplySettings(*function, &shape);
  result = softgpu::ReadAttributes(*function, request.attributes, request.attribute_count, &shape, &effects);
  if (result == CUDA_SUCCESS) result = softgpu::CheckShape(*function, shape);
  std::vector<uint8_t> params;
  if (result == CUDA_SUCCESS) {
    result = softgpu::GatherParams(function->info(), request.params, request.extra, &params);
  }
  if (result != CUDA_SUCCESS) return result;
  // Output of earlier kernels is shown at launches too (CUDA C++ Programming Guide, "Formatted Output").
  context.print().Show();
  std::vector<CUlaunchAttribute> attributes(request.attributes, request.attributes + request.attribute_count);
  auto action = std::make_shared<KernelAction>(request.function, std::move(function), shape,
                                               std::move(params), std::move(attributes));
  if (effects.has_priority) action->SetPriority(effects.priority);
  result = stream->Submit(std::move(action));
  if (result == CUDA_SUCCESS) result = RecordEvents(context, *stream, effects.events_after);
  if (result == CUDA_SUCCESS && entry.state().settings().launch_blocking && stream->capture() == nullptr) {
    result = stream->Synchronize();
  }
  return result;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                void** kernelParams, void** extra) {
  Entry entry;
  Request request{f, {}, hStream, kernelParams, extra};
  request.shape.grid = {gridDimX, gridDimY, gridDimZ};
  request.shape.block = {blockDimX, blockDimY, blockDimZ};
  request.shape.dynamic_shared = sharedMemBytes;
  return Launch(entry, request);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                                  void** extra) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Request request{f, {}, config->hStream, kernelParams, extra, config->attrs, config->numAttrs};
  if (config->numAttrs != 0 && config->attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  request.shape.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  request.shape.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  request.shape.dynamic_shared = config->sharedMemBytes;
  return Launch(entry, request);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                           unsigned int gridDimZ, unsigned int blockDimX,
                                           unsigned int blockDimY, unsigned int blockDimZ,
                                           unsigned int sharedMemBytes, CUstream hStream,
                                           void** kernelParams) {
  Entry entry;
  Request request{f, {}, hStream, kernelParams, nullptr};
  request.shape.grid = {gridDimX, gridDimY, gridDimZ};
  request.shape.block = {blockDimX, blockDimY, blockDimZ};
  request.shape.dynamic_shared = sharedMemBytes;
  request.shape.cooperative = true;
  return Launch(entry, request);
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), hStream, &result);
  if (stream == nullptr) return result;
  return stream->Submit(std::make_shared<softgpu::HostAction>(CUDA_HOST_NODE_PARAMS{fn, userData}));
}

}  // extern "C"

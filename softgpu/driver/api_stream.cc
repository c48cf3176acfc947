// Streams: making and destroying, waiting, callbacks, attributes.
#include <algorithm>
#include <utility>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

using softgpu::CallbackScope;
using softgpu::Context;
using softgpu::Entry;
using softgpu::Stream;

namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

CUresult CreateStream(CUstream* out, unsigned flags, int priority) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (out == nullptr || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Stream::Kind kind = flags == CU_STREAM_NON_BLOCKING ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking;
  // Priorities out of range are moved into it (cuStreamCreateWithPriority).
  *out = entry.state().streams.Add(
      entry.context().CreateStream(kind, std::clamp(priority, kGreatestPriority, kLeastPriority)));
  return CUDA_SUCCESS;
}

CUresult DestroyStream(CUstream handle) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Stream> stream = entry.state().streams.Remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (std::shared_ptr<softgpu::Capture> capture = stream->capture()) {
    capture->Invalidate();
    capture->DropStream(stream.get());
  }
  stream->context().ForgetStream(stream.get());
  return CUDA_SUCCESS;
}

// Calls `answer` with the stream; the checks that all queries share.
template <typename Answer>
CUresult WithStream(CUstream handle, const void* out, Answer answer) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), handle, &result);
  return stream != nullptr ? answer(*stream) : result;
}

// A callback is called also when the context is broken, and is told so.
class CallbackAction final : public softgpu::Action {
 public:
  CallbackAction(CUstream stream, CUstreamCallback callback, void* data)
      : Action(CU_GRAPH_NODE_TYPE_HOST, Runs::kWorker), stream_(stream), callback_(callback), data_(data) {}
  CUresult Run(Context& context) const override {
    context.print().Show();
    Call(CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  void Skip(Context&, CUresult error) const override { Call(error); }

 private:
  void Call(CUresult status) const {
    CallbackScope scope;
    callback_(stream_, status, data_);
  }
  const CUstream stream_;
  const CUstreamCallback callback_;
  void* const data_;
};

CUresult CopyAttribute(CUstreamAttrID attribute, const CUstreamAttrValue& value, Stream::Attributes* to) {
  switch (static_cast<int>(attribute)) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      to->access_policy = value.accessPolicyWindow;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      to->sync_policy = value.syncPolicy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      to->mem_sync_map = value.memSyncDomainMap;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      to->mem_sync_domain = value.memSyncDomain;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return CreateStream(phStream, Flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return CreateStream(phStream, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream hStream) { return DestroyStream(hStream); }
CUresult CUDAAPI cuStreamDestroy(CUstream hStream) { return DestroyStream(hStream); }

CUresult CUDAAPI cuStreamSynchronize(CUstream hStream) {
  return WithStream(hStream, &hStream, [](Stream& stream) { return stream.Synchronize(); });
}

CUresult CUDAAPI cuStreamQuery(CUstream hStream) {
  return WithStream(hStream, &hStream, [](Stream& stream) { return stream.Query(); });
}

CUresult CUDAAPI cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                                     unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return WithStream(hStream, &callback, [&](Stream& stream) {
    if (std::shared_ptr<softgpu::Capture> capture = stream.capture()) {
      capture->Invalidate();
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream.Submit(std::make_shared<CallbackAction>(hStream, callback, userData));
  });
}

CUresult CUDAAPI cuStreamGetPriority(CUstream hStream, int* priority) {
  return WithStream(hStream, priority, [&](Stream& stream) {
    *priority = stream.priority();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return WithStream(hStream, device, [&](Stream& stream) {
    *device = stream.context().ordinal();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return WithStream(hStream, flags, [&](Stream& stream) {
    *flags = stream.kind() == Stream::Kind::kNonBlocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return WithStream(hStream, streamId, [&](Stream& stream) {
    *streamId = stream.id();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return WithStream(hStream, pctx, [&](Stream& stream) {
    *pctx = stream.context().handle();
    return CUDA_SUCCESS;
  });
}

// No stream belongs to a green context: there are none.
CUresult CUDAAPI cuStreamGetCtx_v2(CUstream hStream, CUcontext* pCtx, CUgreenCtx* pGreenCtx) {
  return WithStream(hStream, pCtx, [&](Stream& stream) {
    *pCtx = stream.context().handle();
    if (pGreenCtx != nullptr) *pGreenCtx = nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx* phCtx) {
  return WithStream(hStream, phCtx, [&](Stream&) {
    *phCtx = nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuStreamCopyAttributes(CUstream dst, CUstream src) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> from = softgpu::ResolveStream(entry.context(), src, &result);
  if (from == nullptr) return result;
  std::shared_ptr<Stream> to = softgpu::ResolveStream(entry.context(), dst, &result);
  if (to == nullptr) return result;
  to->set_attributes(from->attributes());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue* value_out) {
  return WithStream(hStream, value_out, [&](Stream& stream) {
    Stream::Attributes attributes = stream.attributes();
    switch (static_cast<int>(attr)) {
      case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value_out->accessPolicyWindow = attributes.access_policy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value_out->syncPolicy = attributes.sync_policy;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value_out->priority = stream.priority();
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value_out->memSyncDomainMap = attributes.mem_sync_map;
        return CUDA_SUCCESS;
      case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value_out->memSyncDomain = attributes.mem_sync_domain;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult CUDAAPI cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue* value) {
  return WithStream(hStream, value, [&](Stream& stream) {
    Stream::Attributes attributes = stream.attributes();
    CUresult result = CopyAttribute(attr, *value, &attributes);
    if (result == CUDA_SUCCESS) stream.set_attributes(attributes);
    return result;
  });
}

}  // extern "C"

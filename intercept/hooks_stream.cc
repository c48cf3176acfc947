// Streams.
#include "intercept/capture_streams.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/stream_record.h"

namespace stasis::hooks {
namespace {

using replay::FindAs;
using replay::StreamRecord;

CUresult Destroy(const Call& call, CUstream stream) {
  const auto record = FindAs<StreamRecord>(stream);
  const CUresult result = call.Real<decltype(&::cuStreamDestroy_v2)>()(replay::ToReal(stream));
  if (result != CUDA_SUCCESS) return result;
  if (record != nullptr) replay::ObjectTable::Get().Remove(record);
  CaptureStreamDestroyed(stream);
  return result;
}

// A callback is told the stream; the driver knows it by another name.
struct Callback {
  CUstreamCallback function;
  void* data;
  CUstream visible;
};

void CUDA_CB CallBack(CUstream, CUresult status, void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->function(callback->visible, status, callback->data);
}

}  // namespace

CUresult cuStreamCreate(const Call& call, CUstream* phStream, unsigned int Flags) {
  const CUresult result = call.Real<decltype(&::cuStreamCreate)>()(phStream, Flags);
  if (result == CUDA_SUCCESS) replay::AddRecord(replay::NewStreamRecord(), phStream);
  return result;
}

CUresult cuStreamCreateWithPriority(const Call& call, CUstream* phStream, unsigned int flags, int priority) {
  const CUresult result = call.Real<decltype(&::cuStreamCreateWithPriority)>()(phStream, flags, priority);
  if (result == CUDA_SUCCESS) replay::AddRecord(replay::NewStreamRecord(), phStream);
  return result;
}

CUresult cuStreamDestroy(const Call& call, CUstream hStream) { return Destroy(call, hStream); }
CUresult cuStreamDestroy_v2(const Call& call, CUstream hStream) { return Destroy(call, hStream); }

CUresult cuStreamGetId(const Call& call, CUstream hStream, unsigned long long* streamId) {
  const CUresult result = call.Real<decltype(&::cuStreamGetId)>()(replay::ToReal(hStream), streamId);
  if (result != CUDA_SUCCESS || !replay::Translating()) return result;
  const auto record = FindAs<StreamRecord>(hStream);
  const bool kept = record != nullptr && record->id() != 0;
  *streamId = kept ? record->id() : replay::VisibleStreamId(*streamId);
  return result;
}

CUresult cuStreamAddCallback(const Call& call, CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  const auto real = call.Real<decltype(&::cuStreamAddCallback)>();
  if (!replay::Translating() || callback == nullptr) return real(hStream, callback, userData, flags);
  auto kept = std::make_unique<Callback>(Callback{callback, userData, hStream});
  const CUresult result = real(replay::ToReal(hStream), CallBack, kept.get(), flags);
  if (result == CUDA_SUCCESS) static_cast<void>(kept.release());
  return result;
}

}  // namespace stasis::hooks

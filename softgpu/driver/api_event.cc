// Events.
#include "softgpu/driver/capture.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

using softgpu::Entry;
using softgpu::Event;
using softgpu::Stream;

namespace {

constexpr unsigned kEventFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

CUresult RecordEvent(CUevent handle, CUstream stream_handle, unsigned flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if ((flags & ~static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event> event = entry.state().events.Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), stream_handle, &result);
  if (stream == nullptr) return result;
  return event->RecordIn(*stream, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
}

CUresult DestroyEvent(CUevent handle) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  return entry.state().events.Remove(handle) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult ElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event> from = entry.state().events.Find(start), to = entry.state().events.Find(end);
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Event::Elapsed(*from, *to, milliseconds);
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (phEvent == nullptr || (Flags & ~kEventFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  bool shared = (Flags & CU_EVENT_INTERPROCESS) != 0;
  if (shared && (Flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<softgpu::SharedEvent> memory;
  if (shared) {
    stasis::Result<std::shared_ptr<softgpu::SharedEvent>> made = softgpu::SharedEvent::Create();
    if (!made.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
    memory = *std::move(made);
  }
  *phEvent = entry.state().events.Add(std::make_shared<Event>(&entry.context(), Flags, std::move(memory)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcGetEventHandle(CUipcEventHandle* pHandle, CUevent event) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Event> found = entry.state().events.Find(event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  bool given = pHandle != nullptr && found->shared() != nullptr && found->shared()->GetHandle(pHandle);
  return given ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuIpcOpenEventHandle(CUevent* phEvent, CUipcEventHandle handle) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<softgpu::SharedEvent> memory;
  CUresult opened = softgpu::SharedEvent::Open(handle, &memory);
  if (opened != CUDA_SUCCESS) return opened;
  unsigned flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  *phEvent = entry.state().events.Add(std::make_shared<Event>(&entry.context(), flags, std::move(memory)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent hEvent, CUstream hStream) { return RecordEvent(hEvent, hStream, 0); }

CUresult CUDAAPI cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  return RecordEvent(hEvent, hStream, flags);
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Event> event = entry.state().events.Find(hEvent);
  return event != nullptr ? event->Query() : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Event> event = entry.state().events.Find(hEvent);
  return event != nullptr ? event->Synchronize() : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent hEvent) { return DestroyEvent(hEvent); }
CUresult CUDAAPI cuEventDestroy(CUevent hEvent) { return DestroyEvent(hEvent); }

CUresult CUDAAPI cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return ElapsedTime(pMilliseconds, hStart, hEnd);
}
CUresult CUDAAPI cuEventElapsedTime(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return ElapsedTime(pMilliseconds, hStart, hEnd);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if ((Flags & ~static_cast<unsigned>(CU_EVENT_WAIT_EXTERNAL)) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), hStream, &result);
  if (stream == nullptr) return result;
  std::shared_ptr<Event> event = entry.state().events.Find(hEvent);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return event->MakeWait(*stream, (Flags & CU_EVENT_WAIT_EXTERNAL) != 0);
}

}  // extern "C"

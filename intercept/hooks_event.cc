// Events.
#include "intercept/taint.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/event_record.h"

namespace stasis::hooks {
namespace {

using replay::EventRecord;
using replay::FindAs;

CUresult Destroy(const Call& call, CUevent event) {
  const auto record = FindAs<EventRecord>(event);
  const CUresult result = call.Real<decltype(&::cuEventDestroy_v2)>()(replay::ToReal(event));
  if (result == CUDA_SUCCESS && record != nullptr) replay::ObjectTable::Get().Remove(record);
  return result;
}

// The driver below does not know of records made in an earlier one: it takes such an event for never
// recorded.
CUresult Elapsed(const Call& call, float* milliseconds, CUevent start, CUevent end) {
  const auto real = call.Real<decltype(&::cuEventElapsedTime_v2)>();
  const CUresult result = real(milliseconds, replay::ToReal(start), replay::ToReal(end));
  if (result != CUDA_ERROR_INVALID_HANDLE || !replay::Translating() || milliseconds == nullptr) return result;
  const auto from = FindAs<EventRecord>(start), to = FindAs<EventRecord>(end);
  if (from == nullptr || to == nullptr || !from->timed() || !to->timed()) return result;
  const std::optional<float> elapsed = replay::ElapsedOverRebuilds(*from, *to);
  if (!elapsed.has_value()) return result;
  *milliseconds = *elapsed;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuEventCreate(const Call& call, CUevent* phEvent, unsigned int Flags) {
  const CUresult result = call.Real<decltype(&::cuEventCreate)>()(phEvent, Flags);
  if (result == CUDA_SUCCESS)
    replay::AddRecord(std::make_shared<EventRecord>(replay::CurrentContextRecord(), Flags), phEvent);
  return result;
}

CUresult cuEventDestroy(const Call& call, CUevent hEvent) { return Destroy(call, hEvent); }
CUresult cuEventDestroy_v2(const Call& call, CUevent hEvent) { return Destroy(call, hEvent); }

CUresult cuEventElapsedTime(const Call& call, float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return Elapsed(call, pMilliseconds, hStart, hEnd);
}
CUresult cuEventElapsedTime_v2(const Call& call, float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  return Elapsed(call, pMilliseconds, hStart, hEnd);
}

}  // namespace stasis::hooks

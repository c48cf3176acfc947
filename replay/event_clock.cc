#include "replay/event_clock.h"

#include <algorithm>

#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

Result<CUevent> RecordNow() {
  CUevent event = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
  CUresult result = Driver().cuEventRecord(event, CU_STREAM_LEGACY);
  if (result == CUDA_SUCCESS) result = Driver().cuEventSynchronize(event);
  if (result == CUDA_SUCCESS) return event;
  (void)Driver().cuEventDestroy_v2(event);
  return DriverStatus(result, "record a reference event");
}

// From `from` to `to`; nothing when one of them was never recorded.
std::optional<double> Elapsed(CUevent from, CUevent to) {
  float milliseconds = 0;
  if (Driver().cuEventElapsedTime_v2(&milliseconds, from, to) != CUDA_SUCCESS) return std::nullopt;
  return milliseconds;
}

struct Recorded {
  size_t index;
  double before_pause;  // as exact as a float is over the whole distance
};

}  // namespace

Result<std::vector<std::optional<double>>> EventClock::PlaceAll(const std::vector<CUevent>& real) {
  std::vector<std::optional<double>> places(real.size());
  ASSIGN_OR_RETURN(const CUevent now, RecordNow());
  std::vector<Recorded> recorded;
  for (size_t i = 0; i < real.size(); ++i) {
    if (std::optional<double> distance = Elapsed(real[i], now)) recorded.push_back({i, *distance});
  }
  std::sort(recorded.begin(), recorded.end(),
            [](const Recorded& a, const Recorded& b) { return a.before_pause < b.before_pause; });
  if (reference_ != nullptr) pause_ = origin_ + Elapsed(reference_, now).value_or(0);
  // From the pause backwards in short steps: a float of milliseconds is coarse over hours.
  double position = pause_;
  CUevent later = now;
  for (const Recorded& event : recorded) {
    position -= Elapsed(real[event.index], later).value_or(0);
    places[event.index] = position;
    later = real[event.index];
  }
  (void)Driver().cuEventDestroy_v2(now);
  return places;
}

Status EventClock::Continue() {
  ASSIGN_OR_RETURN(reference_, RecordNow());
  origin_ = pause_;
  return {};
}

void EventClock::End() {
  if (reference_ != nullptr) (void)Driver().cuEventDestroy_v2(reference_);
  reference_ = nullptr;
}

std::optional<double> EventClock::Place(CUevent real) const {
  if (reference_ == nullptr) return std::nullopt;
  std::optional<double> since = Elapsed(reference_, real);
  if (since.has_value()) *since += origin_;
  return since;
}

}  // namespace stasis::replay

#include "replay/event_record.h"

#include <utility>
#include <vector>

#include "replay/current_context.h"
#include "replay/shared_events.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

EventRecord::EventRecord(ContextPtr context, unsigned flags)
    : Record(ObjectKind::kEvent,
             context == nullptr ? std::vector<RecordPtr>{} : std::vector<RecordPtr>{context}),
      context_(std::move(context)),
      flags_(flags) {}

Status EventRecord::Check() {
  if (context_ != nullptr && share_key_ == 0) return {};
  // A process cannot open the event that it has made again itself.
  for (const RecordPtr& other : ObjectTable::Get().InOrder(ObjectKind::kEvent)) {
    const auto& event = static_cast<const EventRecord&>(*other);
    if (share_key_ != 0 && &event != this && event.share_key_ == share_key_)
      return Errorf(StatusCode::kUnsupported, "cuIpcOpenEventHandle: %s is open twice", Name().c_str());
  }
  if (context_ != nullptr) return {};
  return Errorf(StatusCode::kUnsupported, "%s was created in a context that cannot be rebuilt",
                Name().c_str());
}

std::optional<double> EventRecord::Place() const {
  if (std::optional<double> recent = context_->events().Place(real_event())) return recent;
  return saved_place_;
}

Status EventRecord::Destroy() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  if (share_key_ != 0) SharedEvents::Get().Forget(share_key_);
  return DriverStatus(Driver().cuEventDestroy_v2(real_event()), "cuEventDestroy");
}

Result<uint64_t> EventRecord::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  CUevent event = nullptr;
  if (share_key_ != 0) {
    ASSIGN_OR_RETURN(event, RebuildShared());
  } else {
    RETURN_IF_ERROR(DriverStatus(Driver().cuEventCreate(&event, flags_), "cuEventCreate"));
  }
  return reinterpret_cast<uint64_t>(event);
}

Result<CUevent> EventRecord::RebuildShared() const {
  SharedEvents& shared = SharedEvents::Get();
  CUevent event = nullptr;
  std::optional<CUipcEventHandle> handle = shared.AskOthers(share_key_);
  if (handle.has_value()) {
    RETURN_IF_ERROR(DriverStatus(Driver().cuIpcOpenEventHandle(&event, *handle), "cuIpcOpenEventHandle"));
  } else {
    handle.emplace();
    RETURN_IF_ERROR(DriverStatus(Driver().cuEventCreate(&event, flags_), "cuEventCreate"));
    RETURN_IF_ERROR(DriverStatus(Driver().cuIpcGetEventHandle(&*handle, event), "cuIpcGetEventHandle"));
  }
  shared.Note(share_key_, *handle);
  return event;
}

Status SaveEventTimes(ContextRecord& context) {
  std::vector<std::shared_ptr<EventRecord>> records;
  std::vector<CUevent> events;
  for (const RecordPtr& record : ObjectTable::Get().InOrder(ObjectKind::kEvent)) {
    std::shared_ptr<EventRecord> event = std::static_pointer_cast<EventRecord>(record);
    if (event->context().get() != &context || !event->timed()) continue;
    events.push_back(event->real_event());
    records.push_back(std::move(event));
  }
  const CurrentContext current(context.real_context());
  RETURN_IF_ERROR(current.status());
  ASSIGN_OR_RETURN(const std::vector<std::optional<double>> places, context.events().PlaceAll(events));
  for (size_t i = 0; i < records.size(); ++i) {
    if (places[i].has_value()) records[i]->set_saved_place(places[i]);
  }
  return {};
}

std::optional<float> ElapsedOverRebuilds(const EventRecord& start, const EventRecord& end) {
  if (start.context() == nullptr || start.context() != end.context()) return std::nullopt;
  const std::optional<double> from = start.Place(), to = end.Place();
  if (!from.has_value() || !to.has_value()) return std::nullopt;
  return static_cast<float>(*to - *from);
}

}  // namespace stasis::replay

// Events, with the time at which they were recorded.
#ifndef REPLAY_EVENT_RECORD_H_
#define REPLAY_EVENT_RECORD_H_

#include <cuda.h>

#include <memory>
#include <optional>

#include "replay/context_record.h"
#include "replay/object_table.h"

namespace stasis::replay {

// All work is done when a task stands still, so an event is either complete or was never recorded, and the
// driver answers queries about both alike; only the time needs keeping.
class EventRecord final : public Record {
 public:
  EventRecord(ContextPtr context, unsigned flags);

  CUevent real_event() const { return reinterpret_cast<CUevent>(real()); }
  const ContextPtr& context() const { return context_; }
  bool timed() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }
  // On the context's axis; as of the last Save(), or later when it was recorded since. Nothing: never
  // recorded.
  std::optional<double> Place() const;

  Status Check() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void set_saved_place(std::optional<double> place) { saved_place_ = place; }

  // Of an event that other processes may have, see SharedEvents; 0: none. `opened`: one of them has made it.
  uint64_t share_key() const { return share_key_; }
  void set_share_key(uint64_t key) { share_key_ = key; }
  bool opened() const { return opened_; }
  void set_opened() { opened_ = true; }

 private:
  const ContextPtr context_;
  const unsigned flags_;
  std::optional<double> saved_place_;
  uint64_t share_key_ = 0;
  bool opened_ = false;

  Result<CUevent> RebuildShared() const;
};

// Part of Save(): finds the places of all timed events of the context.
Status SaveEventTimes(ContextRecord& context);
// What cuEventElapsedTime says of two events of which the driver knows at most one; nothing: never recorded.
std::optional<float> ElapsedOverRebuilds(const EventRecord& start, const EventRecord& end);

}  // namespace stasis::replay

#endif  // REPLAY_EVENT_RECORD_H_

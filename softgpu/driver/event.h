// Events: a point in the work of a stream.
#ifndef SOFTGPU_DRIVER_EVENT_H_
#define SOFTGPU_DRIVER_EVENT_H_

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "softgpu/driver/shared_event.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class Capture;
class Context;
class Node;
class Stream;

class Event : public std::enable_shared_from_this<Event> {
 public:
  // One recording. `ended_ns` is the device's time (CLOCK_MONOTONIC) when all earlier work had ended.
  struct Record {
    OpPtr op;
    std::atomic<int64_t> ended_ns{0};
  };

  // `shared` is null unless other processes may know it.
  Event(Context* context, unsigned flags, std::shared_ptr<SharedEvent> shared = nullptr)
      : context_(context), flags_(flags), shared_(std::move(shared)) {}

  Context& context() const { return *context_; }
  unsigned flags() const { return flags_; }
  bool timed() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }
  const SharedEvent* shared() const { return shared_.get(); }

  // Both follow the capture that the stream is part of. INVALID_HANDLE when the stream is of another context.
  CUresult RecordIn(Stream& stream, bool external);
  CUresult MakeWait(Stream& stream, bool external);
  // NOT_READY while the recorded work goes on; SUCCESS when nothing was recorded.
  CUresult Query() const;
  CUresult Synchronize() const;
  // Milliseconds from `start` to `end`.
  static CUresult Elapsed(const Event& start, const Event& end, float* milliseconds);

  // The work that the event stands for now; null when none was recorded.
  std::shared_ptr<Record> record() const;
  void set_record(std::shared_ptr<Record> record);

 private:
  CUresult CapturedState() const;
  CUresult RecordShared(Stream& stream);
  CUresult WaitForShared(Stream& stream) const;

  Context* const context_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable std::mutex mutex_;  // a leaf
  std::shared_ptr<Record> record_;
  // Set when the latest recording was made in a capture.
  std::shared_ptr<Capture> capture_;
  std::vector<Node*> captured_;
};

// Records `event` each time it runs (graph nodes); the event keeps living until then.
class EventRecordAction final : public Action {
 public:
  explicit EventRecordAction(std::shared_ptr<Event> event)
      : Action(CU_GRAPH_NODE_TYPE_EVENT_RECORD, Runs::kInline), event(std::move(event)) {}
  const std::shared_ptr<Event> event;
};

class EventWaitAction final : public Action {
 public:
  explicit EventWaitAction(std::shared_ptr<Event> event)
      : Action(CU_GRAPH_NODE_TYPE_WAIT_EVENT, Runs::kInline), event(std::move(event)) {}
  const std::shared_ptr<Event> event;
};

// Stamps a recording.
ActionPtr StampAction(std::shared_ptr<Event::Record> record);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_EVENT_H_

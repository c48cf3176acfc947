// Streams that tell what happens: Scheduler.Events. Each has only where it is: what has happened is kept by
// the core, once for all of them.
#ifndef SCHEDULER_DAEMON_EVENT_HUB_H_
#define SCHEDULER_DAEMON_EVENT_HUB_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <set>

#include "scheduler/daemon/core.h"

namespace stasis::scheduler {

class EventStream;

// Thread-safe.
class EventHub {
 public:
  // `core` outlives the object.
  explicit EventHub(SchedulerCore& core);
  // All streams must have ended: the server is gone.
  ~EventHub();
  EventHub(const EventHub&) = delete;
  EventHub& operator=(const EventHub&) = delete;

  // A stream for a request that was admitted; it belongs to gRPC.
  grpc::ServerWriteReactor<v1::ClusterEvent>* Open(const v1::EventsRequest& request);
  // Ends all streams, and those that are opened later at once, with UNAVAILABLE. Idempotent.
  void Stop();

 private:
  friend class EventStream;
  void Leave(EventStream* stream);
  void Tell();
  uint64_t StartOf(const v1::EventsRequest& request) const;

  SchedulerCore& core_;
  std::mutex mutex_;  // held while a stream is told something, so that it does not end meanwhile
  std::set<EventStream*> streams_;
  bool stopped_ = false;
  std::shared_ptr<void> subscription_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_EVENT_HUB_H_

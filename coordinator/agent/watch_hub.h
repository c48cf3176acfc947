// Streams that tell of jobs as they change: Agent.Watch. A client that reads slowly costs two pictures of
// each job at most, whatever happens meanwhile.
#ifndef COORDINATOR_AGENT_WATCH_HUB_H_
#define COORDINATOR_AGENT_WATCH_HUB_H_

#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "coordinator/agent/registry.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

class WatchStream;

// Hands changes of the registry on to the streams, from a thread of its own. Thread-safe.
class WatchHub {
 public:
  explicit WatchHub(Registry& registry);
  // All streams must have ended: the server is gone.
  ~WatchHub();
  WatchHub(const WatchHub&) = delete;
  WatchHub& operator=(const WatchHub&) = delete;

  // A stream for a request that was admitted; it belongs to gRPC.
  grpc::ServerWriteReactor<v1::WatchEvent>* Open(const v1::WatchRequest& request);
  size_t streams() const;
  // Ends all streams, and those that are opened later at once, with UNAVAILABLE. Idempotent.
  void Stop();

 private:
  friend class WatchStream;
  void Leave(WatchStream* stream);
  void Loop();
  void Tell(const JobPicture& job);
  std::vector<JobPicture> StartOf(uint64_t after, uint64_t revision, bool* complete) const;

  Registry& registry_;

  mutable std::mutex mutex_;  // held while a stream is told something, so that it does not end meanwhile
  std::set<WatchStream*> streams_;
  std::deque<JobPicture> gone_;  // the last jobs that were removed, ascending
  uint64_t gone_since_ = 0;      // all that were removed after this revision are in it
  bool stopped_ = false;

  std::mutex changes_mutex_;
  std::condition_variable more_;
  std::deque<JobPicture> changes_;
  bool ending_ = false;

  std::thread thread_;
  std::unique_ptr<Registry::Subscription> subscription_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_WATCH_HUB_H_

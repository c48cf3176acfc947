// Streams of what jobs print: Agent.Logs.
#ifndef COORDINATOR_AGENT_LOG_HUB_H_
#define COORDINATOR_AGENT_LOG_HUB_H_

#include <grpcpp/support/server_callback.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/status.h"
#include "base/worker_pool.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

class LogStream;

// Wakes the streams when a file has grown (inotify) or a job has ended (the registry); they read in `pool`.
// Thread-safe.
class LogHub {
 public:
  static Result<std::unique_ptr<LogHub>> Start(const Site& site, Registry& registry, WorkerPool& pool);
  // All streams must have ended: the server is gone.
  ~LogHub();
  LogHub(const LogHub&) = delete;
  LogHub& operator=(const LogHub&) = delete;

  // A stream for a request that was admitted; it belongs to gRPC.
  grpc::ServerWriteReactor<v1::LogChunk>* Open(const v1::LogsRequest& request,
                                               grpc::CallbackServerContext* context);
  // Ends all streams, and those that are opened later at once, with UNAVAILABLE. Idempotent.
  void Stop();

 private:
  friend class LogStream;
  LogHub(const Site& site, Registry& registry, WorkerPool& pool)
      : site_(site), registry_(registry), pool_(pool) {}
  void Follow(const std::string& path, const std::shared_ptr<LogStream>& stream);
  void Leave(LogStream* stream);
  void Loop();
  void TakeEvents();
  void JobChanged(const JobPicture& job);

  const Site site_;
  Registry& registry_;
  WorkerPool& pool_;
  Fd inotify_;
  Fd stop_;

  std::mutex mutex_;
  std::set<std::shared_ptr<LogStream>> streams_;
  std::map<int, std::set<LogStream*>> followers_;  // by inotify's watch
  bool stopped_ = false;

  std::thread thread_;
  std::unique_ptr<Registry::Subscription> subscription_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_LOG_HUB_H_

// What the agent counts, for Prometheus.
#ifndef COORDINATOR_AGENT_METRICS_H_
#define COORDINATOR_AGENT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "coordinator/agent/operations.h"
#include "coordinator/agent/registry.h"

namespace prometheus {
class Exposer;
}

namespace stasis {

// Thread-safe. No label holds the name of a job or of a client.
class Metrics final : public prometheus::Collectable {
 public:
  // What is looked up when somebody asks.
  struct Sources {
    const Registry* registry = nullptr;
    std::function<size_t()> watch_streams;
    std::function<uint64_t()> audit_dropped;
  };
  Metrics();
  ~Metrics() override;

  void SetSources(Sources sources);
  // A call has ended. `method`: "/stasis.v1.Agent/List".
  void CallEnded(const std::string& method, int grpc_code, double seconds);
  // A client was turned away before it could call.
  void TurnedAway();
  void OperationChanged(const v1::Operation& operation);

  // Serves what there is at `address` (host:port); returns it with the port that was taken where it says 0.
  // kAlreadyExists: somebody listens there.
  Result<std::string> Serve(const std::string& address);
  void Stop();

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  struct Call {
    std::map<int, prometheus::Counter*> ended;  // by code
    prometheus::Histogram* seconds = nullptr;
  };

  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Histogram>& call_seconds_;
  prometheus::Family<prometheus::Counter>& operations_;
  prometheus::Family<prometheus::Histogram>& operation_seconds_;
  prometheus::Counter& turned_away_;

  mutable std::mutex mutex_;
  Sources sources_;
  std::map<std::string, Call> known_;  // by method
  std::set<std::string> running_;      // operations
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_METRICS_H_

// What the agent counts, for Prometheus.
#ifndef COORDINATOR_AGENT_METRICS_H_
#define COORDINATOR_AGENT_METRICS_H_

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "coordinator/agent/operations.h"
#include "coordinator/agent/registry.h"
#include "proto/rpc/daemon_metrics.h"

namespace stasis {

// Thread-safe. No label holds the name of a job or of a client.
class Metrics final : public DaemonMetrics {
 public:
  // What is looked up when somebody asks.
  struct Sources {
    const Registry* registry = nullptr;
    std::function<size_t()> watch_streams;
    std::function<uint64_t()> audit_dropped;
  };
  Metrics();
  ~Metrics() override { Stop(); }

  void SetSources(Sources sources);
  void OperationChanged(const v1::Operation& operation);

 private:
  void CollectMore(std::vector<prometheus::MetricFamily>* families) const override;

  prometheus::Family<prometheus::Counter>& operations_;
  prometheus::Family<prometheus::Histogram>& operation_seconds_;

  mutable std::mutex mutex_;
  Sources sources_;
  std::set<std::string> running_;  // operations
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_METRICS_H_

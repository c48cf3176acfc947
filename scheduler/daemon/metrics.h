// What the scheduler counts, for Prometheus.
#ifndef SCHEDULER_DAEMON_METRICS_H_
#define SCHEDULER_DAEMON_METRICS_H_

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "proto/rpc/daemon_metrics.h"
#include "scheduler/daemon/core.h"

namespace stasis::scheduler {

// Thread-safe. No label holds the name of a job or of a client; tenants are few.
class SchedulerMetrics final : public DaemonMetrics {
 public:
  SchedulerMetrics();
  ~SchedulerMetrics() override { Stop(); }

  // What is looked at when somebody asks; outlives the time in which it is served.
  void SetCore(const SchedulerCore* core) { core_ = core; }
  // As SchedulerCore::Options has them.
  void Happens(const Cluster& before, const StoredFact& fact);
  void Decided(Duration took);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  void CollectMore(std::vector<prometheus::MetricFamily>* families) const override;
  void OrderEnds(const Order& order, const OrderEnded& fact, Time at);

  Counters& decided_;
  prometheus::Histogram& decision_seconds_;
  Counters& orders_;
  prometheus::Family<prometheus::Histogram>& order_seconds_;
  prometheus::Counter& lost_;
  prometheus::Counter& pause_timeouts_;
  prometheus::Counter& facts_;
  std::atomic<const SchedulerCore*> core_ = nullptr;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_METRICS_H_

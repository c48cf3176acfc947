// What every daemon with a gRPC service counts for Prometheus, and where that can be read.
#ifndef PROTO_RPC_DAEMON_METRICS_H_
#define PROTO_RPC_DAEMON_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"

namespace prometheus {
class Exposer;
}

namespace stasis {

// A family of gauges, and one value of it.
prometheus::MetricFamily MakeGauge(const char* name, const char* help);
void AddValue(prometheus::MetricFamily& family, double value,
              std::vector<prometheus::ClientMetric::Label> labels = {});

// Thread-safe. A class that adds its own calls Stop() in its destructor.
class DaemonMetrics : public prometheus::Collectable {
 public:
  DaemonMetrics();
  ~DaemonMetrics() override;
  DaemonMetrics(const DaemonMetrics&) = delete;
  DaemonMetrics& operator=(const DaemonMetrics&) = delete;

  // A call has ended. `method`: "/stasis.v1.Agent/List"; `seconds`: negative of a stream.
  void CallEnded(const std::string& method, int grpc_code, double seconds);
  // A client was turned away before it could call.
  void TurnedAway();

  // Serves what there is at `address` (host:port); returns it with the port that was taken where it says 0.
  // kAlreadyExists: somebody listens there.
  Result<std::string> Serve(const std::string& address);
  void Stop();

  // What is looked up when somebody asks, and what was counted.
  std::vector<prometheus::MetricFamily> Collect() const final;
  std::vector<prometheus::MetricFamily> Counted() const { return registry_->Collect(); }

 protected:
  // Adds what is looked up when somebody asks.
  virtual void CollectMore(std::vector<prometheus::MetricFamily>* families) const = 0;
  prometheus::Registry& registry() { return *registry_; }

 private:
  struct Call {
    std::map<int, prometheus::Counter*> ended;  // by code
    prometheus::Histogram* seconds = nullptr;
  };

  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& calls_;
  prometheus::Family<prometheus::Histogram>& call_seconds_;
  prometheus::Counter& turned_away_;

  std::mutex mutex_;
  std::map<std::string, Call> known_;  // by method
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace stasis

#endif  // PROTO_RPC_DAEMON_METRICS_H_

#include "coordinator/agent/metrics.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/agent/picture.h"

namespace stasis {
namespace {

using prometheus::Histogram;
using prometheus::MetricFamily;

const Histogram::BucketBoundaries kOperationSeconds = {0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800};

const char* StateName(v1::OperationState state) {
  switch (state) {
    case v1::OPERATION_STATE_SUCCEEDED:
      return "succeeded";
    case v1::OPERATION_STATE_FAILED:
      return "failed";
    case v1::OPERATION_STATE_CANCELLED:
      return "cancelled";
    default:
      return "";
  }
}

MetricFamily JobsGauge(const Registry& registry) {
  std::map<std::string, int> jobs;
  for (const JobPicture& job : registry.List()) jobs[ConditionName(job->condition())]++;
  MetricFamily family = MakeGauge("stasis_jobs", "Jobs on record, by condition.");
  for (const auto& [condition, count] : jobs) AddValue(family, count, {{"condition", condition}});
  return family;
}

}  // namespace

Metrics::Metrics()
    : operations_(prometheus::BuildCounter()
                      .Name("stasis_operations_total")
                      .Help("Operations that have ended, by verb and how.")
                      .Register(registry())),
      operation_seconds_(prometheus::BuildHistogram()
                             .Name("stasis_operation_seconds")
                             .Help("How long operations ran, by verb.")
                             .Register(registry())) {}

void Metrics::SetSources(Sources sources) {
  std::lock_guard lock(mutex_);
  sources_ = std::move(sources);
}

void Metrics::OperationChanged(const v1::Operation& operation) {
  const char* state = StateName(operation.state());
  std::lock_guard lock(mutex_);
  if (*state == '\0') {
    running_.insert(operation.id());
    return;
  }
  // An end that is told twice is counted once.
  if (running_.erase(operation.id()) == 0) return;
  operations_.Add({{"verb", operation.verb()}, {"state", state}}).Increment();
  if (operation.started_ms() == 0) return;
  double seconds = static_cast<double>(operation.ended_ms() - operation.started_ms()) / 1000;
  operation_seconds_.Add({{"verb", operation.verb()}}, kOperationSeconds).Observe(std::max(0.0, seconds));
}

void Metrics::CollectMore(std::vector<MetricFamily>* families) const {
  std::lock_guard lock(mutex_);
  families->push_back(MakeGauge("stasis_operations_running", "Operations that have not ended."));
  AddValue(families->back(), static_cast<double>(running_.size()));
  if (sources_.registry != nullptr) families->push_back(JobsGauge(*sources_.registry));
  if (sources_.watch_streams) {
    families->push_back(MakeGauge("stasis_watch_streams", "Streams of Agent.Watch that are open."));
    AddValue(families->back(), static_cast<double>(sources_.watch_streams()));
  }
  if (sources_.audit_dropped) {
    families->push_back(MakeGauge("stasis_audit_dropped", "Entries of the audit that are in the log only."));
    AddValue(families->back(), static_cast<double>(sources_.audit_dropped()));
  }
}

}  // namespace stasis

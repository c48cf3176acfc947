#include "coordinator/agent/metrics.h"

#include <grpcpp/support/status_code_enum.h>
#include <prometheus/exposer.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "base/files.h"
#include "coordinator/agent/picture.h"

namespace stasis {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;

const Histogram::BucketBoundaries kCallSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                  0.05,   0.1,   0.5,    1,     10};
const Histogram::BucketBoundaries kOperationSeconds = {0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800};

const char* CodeName(int code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code < static_cast<int>(std::size(kNames)) ? kNames[code] : "UNKNOWN";
}

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

MetricFamily Gauge(const char* name, const char* help) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Gauge;
  return family;
}

void Add(MetricFamily& family, double value, std::vector<ClientMetric::Label> labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

MetricFamily JobsGauge(const Registry& registry) {
  std::map<std::string, int> jobs;
  for (const JobPicture& job : registry.List()) jobs[ConditionName(job->condition())]++;
  MetricFamily family = Gauge("stasis_jobs", "Jobs on record, by condition.");
  for (const auto& [condition, count] : jobs) Add(family, count, {{"condition", condition}});
  return family;
}

double ResidentBytes() {
  Result<std::string> text = ReadFile("/proc/self/statm");
  unsigned long total = 0, resident = 0;
  if (!text.ok() || std::sscanf(text->c_str(), "%lu %lu", &total, &resident) != 2) return 0;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  Result<std::vector<std::string>> names = ListFolder("/proc/self/fd");
  return names.ok() ? static_cast<double>(names->size()) : 0;
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      calls_(prometheus::BuildCounter()
                 .Name("stasis_rpc_total")
                 .Help("Calls that have ended, by method and code.")
                 .Register(*registry_)),
      call_seconds_(prometheus::BuildHistogram()
                        .Name("stasis_rpc_seconds")
                        .Help("How long calls took that are answered at once, by method.")
                        .Register(*registry_)),
      operations_(prometheus::BuildCounter()
                      .Name("stasis_operations_total")
                      .Help("Operations that have ended, by verb and how.")
                      .Register(*registry_)),
      operation_seconds_(prometheus::BuildHistogram()
                             .Name("stasis_operation_seconds")
                             .Help("How long operations ran, by verb.")
                             .Register(*registry_)),
      turned_away_(prometheus::BuildCounter()
                       .Name("stasis_clients_turned_away_total")
                       .Help("Clients of this machine that were not let in.")
                       .Register(*registry_)
                       .Add({})) {}

Metrics::~Metrics() { Stop(); }

void Metrics::SetSources(Sources sources) {
  std::lock_guard lock(mutex_);
  sources_ = std::move(sources);
}

void Metrics::CallEnded(const std::string& method, int grpc_code, double seconds) {
  std::lock_guard lock(mutex_);
  Call& call = known_[method];
  prometheus::Counter*& ended = call.ended[grpc_code];
  if (ended == nullptr) ended = &calls_.Add({{"method", method}, {"code", CodeName(grpc_code)}});
  ended->Increment();
  if (seconds < 0) return;
  if (call.seconds == nullptr) call.seconds = &call_seconds_.Add({{"method", method}}, kCallSeconds);
  call.seconds->Observe(seconds);
}

void Metrics::TurnedAway() { turned_away_.Increment(); }

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

Result<std::string> Metrics::Serve(const std::string& address) {
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(address, 1);
    exposer_->RegisterCollectable(registry_);
    // The exposer asks whom it can still lock: this object ends with its registry, and ends the exposer
    // first.
    exposer_->RegisterCollectable(std::shared_ptr<prometheus::Collectable>(registry_, this));
  } catch (const std::exception& error) {
    exposer_.reset();
    return Status(StatusCode::kAlreadyExists, "cannot serve metrics at " + address + ": " + error.what());
  }
  std::vector<int> ports = exposer_->GetListeningPorts();
  std::string host = address.substr(0, address.rfind(':'));
  return ports.empty() ? address : host + ":" + std::to_string(ports[0]);
}

void Metrics::Stop() { exposer_.reset(); }

std::vector<MetricFamily> Metrics::Collect() const {
  std::vector<MetricFamily> families;
  families.push_back(Gauge("process_resident_memory_bytes", "Resident memory of the agent."));
  Add(families.back(), ResidentBytes());
  families.push_back(Gauge("process_open_fds", "Open file descriptors of the agent."));
  Add(families.back(), OpenDescriptors());
  std::lock_guard lock(mutex_);
  families.push_back(Gauge("stasis_operations_running", "Operations that have not ended."));
  Add(families.back(), static_cast<double>(running_.size()));
  if (sources_.registry != nullptr) families.push_back(JobsGauge(*sources_.registry));
  if (sources_.watch_streams) {
    families.push_back(Gauge("stasis_watch_streams", "Streams of Agent.Watch that are open."));
    Add(families.back(), static_cast<double>(sources_.watch_streams()));
  }
  if (sources_.audit_dropped) {
    families.push_back(Gauge("stasis_audit_dropped", "Entries of the audit that are in the log only."));
    Add(families.back(), static_cast<double>(sources_.audit_dropped()));
  }
  return families;
}

}  // namespace stasis

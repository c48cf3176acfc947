#include "proto/rpc/daemon_metrics.h"

#include <grpcpp/support/status_code_enum.h>
#include <prometheus/exposer.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <utility>

#include "base/files.h"

namespace stasis {
namespace {

using prometheus::ClientMetric;
using prometheus::Histogram;
using prometheus::MetricFamily;

const Histogram::BucketBoundaries kCallSeconds = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                  0.05,   0.1,   0.5,    1,     10};

const char* CodeName(int code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code < static_cast<int>(std::size(kNames)) ? kNames[code] : "UNKNOWN";
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

MetricFamily MakeGauge(const char* name, const char* help) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Gauge;
  return family;
}

void AddValue(MetricFamily& family, double value, std::vector<ClientMetric::Label> labels) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  family.metric.push_back(std::move(metric));
}

DaemonMetrics::DaemonMetrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      calls_(prometheus::BuildCounter()
                 .Name("stasis_rpc_total")
                 .Help("Calls that have ended, by method and code.")
                 .Register(*registry_)),
      call_seconds_(prometheus::BuildHistogram()
                        .Name("stasis_rpc_seconds")
                        .Help("How long calls took that are answered at once, by method.")
                        .Register(*registry_)),
      turned_away_(prometheus::BuildCounter()
                       .Name("stasis_clients_turned_away_total")
                       .Help("Clients of this machine that were not let in.")
                       .Register(*registry_)
                       .Add({})) {}

DaemonMetrics::~DaemonMetrics() { Stop(); }

void DaemonMetrics::CallEnded(const std::string& method, int grpc_code, double seconds) {
  std::lock_guard lock(mutex_);
  Call& call = known_[method];
  prometheus::Counter*& ended = call.ended[grpc_code];
  if (ended == nullptr) ended = &calls_.Add({{"method", method}, {"code", CodeName(grpc_code)}});
  ended->Increment();
  if (seconds < 0) return;
  if (call.seconds == nullptr) call.seconds = &call_seconds_.Add({{"method", method}}, kCallSeconds);
  call.seconds->Observe(seconds);
}

void DaemonMetrics::TurnedAway() { turned_away_.Increment(); }

Result<std::string> DaemonMetrics::Serve(const std::string& address) {
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

void DaemonMetrics::Stop() { exposer_.reset(); }

std::vector<MetricFamily> DaemonMetrics::Collect() const {
  std::vector<MetricFamily> families;
  families.push_back(MakeGauge("process_resident_memory_bytes", "Resident memory of the daemon."));
  AddValue(families.back(), ResidentBytes());
  families.push_back(MakeGauge("process_open_fds", "Open file descriptors of the daemon."));
  AddValue(families.back(), OpenDescriptors());
  CollectMore(&families);
  return families;
}

}  // namespace stasis

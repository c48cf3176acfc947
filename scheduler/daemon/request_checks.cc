#include "scheduler/daemon/request_checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "base/field_checks.h"
#include "base/task_name.h"
#include "scheduler/types.h"

namespace stasis::scheduler {
namespace {

constexpr int64_t kSecondMs = 1000;
constexpr int64_t kYearMs = 366LL * 24 * 3600 * kSecondMs;
constexpr int64_t kLatestMs = 253402300799000;  // the end of the year 9999
constexpr int kMaxPriority = 100;
constexpr uint32_t kMaxRestarts = 10000;
constexpr uint64_t kMaxMemory = uint64_t{1} << 50;
constexpr size_t kMaxNodeName = 253;
constexpr size_t kMaxEndpointText = 300;
constexpr size_t kMaxReason = 1000;

Status CheckName(const char* field, const std::string& name) {
  return CheckTaskName(name).WithContext(field);
}

Status CheckOptionalName(const char* field, const std::string& name) {
  return name.empty() ? Status() : CheckName(field, name);
}

Status CheckNodeName(const std::string& name) {
  bool plain = !name.empty() && name.size() <= kMaxNodeName &&
               std::all_of(name.begin(), name.end(),
                           [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
  return plain ? Status() : BadField("node is no name of a node");
}

Status CheckWithin(const char* field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return Status();
  return BadField(std::string(field) + " is " + std::to_string(value) + "; it is " + std::to_string(least) +
                  " to " + std::to_string(most));
}

// `zero`: that is a weight, too.
Status CheckWeight(double weight, bool zero) {
  if (std::isfinite(weight) && weight <= kMaxWeight && (weight > 0 || (zero && weight == 0))) return Status();
  return BadField("weight is more than 0 and at most " + std::to_string(static_cast<int>(kMaxWeight)));
}

Status CheckProgram(const v1::SubmitRequest& request) {
  if (request.argv().empty() || request.argv(0).empty()) return BadField("argv names no program");
  RETURN_IF_ERROR(CheckFolder("the program", request.argv(0)));
  RETURN_IF_ERROR(CheckArguments("argv", request.argv()));
  RETURN_IF_ERROR(CheckArguments("environment", request.environment()));
  for (const std::string& entry : request.environment()) RETURN_IF_ERROR(CheckEnvironmentEntry(entry));
  RETURN_IF_ERROR(CheckFolder("folder", request.folder()));
  return CheckWord("device", request.device(), {"auto", "nvidia", "soft"});
}

Status CheckSize(const v1::SubmitRequest& request) {
  RETURN_IF_ERROR(CheckWithin("gpus", request.gpus(), 1, kMaxDevicesPerNode));
  if (request.ranks() != 0 && request.ranks() != request.gpus()) {
    return BadField("ranks is " + std::to_string(request.ranks()) + "; there are as many as gpus, or none");
  }
  RETURN_IF_ERROR(CheckAtMost("min_gpus", request.min_gpus(), request.gpus()));
  if (request.max_gpus() == 0) return Status();
  return CheckWithin("max_gpus", request.max_gpus(), request.gpus(), kMaxDevicesPerNode);
}

}  // namespace

Status CheckRequest(const v1::ClusterInfoRequest&) { return Status(); }

Status CheckRequest(const v1::SubmitRequest& request) {
  RETURN_IF_ERROR(CheckIdempotencyKey(request.idempotency_key()));
  RETURN_IF_ERROR(CheckOptionalName("name", request.name()));
  RETURN_IF_ERROR(CheckName("tenant", request.tenant()));
  RETURN_IF_ERROR(CheckProgram(request));
  RETURN_IF_ERROR(CheckSize(request));
  RETURN_IF_ERROR(CheckWithin("priority", request.priority(), -kMaxPriority, kMaxPriority));
  RETURN_IF_ERROR(CheckWeight(request.weight(), true));
  RETURN_IF_ERROR(CheckAtMost("estimate_ms", request.estimate_ms(), 10 * kYearMs));
  RETURN_IF_ERROR(CheckAtMost("checkpoint_interval_ms", request.checkpoint_interval_ms(), kYearMs));
  if (request.checkpoint_interval_ms() != 0 && request.checkpoint_interval_ms() < kSecondMs) {
    return BadField("checkpoint_interval_ms is less than a second");
  }
  RETURN_IF_ERROR(CheckAtMost("memory_bytes", request.memory_bytes(), kMaxMemory));
  if (!(request.utilization() >= 0 && request.utilization() <= 1)) return BadField("utilization is 0 to 1");
  return CheckAtMost("max_restarts", request.max_restarts(), kMaxRestarts);
}

Status CheckRequest(const v1::QueueRequest& request) {
  RETURN_IF_ERROR(CheckOptionalName("name", request.name()));
  return CheckOptionalName("tenant", request.tenant());
}

Status CheckRequest(const v1::CancelJobRequest& request) { return CheckName("name", request.name()); }

Status CheckRequest(const v1::TenantsRequest&) { return Status(); }

Status CheckRequest(const v1::SetTenantRequest& request) {
  RETURN_IF_ERROR(CheckName("name", request.name()));
  return CheckWeight(request.weight(), false);
}

Status CheckRequest(const v1::NodesRequest&) { return Status(); }

Status CheckRequest(const v1::JoinRequest& request) {
  RETURN_IF_ERROR(CheckNodeName(request.node()));
  if (request.address().empty()) return BadField("address is empty");
  RETURN_IF_ERROR(CheckLine("address", request.address(), kMaxEndpointText));
  if (request.agent_id().empty()) return BadField("agent_id is empty");
  RETURN_IF_ERROR(CheckLine("agent_id", request.agent_id(), kMaxKey));
  return CheckWord("device", request.device(), {"auto", "nvidia", "soft"});
}

Status CheckRequest(const v1::AttendRequest& request) { return CheckNodeName(request.node()); }

Status CheckRequest(const v1::DrainRequest& request) {
  RETURN_IF_ERROR(CheckNodeName(request.node()));
  RETURN_IF_ERROR(CheckAtMost("notice_ms", request.notice_ms(), kYearMs));
  return CheckLine("reason", request.reason(), kMaxReason);
}

Status CheckRequest(const v1::UndrainRequest& request) { return CheckNodeName(request.node()); }

Status CheckRequest(const v1::SetMaintenanceRequest& request) {
  RETURN_IF_ERROR(CheckNodeName(request.node()));
  if (request.start_ms() == 0 && request.end_ms() == 0) return Status();
  RETURN_IF_ERROR(CheckWithin("start_ms", request.start_ms(), 1, kLatestMs - kYearMs));
  return CheckWithin("end_ms", request.end_ms(), request.start_ms() + 1, request.start_ms() + kYearMs);
}

Status CheckRequest(const v1::DefragmentRequest& request) {
  return CheckWithin("gpus", request.gpus(), 1, kMaxDevicesPerNode);
}

Status CheckRequest(const v1::EventsRequest& request) {
  if (request.after() != 0 && request.last() != 0) return BadField("after and last: which of them?");
  return CheckAtMost("last", request.last(), kMaxListedEvents);
}

}  // namespace stasis::scheduler

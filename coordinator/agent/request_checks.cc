#include "coordinator/agent/request_checks.h"

#include <algorithm>
#include <csignal>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/field_checks.h"
#include "coordinator/agent/schedule_rules.h"
#include "coordinator/job_json.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

constexpr uint32_t kDayMs = 24 * 60 * 60 * 1000;
constexpr uint32_t kMaxAttempts = 1000;
constexpr uint32_t kMaxWindowMs = 10 * 60 * 1000;
constexpr uint32_t kMaxGpuOrdinal = 65535;
constexpr size_t kMaxCron = 256;
constexpr size_t kMaxEndpointText = 300;

Status CheckOptionalName(const std::string& name) { return name.empty() ? Status() : CheckTaskName(name); }

Status CheckChange(const v1::Change& change) { return CheckIdempotencyKey(change.idempotency_key()); }

template <typename Gpus>
Status CheckGpus(const Gpus& gpus) {
  RETURN_IF_ERROR(CheckAtMost("the number of gpus", static_cast<uint64_t>(gpus.size()), kMaxRequestGpus));
  std::set<uint32_t> seen;
  for (uint32_t gpu : gpus) {
    RETURN_IF_ERROR(CheckAtMost("an ordinal in gpus", gpu, kMaxGpuOrdinal));
    if (!seen.insert(gpu).second) return BadField("gpus names " + std::to_string(gpu) + " twice");
  }
  return Status();
}

Status CheckOptions(const v1::PauseOptions& options) {
  RETURN_IF_ERROR(CheckAtMost("deadline_ms", options.deadline_ms(), kDayMs));
  RETURN_IF_ERROR(CheckAtMost("wait_low_ms", options.wait_low_ms(), kDayMs));
  RETURN_IF_ERROR(CheckAtMost("attempts", options.attempts(), kMaxAttempts));
  return CheckWord("pause_protocol", options.pause_protocol(), {"cut", "timeout"});
}

// Of those with `change`, `job` and `options`.
template <typename Request>
Status CheckStopping(const Request& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  return CheckOptions(request.options());
}

Status CheckImageId(const std::string& image) {
  if (image.empty() || IsCheckpointId(image)) return Status();
  return BadField("image is " + Shown(image) + ", which is no id of a checkpoint");
}

Status CheckOperationId(const std::string& id) {
  bool good = !id.empty() && id.size() <= 32 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  return good ? Status() : BadField(Shown(id) + " is no id of an operation");
}

}  // namespace

bool IsNodeName(const std::string& name) {
  constexpr size_t kMaxNodeName = 253;
  return !name.empty() && name.size() <= kMaxNodeName && std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '\x7f';
  });
}

Status CheckRules(const v1::Schedule& schedule) {
  // Before a message repeats it.
  RETURN_IF_ERROR(CheckLine("cron", schedule.cron(), kMaxCron));
  return CheckSchedule(schedule);
}

Status CheckRequest(const v1::InfoRequest&) { return Status(); }

Status CheckRequest(const v1::DevicesRequest& request) {
  return CheckWord("kind", request.kind(), {"auto", "nvidia", "soft"});
}

Status CheckRequest(const v1::ListRequest& request) { return CheckOptionalName(request.name()); }
Status CheckRequest(const v1::WatchRequest& request) { return CheckOptionalName(request.name()); }

Status CheckRequest(const v1::LogsRequest& request) {
  RETURN_IF_ERROR(CheckTaskName(request.name()));
  if (request.rank() < -1 || request.rank() >= kMaxRanks) {
    return BadField("rank is " + std::to_string(request.rank()) + "; it is -1 (all), or that of a rank");
  }
  return CheckAtMost("offset", request.offset(), INT64_MAX);
}

Status CheckRequest(const v1::ImagesRequest& request) { return CheckOptionalName(request.job()); }

Status CheckRequest(const v1::ProgressRequest& request) {
  RETURN_IF_ERROR(
      CheckAtMost("the number of jobs", static_cast<uint64_t>(request.jobs_size()), kMaxRequestStrings));
  for (const std::string& job : request.jobs()) RETURN_IF_ERROR(CheckTaskName(job));
  return CheckAtMost("window_ms", request.window_ms(), kMaxWindowMs);
}

Status CheckRequest(const v1::RunRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckOptionalName(request.name()));
  if (request.argv().empty() || request.argv(0).empty()) return BadField("argv names no program");
  RETURN_IF_ERROR(CheckArguments("argv", request.argv()));
  RETURN_IF_ERROR(CheckArguments("environment", request.environment()));
  for (const std::string& entry : request.environment()) RETURN_IF_ERROR(CheckEnvironmentEntry(entry));
  RETURN_IF_ERROR(CheckFolder("folder", request.folder()));
  RETURN_IF_ERROR(CheckWord("device", request.device(), {"auto", "nvidia", "soft"}));
  RETURN_IF_ERROR(CheckWord("strategy", request.strategy(), {"auto", "reconstruct", "driver-checkpoint"}));
  RETURN_IF_ERROR(CheckWord("managed", request.managed(), {"refuse", "host"}));
  RETURN_IF_ERROR(CheckGpus(request.gpus()));
  RETURN_IF_ERROR(CheckAtMost("ranks", request.ranks(), kMaxRanks));
  RETURN_IF_ERROR(CheckAtMost("master_port", request.master_port(), 65535));
  return CheckRules(request.schedule());
}

Status CheckRequest(const v1::PauseRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  return CheckWord("residency", request.residency(), {"device", "host", "disk"});
}

Status CheckRequest(const v1::ResumeRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  return CheckGpus(request.gpus());
}

Status CheckRequest(const v1::CheckpointRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  RETURN_IF_ERROR(CheckWord("snapshot", request.snapshot(), {"auto", "device", "host", "off"}));
  return CheckWord("device_hash", request.device_hash(), {"auto", "on", "off"});
}

Status CheckRequest(const v1::RestoreRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  RETURN_IF_ERROR(CheckImageId(request.image()));
  return CheckGpus(request.gpus());
}

Status CheckRequest(const v1::MigrateRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  RETURN_IF_ERROR(CheckGpus(request.gpus()));
  RETURN_IF_ERROR(CheckLine("node", request.node(), kMaxEndpointText));
  if (request.node().empty() && request.gpus().empty()) {
    return BadField("a migration needs other devices (gpus), or another node");
  }
  return CheckWord("precopy", request.precopy(), {"auto", "always", "never"});
}

Status CheckRequest(const v1::CancelRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  return CheckAtMost("grace_ms", request.grace_ms(), kDayMs);
}

Status CheckRequest(const v1::CopyImageRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  RETURN_IF_ERROR(CheckImageId(request.image()));
  if (request.node().empty()) return BadField("a copy needs another node (node)");
  RETURN_IF_ERROR(CheckLine("node", request.node(), kMaxEndpointText));
  return CheckAtMost("keep", request.keep(), kMaxCopiesKept);
}

Status CheckRequest(const v1::RemoveRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  return CheckTaskName(request.job());
}

Status CheckRequest(const v1::SignalRequest& request) {
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  constexpr int kPassedOn[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGKILL};
  if (std::find(std::begin(kPassedOn), std::end(kPassedOn), request.signal()) != std::end(kPassedOn))
    return Status();
  return BadField("signal is " + std::to_string(request.signal()) + ", which is not passed on");
}

Status CheckRequest(const v1::GetOperationRequest& request) { return CheckOperationId(request.id()); }
Status CheckRequest(const v1::WatchOperationRequest& request) { return CheckOperationId(request.id()); }
Status CheckRequest(const v1::CancelOperationRequest& request) { return CheckOperationId(request.id()); }

Status CheckRequest(const v1::ListOperationsRequest& request) {
  RETURN_IF_ERROR(CheckOptionalName(request.job()));
  return CheckAtMost("limit", request.limit(), kMaxListedOperations);
}

Status CheckRequest(const v1::SetScheduleRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckTaskName(request.schedule().job()));
  return CheckRules(request.schedule());
}

Status CheckRequest(const v1::ListSchedulesRequest& request) { return CheckOptionalName(request.job()); }

}  // namespace stasis

#include "coordinator/agent/request_checks.h"

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "coordinator/agent/schedule_rules.h"
#include "coordinator/job_json.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

constexpr uint32_t kDayMs = 24 * 60 * 60 * 1000;
constexpr uint32_t kMaxAttempts = 1000;
constexpr uint32_t kMaxGpuOrdinal = 65535;
constexpr size_t kMaxCron = 256;
constexpr size_t kMaxPath = 4095;
constexpr size_t kMaxEndpointText = 300;

Status Bad(const std::string& sentence) { return Status(StatusCode::kInvalidArgument, sentence); }

// Text that is shown in a message.
std::string Shown(std::string_view text) { return "'" + std::string(text.substr(0, 100)) + "'"; }

Status CheckWord(const char* field, std::string_view value, std::initializer_list<std::string_view> words) {
  if (value.empty() || std::find(words.begin(), words.end(), value) != words.end()) return Status();
  std::string all;
  for (std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return Bad(std::string(field) + " is " + Shown(value) + ", which is none of " + all);
}

Status CheckAtMost(const char* field, uint64_t value, uint64_t most) {
  if (value <= most) return Status();
  return Bad(std::string(field) + " is " + std::to_string(value) + "; at most " + std::to_string(most) +
             " is possible");
}

bool HasControls(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

Status CheckOptionalName(const std::string& name) { return name.empty() ? Status() : CheckTaskName(name); }

Status CheckChange(const v1::Change& change) {
  RETURN_IF_ERROR(CheckAtMost("the length of idempotency_key", change.idempotency_key().size(), kMaxKey));
  return HasControls(change.idempotency_key()) ? Bad("idempotency_key holds control characters") : Status();
}

template <typename Gpus>
Status CheckGpus(const Gpus& gpus) {
  RETURN_IF_ERROR(CheckAtMost("the number of gpus", static_cast<uint64_t>(gpus.size()), kMaxRequestGpus));
  std::set<uint32_t> seen;
  for (uint32_t gpu : gpus) {
    RETURN_IF_ERROR(CheckAtMost("an ordinal in gpus", gpu, kMaxGpuOrdinal));
    if (!seen.insert(gpu).second) return Bad("gpus names " + std::to_string(gpu) + " twice");
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

template <typename Strings>
Status CheckStrings(const char* field, const Strings& strings) {
  RETURN_IF_ERROR(CheckAtMost(("the number of " + std::string(field)).c_str(),
                              static_cast<uint64_t>(strings.size()), kMaxRequestStrings));
  for (const std::string& text : strings) {
    RETURN_IF_ERROR(CheckAtMost(("the length of one of " + std::string(field)).c_str(), text.size(),
                                kMaxRequestString - 1));
    if (text.find('\0') != std::string::npos) return Bad(std::string(field) + " holds a zero byte");
  }
  return Status();
}

Status CheckFolder(const std::string& folder) {
  if (folder.empty() || folder[0] != '/')
    return Bad("folder is " + Shown(folder) + ", which is no absolute path");
  RETURN_IF_ERROR(CheckAtMost("the length of folder", folder.size(), kMaxPath));
  return folder.find('\0') == std::string::npos ? Status() : Bad("folder holds a zero byte");
}

// Before a message repeats it.
Status CheckRules(const v1::Schedule& schedule) {
  RETURN_IF_ERROR(CheckAtMost("the length of cron", schedule.cron().size(), kMaxCron));
  if (HasControls(schedule.cron())) return Bad("cron holds control characters");
  return CheckSchedule(schedule);
}

Status CheckOperationId(const std::string& id) {
  bool good = !id.empty() && id.size() <= 32 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  return good ? Status() : Bad(Shown(id) + " is no id of an operation");
}

}  // namespace

Status CheckRequest(const v1::InfoRequest&) { return Status(); }

Status CheckRequest(const v1::DevicesRequest& request) {
  return CheckWord("kind", request.kind(), {"auto", "nvidia", "soft"});
}

Status CheckRequest(const v1::ListRequest& request) { return CheckOptionalName(request.name()); }
Status CheckRequest(const v1::WatchRequest& request) { return CheckOptionalName(request.name()); }

Status CheckRequest(const v1::LogsRequest& request) {
  RETURN_IF_ERROR(CheckTaskName(request.name()));
  if (request.rank() < -1 || request.rank() >= kMaxRanks) {
    return Bad("rank is " + std::to_string(request.rank()) + "; it is -1 (all), or that of a rank");
  }
  return CheckAtMost("offset", request.offset(), INT64_MAX);
}

Status CheckRequest(const v1::ImagesRequest& request) { return CheckOptionalName(request.job()); }

Status CheckRequest(const v1::RunRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckOptionalName(request.name()));
  if (request.argv().empty() || request.argv(0).empty()) return Bad("argv names no program");
  RETURN_IF_ERROR(CheckStrings("argv", request.argv()));
  RETURN_IF_ERROR(CheckStrings("environment", request.environment()));
  for (const std::string& entry : request.environment()) RETURN_IF_ERROR(CheckEnvironmentEntry(entry));
  RETURN_IF_ERROR(CheckFolder(request.folder()));
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
  if (!request.image().empty() && !IsCheckpointId(request.image())) {
    return Bad("image is " + Shown(request.image()) + ", which is no id of a checkpoint");
  }
  return CheckGpus(request.gpus());
}

Status CheckRequest(const v1::MigrateRequest& request) {
  RETURN_IF_ERROR(CheckStopping(request));
  RETURN_IF_ERROR(CheckGpus(request.gpus()));
  RETURN_IF_ERROR(CheckAtMost("the length of node", request.node().size(), kMaxEndpointText));
  if (HasControls(request.node())) return Bad("node holds control characters");
  if (request.node().empty() && request.gpus().empty()) {
    return Bad("a migration needs other devices (gpus), or another node");
  }
  return CheckWord("precopy", request.precopy(), {"auto", "always", "never"});
}

Status CheckRequest(const v1::CancelRequest& request) {
  RETURN_IF_ERROR(CheckChange(request.change()));
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  return CheckAtMost("grace_ms", request.grace_ms(), kDayMs);
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
  return Bad("signal is " + std::to_string(request.signal()) + ", which is not passed on");
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

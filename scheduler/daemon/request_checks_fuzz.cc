// Messages as they come from the network. The first byte says of which kind the rest is to be.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/task_name.h"
#include "scheduler/daemon/request_checks.h"
#include "scheduler/types.h"

namespace {

using stasis::CheckTaskName;
using stasis::scheduler::CheckRequest;
using stasis::scheduler::kMaxDevicesPerNode;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

// What was taken is what the rest relies on.
void Look(const stasis::v1::SubmitRequest& submit) {
  Require(submit.name().empty() || CheckTaskName(submit.name()).ok());
  Require(CheckTaskName(submit.tenant()).ok());
  Require(!submit.argv().empty() && submit.argv(0).front() == '/' && submit.folder().front() == '/');
  for (const std::string& text : submit.argv()) Require(text.find('\0') == std::string::npos);
  for (const std::string& text : submit.environment()) {
    Require(text.find('\0') == std::string::npos && text.find('=') != std::string::npos);
  }
  Require(submit.gpus() > 0 && submit.gpus() <= kMaxDevicesPerNode);
  Require(submit.min_gpus() <= submit.gpus());
  Require(submit.max_gpus() == 0 || submit.max_gpus() >= submit.gpus());
  Require(std::isfinite(submit.weight()) && submit.weight() >= 0);
  Require(submit.utilization() >= 0 && submit.utilization() <= 1);
  Require(static_cast<int64_t>(submit.memory_bytes()) >= 0);
}
void Look(const stasis::v1::SetTenantRequest& tenant) {
  Require(CheckTaskName(tenant.name()).ok());
  Require(std::isfinite(tenant.weight()) && tenant.weight() > 0);
}
void Look(const stasis::v1::SetMaintenanceRequest& window) {
  Require(window.start_ms() == 0 ? window.end_ms() == 0 : window.end_ms() > window.start_ms());
}
template <typename Request>
void Look(const Request& request) {
  if constexpr (requires { request.node(); }) Require(!request.node().empty());
}

template <typename Request>
void Try(std::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (CheckRequest(request).ok()) Look(request);
}

using namespace stasis::v1;  // NOLINT: a list of many
constexpr void (*kKinds[])(std::string_view) = {
    Try<ClusterInfoRequest>, Try<SubmitRequest>,    Try<QueueRequest>,  Try<CancelJobRequest>,
    Try<TenantsRequest>,     Try<SetTenantRequest>, Try<NodesRequest>,  Try<JoinRequest>,
    Try<DrainRequest>,       Try<UndrainRequest>,   Try<EventsRequest>, Try<SetMaintenanceRequest>,
    Try<DefragmentRequest>,  Try<AttendRequest>};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  kKinds[data[0] % (sizeof kKinds / sizeof kKinds[0])](bytes);
  return 0;
}

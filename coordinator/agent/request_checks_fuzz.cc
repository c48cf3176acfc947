// Messages as they come from the network. The first byte says of which kind the rest is to be.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "coordinator/agent/request_checks.h"
#include "coordinator/node/layout.h"

namespace {

using stasis::CheckRequest;
using stasis::CheckTaskName;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

// What was taken is what the rest relies on.
void Look(const stasis::v1::RunRequest& run) {
  Require(run.name().empty() || CheckTaskName(run.name()).ok());
  Require(!run.argv().empty() && !run.argv(0).empty() && run.folder().front() == '/');
  for (const std::string& text : run.argv()) Require(text.find('\0') == std::string::npos);
  for (const std::string& text : run.environment()) {
    Require(text.find('\0') == std::string::npos && text.find('=') != std::string::npos);
  }
}
void Look(const stasis::v1::SetScheduleRequest& request) {
  Require(CheckTaskName(request.schedule().job()).ok());
  Require(request.schedule().overhead_budget() >= 0 && request.schedule().overhead_budget() <= 1);
}
void Look(const stasis::v1::LogsRequest& request) { Require(CheckTaskName(request.name()).ok()); }
template <typename Request>
void Look(const Request& request) {
  if constexpr (requires { request.change(); }) Require(CheckTaskName(request.job()).ok());
}

template <typename Request>
void Try(std::string_view bytes) {
  Request request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  if (CheckRequest(request).ok()) Look(request);
}

using namespace stasis::v1;  // NOLINT: a list of many
constexpr void (*kKinds[])(std::string_view) = {Try<InfoRequest>,
                                                Try<DevicesRequest>,
                                                Try<ListRequest>,
                                                Try<WatchRequest>,
                                                Try<LogsRequest>,
                                                Try<ImagesRequest>,
                                                Try<RunRequest>,
                                                Try<PauseRequest>,
                                                Try<ResumeRequest>,
                                                Try<CheckpointRequest>,
                                                Try<RestoreRequest>,
                                                Try<MigrateRequest>,
                                                Try<CancelRequest>,
                                                Try<RemoveRequest>,
                                                Try<SignalRequest>,
                                                Try<GetOperationRequest>,
                                                Try<ListOperationsRequest>,
                                                Try<WatchOperationRequest>,
                                                Try<CancelOperationRequest>,
                                                Try<SetScheduleRequest>,
                                                Try<ListSchedulesRequest>,
                                                Try<CopyImageRequest>,
                                                Try<ProgressRequest>};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  kKinds[data[0] % (sizeof kKinds / sizeof kKinds[0])](bytes);
  return 0;
}

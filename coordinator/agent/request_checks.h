// What every request must be before anything is done for it: names, lengths, ranges, words. Looks at the
// message alone; what it asks for may still be impossible.
//
// All return kInvalidArgument with a sentence for people.
#ifndef COORDINATOR_AGENT_REQUEST_CHECKS_H_
#define COORDINATOR_AGENT_REQUEST_CHECKS_H_

#include "base/status.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

inline constexpr int kMaxRequestGpus = 1024;
inline constexpr uint32_t kMaxListedOperations = 1000;
inline constexpr uint32_t kMaxCopiesKept = 1000;

Status CheckRequest(const v1::InfoRequest& request);
Status CheckRequest(const v1::DevicesRequest& request);
Status CheckRequest(const v1::ListRequest& request);
Status CheckRequest(const v1::WatchRequest& request);
Status CheckRequest(const v1::LogsRequest& request);
Status CheckRequest(const v1::ImagesRequest& request);
Status CheckRequest(const v1::ProgressRequest& request);
Status CheckRequest(const v1::RunRequest& request);
Status CheckRequest(const v1::PauseRequest& request);
Status CheckRequest(const v1::ResumeRequest& request);
Status CheckRequest(const v1::CheckpointRequest& request);
Status CheckRequest(const v1::RestoreRequest& request);
Status CheckRequest(const v1::MigrateRequest& request);
Status CheckRequest(const v1::CancelRequest& request);
Status CheckRequest(const v1::CopyImageRequest& request);
Status CheckRequest(const v1::RemoveRequest& request);
Status CheckRequest(const v1::SignalRequest& request);
Status CheckRequest(const v1::GetOperationRequest& request);
Status CheckRequest(const v1::ListOperationsRequest& request);
Status CheckRequest(const v1::WatchOperationRequest& request);
Status CheckRequest(const v1::CancelOperationRequest& request);
Status CheckRequest(const v1::SetScheduleRequest& request);
Status CheckRequest(const v1::ListSchedulesRequest& request);

// The rules of a schedule, whoever names them.
Status CheckRules(const v1::Schedule& schedule);
// What a node may be called: 1 to 253 bytes, no blank and nothing that is not printed.
bool IsNodeName(const std::string& name);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_REQUEST_CHECKS_H_

// What every request must be before anything is done for it: names, lengths, ranges, words
// (proto/stasis/v1/scheduler.proto). Looks at the message alone; what it asks for may still be impossible.
//
// All return kInvalidArgument with a sentence for people.
#ifndef SCHEDULER_DAEMON_REQUEST_CHECKS_H_
#define SCHEDULER_DAEMON_REQUEST_CHECKS_H_

#include "base/status.h"
#include "stasis/v1/scheduler.pb.h"

namespace stasis::scheduler {

inline constexpr uint32_t kMaxListedEvents = 10000;
inline constexpr double kMaxWeight = 1e6;

Status CheckRequest(const v1::ClusterInfoRequest& request);
Status CheckRequest(const v1::SubmitRequest& request);
Status CheckRequest(const v1::QueueRequest& request);
Status CheckRequest(const v1::CancelJobRequest& request);
Status CheckRequest(const v1::TenantsRequest& request);
Status CheckRequest(const v1::SetTenantRequest& request);
Status CheckRequest(const v1::NodesRequest& request);
Status CheckRequest(const v1::JoinRequest& request);
Status CheckRequest(const v1::AttendRequest& request);
Status CheckRequest(const v1::DrainRequest& request);
Status CheckRequest(const v1::UndrainRequest& request);
Status CheckRequest(const v1::SetMaintenanceRequest& request);
Status CheckRequest(const v1::DefragmentRequest& request);
Status CheckRequest(const v1::EventsRequest& request);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_REQUEST_CHECKS_H_

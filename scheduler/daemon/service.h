// The Scheduler service: checks who calls and what is asked, then hands on to the core. What waits for the
// disk or for a decision is done by a pool, not by a thread of gRPC's.
#ifndef SCHEDULER_DAEMON_SERVICE_H_
#define SCHEDULER_DAEMON_SERVICE_H_

#include <functional>
#include <string>

#include "base/worker_pool.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/gate.h"
#include "scheduler/daemon/attendance.h"
#include "scheduler/daemon/core.h"
#include "scheduler/daemon/event_hub.h"
#include "stasis/v1/scheduler.grpc.pb.h"

namespace stasis::scheduler {

// What the service hands on to. All outlive it.
struct ServiceParts {
  SchedulerCore* core = nullptr;
  Joining* joining = nullptr;
  EventHub* events = nullptr;
  Attendance* attendance = nullptr;
  Gate* gate = nullptr;
  Audit* audit = nullptr;
  WorkerPool* readers = nullptr;  // for what only looks
  WorkerPool* writers = nullptr;  // for what changes something
};

// What a method is, for who may call it and for the record.
struct Verb {
  const char* name;
  Access access;
};
// All methods of the service, and who may call them.
inline constexpr Verb kInfoVerb{"cluster-info", Access::kLook}, kSubmitVerb{"submit", Access::kChange},
    kQueueVerb{"queue", Access::kRead}, kCancelVerb{"cancel", Access::kChange},
    kTenantsVerb{"tenants", Access::kRead}, kSetTenantVerb{"set-tenant", Access::kChange},
    kNodesVerb{"nodes", Access::kRead}, kJoinVerb{"join", Access::kJoin},
    kAttendVerb{"attend", Access::kJoin}, kDrainVerb{"drain", Access::kChange},
    kUndrainVerb{"undrain", Access::kChange}, kMaintenanceVerb{"set-maintenance", Access::kChange},
    kPlanVerb{"defragment-plan", Access::kRead}, kDefragmentVerb{"defragment", Access::kChange},
    kEventsVerb{"events", Access::kRead};

class SchedulerService final : public v1::Scheduler::CallbackService {
 public:
  explicit SchedulerService(const ServiceParts& parts) : parts_(parts) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* ClusterInfo(Context* context, const v1::ClusterInfoRequest* request,
                       v1::ClusterInfoReply* response) override;
  Reactor* Submit(Context* context, const v1::SubmitRequest* request, v1::QueuedJob* response) override;
  Reactor* Queue(Context* context, const v1::QueueRequest* request, v1::QueueReply* response) override;
  Reactor* CancelJob(Context* context, const v1::CancelJobRequest* request, v1::QueuedJob* response) override;
  Reactor* Tenants(Context* context, const v1::TenantsRequest* request, v1::TenantsReply* response) override;
  Reactor* SetTenant(Context* context, const v1::SetTenantRequest* request, v1::Tenant* response) override;
  Reactor* Nodes(Context* context, const v1::NodesRequest* request, v1::NodesReply* response) override;
  Reactor* Join(Context* context, const v1::JoinRequest* request, v1::JoinReply* response) override;
  grpc::ServerWriteReactor<v1::AttendReply>* Attend(Context* context,
                                                    const v1::AttendRequest* request) override;
  Reactor* Drain(Context* context, const v1::DrainRequest* request, v1::ClusterNode* response) override;
  Reactor* Undrain(Context* context, const v1::UndrainRequest* request, v1::ClusterNode* response) override;
  Reactor* SetMaintenance(Context* context, const v1::SetMaintenanceRequest* request,
                          v1::ClusterNode* response) override;
  Reactor* Defragment(Context* context, const v1::DefragmentRequest* request,
                      v1::DefragmentReply* response) override;
  grpc::ServerWriteReactor<v1::ClusterEvent>* Events(Context* context,
                                                     const v1::EventsRequest* request) override;

 private:
  // Who calls, once that one may and what is asked is in order; else the refusal, which is on record.
  template <typename Request>
  Result<Actor> Admit(const Context& context, const Verb& verb, const Request& request);
  // Answers with what `work` returns. `subject`: the job, tenant or node that is changed, once that is known.
  template <typename Request>
  Reactor* Look(Context* context, const Verb& verb, const Request& request, std::function<Status()> work);
  template <typename Request>
  Reactor* Change(Context* context, const Verb& verb, const Request& request, std::function<Status()> work,
                  std::function<std::string()> subject);
  static Reactor* Later(WorkerPool& pool, Context* context, std::function<Status()> work);
  void Record(const Context& context, const Verb& verb, const Actor& actor, const std::string& subject,
              const Status& outcome);

  const ServiceParts parts_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_SERVICE_H_

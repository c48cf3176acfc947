#include "scheduler/daemon/service.h"

#include <utility>

#include "proto/rpc/status.h"
#include "scheduler/daemon/request_checks.h"

namespace stasis::scheduler {
namespace {

using Reactor = SchedulerService::Reactor;

Reactor* Finish(SchedulerService::Context* context, const Status& status) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToRpcStatus(status, "", context));
  return reactor;
}

// A stream that ends before it has begun.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

template <typename T>
Status Into(Result<T> result, T* response) {
  if (!result.ok()) return std::move(result).status();
  *response = std::move(*result);
  return Status();
}

}  // namespace

void SchedulerService::Record(const Context& context, const Verb& verb, const Actor& actor,
                              const std::string& subject, const Status& outcome) {
  const char* role = actor.name.empty() ? "" : RoleName(actor.role);
  parts_.audit->Record({actor.name, role, context.peer(), verb.name, subject, "", outcome});
}

template <typename Request>
Result<Actor> SchedulerService::Admit(const Context& context, const Verb& verb, const Request& request) {
  Result<Actor> actor = parts_.gate->Admit(context, verb.access, request);
  Status good = actor.ok() ? CheckRequest(request) : actor.status();
  if (good.ok()) return actor;
  Result<Actor> who = parts_.gate->Identify(context);
  // What is asked for may be no name at all, and is not put on record as one.
  Record(context, verb, who.ok() ? *who : Actor{}, "", good);
  return good;
}

Reactor* SchedulerService::Later(WorkerPool& pool, Context* context, std::function<Status()> work) {
  Reactor* reactor = context->DefaultReactor();
  bool posted = pool.Post(
      [context, reactor, work = std::move(work)] { reactor->Finish(ToRpcStatus(work(), "", context)); });
  if (!posted) {
    Status busy(StatusCode::kResourceExhausted, "too many calls wait already");
    reactor->Finish(ToRpcStatus(busy, "", context));
  }
  return reactor;
}

template <typename Request>
Reactor* SchedulerService::Look(Context* context, const Verb& verb, const Request& request,
                                std::function<Status()> work) {
  Result<Actor> actor = Admit(*context, verb, request);
  if (!actor.ok()) return Finish(context, actor.status());
  return Later(*parts_.readers, context, std::move(work));
}

template <typename Request>
Reactor* SchedulerService::Change(Context* context, const Verb& verb, const Request& request,
                                  std::function<Status()> work, std::function<std::string()> subject) {
  Result<Actor> actor = Admit(*context, verb, request);
  if (!actor.ok()) return Finish(context, actor.status());
  return Later(*parts_.writers, context,
               [this, context, &verb, actor = *actor, work = std::move(work), subject = std::move(subject)] {
                 Status done = work();
                 Record(*context, verb, actor, subject(), done);
                 return done;
               });
}

Reactor* SchedulerService::ClusterInfo(Context* context, const v1::ClusterInfoRequest* request,
                                       v1::ClusterInfoReply* response) {
  return Look(context, kInfoVerb, *request, [this, response] {
    *response = parts_.core->Info();
    return Status();
  });
}

Reactor* SchedulerService::Submit(Context* context, const v1::SubmitRequest* request,
                                  v1::QueuedJob* response) {
  return Change(
      context, kSubmitVerb, *request,
      [this, request, response] { return Into(parts_.core->Submit(*request), response); },
      [request, response] { return response->name().empty() ? request->name() : response->name(); });
}

Reactor* SchedulerService::Queue(Context* context, const v1::QueueRequest* request,
                                 v1::QueueReply* response) {
  return Look(context, kQueueVerb, *request,
              [this, request, response] { return Into(parts_.core->Queue(*request), response); });
}

Reactor* SchedulerService::CancelJob(Context* context, const v1::CancelJobRequest* request,
                                     v1::QueuedJob* response) {
  return Change(
      context, kCancelVerb, *request,
      [this, request, response] { return Into(parts_.core->Cancel(request->name()), response); },
      [request] { return request->name(); });
}

Reactor* SchedulerService::Tenants(Context* context, const v1::TenantsRequest* request,
                                   v1::TenantsReply* response) {
  return Look(context, kTenantsVerb, *request, [this, response] {
    *response = parts_.core->Tenants();
    return Status();
  });
}

Reactor* SchedulerService::SetTenant(Context* context, const v1::SetTenantRequest* request,
                                     v1::Tenant* response) {
  return Change(
      context, kSetTenantVerb, *request,
      [this, request, response] { return Into(parts_.core->SetTenant(*request), response); },
      [request] { return request->name(); });
}

Reactor* SchedulerService::Nodes(Context* context, const v1::NodesRequest* request,
                                 v1::NodesReply* response) {
  return Look(context, kNodesVerb, *request, [this, response] {
    *response = parts_.core->Nodes();
    return Status();
  });
}

Reactor* SchedulerService::Join(Context* context, const v1::JoinRequest* request, v1::JoinReply* response) {
  return Change(
      context, kJoinVerb, *request,
      [this, request, response] {
        response->set_cluster_id(parts_.core->cluster_id());
        response->set_reign(parts_.core->reign());
        return parts_.joining->Join(*request);
      },
      [request] { return request->node(); });
}

grpc::ServerWriteReactor<v1::AttendReply>* SchedulerService::Attend(Context* context,
                                                                    const v1::AttendRequest* request) {
  Result<Actor> actor = Admit(*context, kAttendVerb, *request);
  if (!actor.ok()) return new RefusedStream<v1::AttendReply>(ToRpcStatus(actor.status(), "", context));
  return parts_.attendance->Open();
}

Reactor* SchedulerService::Drain(Context* context, const v1::DrainRequest* request,
                                 v1::ClusterNode* response) {
  return Change(
      context, kDrainVerb, *request,
      [this, request, response] { return Into(parts_.core->Drain(*request), response); },
      [request] { return request->node(); });
}

Reactor* SchedulerService::Undrain(Context* context, const v1::UndrainRequest* request,
                                   v1::ClusterNode* response) {
  return Change(
      context, kUndrainVerb, *request,
      [this, request, response] { return Into(parts_.core->Undrain(request->node()), response); },
      [request] { return request->node(); });
}

Reactor* SchedulerService::SetMaintenance(Context* context, const v1::SetMaintenanceRequest* request,
                                          v1::ClusterNode* response) {
  return Change(
      context, kMaintenanceVerb, *request,
      [this, request, response] { return Into(parts_.core->SetMaintenance(*request), response); },
      [request] { return request->node(); });
}

Reactor* SchedulerService::Defragment(Context* context, const v1::DefragmentRequest* request,
                                      v1::DefragmentReply* response) {
  auto work = [this, request, response] { return Into(parts_.core->Defragment(*request), response); };
  if (request->dry_run()) return Look(context, kPlanVerb, *request, work);
  return Change(context, kDefragmentVerb, *request, work, [response] { return response->node(); });
}

grpc::ServerWriteReactor<v1::ClusterEvent>* SchedulerService::Events(Context* context,
                                                                     const v1::EventsRequest* request) {
  Result<Actor> actor = Admit(*context, kEventsVerb, *request);
  if (!actor.ok()) return new RefusedStream<v1::ClusterEvent>(ToRpcStatus(actor.status(), "", context));
  return parts_.events->Open(*request);
}

}  // namespace stasis::scheduler

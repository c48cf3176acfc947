#include "coordinator/agent/service.h"

#include "coordinator/agent/request_checks.h"
#include "proto/rpc/status.h"

namespace stasis {
namespace {

using Reactor = grpc::ServerUnaryReactor;

bool HasEnded(v1::Condition condition) {
  return condition == v1::CONDITION_EXITED || condition == v1::CONDITION_KILLED ||
         condition == v1::CONDITION_MIGRATED;
}

Reactor* Finish(grpc::CallbackServerContext* context, const Status& status) {
  Reactor* reactor = context->DefaultReactor();
  reactor->Finish(ToRpcStatus(status, "", context));
  return reactor;
}

template <typename Request>
Status Admit(Gate& gate, const grpc::CallbackServerContext& context, Access access, const Request& request) {
  RETURN_IF_ERROR(gate.Admit(context, access).status());
  return CheckRequest(request);
}

}  // namespace

Reactor* AgentService::Info(Context* context, const v1::InfoRequest* request, v1::NodeInfo* response) {
  Status status = Admit(*parts_.gate, *context, Access::kLook, *request);
  if (status.ok()) *response = parts_.node->Info();
  return Finish(context, status);
}

Reactor* AgentService::List(Context* context, const v1::ListRequest* request, v1::ListResponse* response) {
  Status status = Admit(*parts_.gate, *context, Access::kRead, *request);
  if (!status.ok()) return Finish(context, status);
  response->set_revision(parts_.registry->revision());
  for (const JobPicture& job : parts_.registry->List()) {
    bool wanted = request->name().empty() ? request->ended() || !HasEnded(job->condition())
                                          : job->name() == request->name();
    if (wanted) *response->add_jobs() = *job;
  }
  return Finish(context, Status());
}

Reactor* AgentService::Devices(Context* context, const v1::DevicesRequest* request,
                               v1::DevicesResponse* response) {
  Status status = Admit(*parts_.gate, *context, Access::kLook, *request);
  if (!status.ok()) return Finish(context, status);
  Reactor* reactor = context->DefaultReactor();
  bool posted = parts_.pool->Post([this, context, reactor, request, response] {
    Result<v1::DevicesResponse> devices = parts_.node->Devices(request->kind(), parts_.registry->List());
    if (devices.ok()) *response = std::move(*devices);
    reactor->Finish(ToRpcStatus(devices.status(), "", context));
  });
  if (posted) return reactor;
  reactor->Finish(ToRpcStatus(Status(StatusCode::kResourceExhausted, "too many calls wait"), "", context));
  return reactor;
}

}  // namespace stasis

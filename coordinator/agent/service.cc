#include "coordinator/agent/service.h"

#include <utility>

#include "coordinator/agent/image_list.h"
#include "coordinator/agent/operation_stream.h"
#include "coordinator/agent/request_checks.h"
#include "coordinator/agent/signal_job.h"
#include "proto/rpc/status.h"

namespace stasis {
namespace {

bool HasEnded(v1::Condition condition) {
  return condition == v1::CONDITION_EXITED || condition == v1::CONDITION_KILLED ||
         condition == v1::CONDITION_MIGRATED;
}

AgentService::Reactor* Finish(AgentService::Context* context, const Status& status) {
  AgentService::Reactor* reactor = context->DefaultReactor();
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

template <typename Message>
grpc::ServerWriteReactor<Message>* Refuse(AgentService::Context* context, const Status& status) {
  return new RefusedStream<Message>(ToRpcStatus(status, "", context));
}

template <typename T>
Status Into(Result<T> result, T* response) {
  if (!result.ok()) return std::move(result).status();
  *response = std::move(*result);
  return Status();
}

}  // namespace

void AgentService::Record(const Context& context, const Call& call, const Actor& actor,
                          const std::string& operation, const Status& outcome) {
  const char* role = actor.name.empty() ? "" : RoleName(actor.role);
  parts_.audit->Record({actor.name, role, context.peer(), call.verb, call.job, operation, outcome});
}

template <typename Request>
Result<Actor> AgentService::Admit(Context* context, const Call& call, const Request& request) {
  Result<Actor> actor = parts_.gate->Admit(*context, call.access, request);
  Status good = actor.ok() ? CheckRequest(request) : actor.status();
  if (good.ok()) return actor;
  Result<Actor> who = parts_.gate->Identify(*context);
  // What is no name is not put on record as one.
  Call told = call;
  if (!CheckTaskName(call.job).ok()) told.job.clear();
  Record(*context, told, who.ok() ? *who : Actor{}, "", good);
  return good;
}

AgentService::Reactor* AgentService::Later(WorkerPool& pool, Context* context, std::function<Status()> work) {
  Reactor* reactor = context->DefaultReactor();
  bool posted = pool.Post(
      [context, reactor, work = std::move(work)] { reactor->Finish(ToRpcStatus(work(), "", context)); });
  if (!posted) {
    Status busy(StatusCode::kResourceExhausted, "too many calls wait already");
    reactor->Finish(ToRpcStatus(busy, "", context));
  }
  return reactor;
}

template <typename Request, typename Work>
AgentService::Reactor* AgentService::Look(Context* context, const Call& call, const Request& request,
                                          Work work) {
  Result<Actor> actor = Admit(context, call, request);
  if (!actor.ok()) return Finish(context, actor.status());
  return Later(*parts_.readers, context, std::move(work));
}

AgentService::Reactor* AgentService::Change(Context* context, const Call& call, const Actor& actor,
                                            std::function<Status()> work, const v1::Operation* started) {
  return Later(*parts_.writers, context, [this, context, call, actor, work = std::move(work), started] {
    Status done = work();
    Record(*context, call, actor, done.ok() && started != nullptr ? started->id() : "", done);
    return done;
  });
}

template <typename Request>
AgentService::Reactor* AgentService::Submit(Context* context, const char* verb, const std::string& job,
                                            const Request& request, v1::Operation* response) {
  Call call{verb, Access::kChange, job};
  Result<Actor> actor = Admit(context, call, request);
  if (!actor.ok()) return Finish(context, actor.status());
  auto work = [this, &request, call, actor = *actor, response]() -> Status {
    if (parts_.node->draining()) return Status(StatusCode::kUnavailable, "the agent is about to end");
    RETURN_IF_ERROR(parts_.fence->Admit(request.change().fence()));
    // A scheduler that asks again after its reign has changed asks for the same thing.
    Request bare = request;
    bare.clear_change();
    OperationRequest wanted{call.verb, call.job, bare.SerializeAsString(), request.change().idempotency_key(),
                            actor};
    return Into(parts_.operations->Submit(wanted), response);
  };
  return Change(context, call, *actor, std::move(work), response);
}

AgentService::Reactor* AgentService::Info(Context* context, const v1::InfoRequest* request,
                                          v1::NodeInfo* response) {
  Result<Actor> actor = Admit(context, {"info", Access::kLook, ""}, *request);
  if (actor.ok()) *response = parts_.node->Info();
  return Finish(context, actor.status());
}

AgentService::Reactor* AgentService::List(Context* context, const v1::ListRequest* request,
                                          v1::ListResponse* response) {
  Result<Actor> actor = Admit(context, {"list", Access::kRead, request->name()}, *request);
  if (!actor.ok()) return Finish(context, actor.status());
  response->set_revision(parts_.registry->revision());
  for (const JobPicture& job : parts_.registry->List()) {
    bool wanted = request->name().empty() ? request->ended() || !HasEnded(job->condition())
                                          : job->name() == request->name();
    if (wanted) *response->add_jobs() = *job;
  }
  for (const std::string& note : parts_.registry->Notes()) response->add_notes(note);
  return Finish(context, Status());
}

AgentService::Reactor* AgentService::Devices(Context* context, const v1::DevicesRequest* request,
                                             v1::DevicesResponse* response) {
  return Look(context, {"devices", Access::kLook, ""}, *request, [this, request, response] {
    return Into(parts_.node->Devices(request->kind(), parts_.registry->List()), response);
  });
}

AgentService::Writer<v1::WatchEvent>* AgentService::Watch(Context* context, const v1::WatchRequest* request) {
  Result<Actor> actor = Admit(context, {"watch", Access::kRead, request->name()}, *request);
  return actor.ok() ? parts_.watches->Open(*request) : Refuse<v1::WatchEvent>(context, actor.status());
}

AgentService::Writer<v1::LogChunk>* AgentService::Logs(Context* context, const v1::LogsRequest* request) {
  Result<Actor> actor = Admit(context, {"logs", Access::kRead, request->name()}, *request);
  return actor.ok() ? parts_.logs->Open(*request, context) : Refuse<v1::LogChunk>(context, actor.status());
}

AgentService::Reactor* AgentService::Images(Context* context, const v1::ImagesRequest* request,
                                            v1::ImagesResponse* response) {
  return Look(context, {"images", Access::kRead, request->job()}, *request, [this, request, response] {
    return Into(ListImagesOf(parts_.site.folders, request->job()), response);
  });
}

AgentService::Reactor* AgentService::Progress(Context* context, const v1::ProgressRequest* request,
                                              v1::ProgressResponse* response) {
  return Look(context, {"progress", Access::kRead, ""}, *request,
              [this, request, response] { return Into(parts_.progress->Answer(*request), response); });
}

AgentService::Reactor* AgentService::Run(Context* context, const v1::RunRequest* request,
                                         v1::Operation* response) {
  return Submit(context, "run", request->name(), *request, response);
}

AgentService::Reactor* AgentService::Pause(Context* context, const v1::PauseRequest* request,
                                           v1::Operation* response) {
  return Submit(context, "pause", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Resume(Context* context, const v1::ResumeRequest* request,
                                            v1::Operation* response) {
  return Submit(context, "resume", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Checkpoint(Context* context, const v1::CheckpointRequest* request,
                                                v1::Operation* response) {
  return Submit(context, "checkpoint", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Restore(Context* context, const v1::RestoreRequest* request,
                                             v1::Operation* response) {
  return Submit(context, "restore", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Migrate(Context* context, const v1::MigrateRequest* request,
                                             v1::Operation* response) {
  return Submit(context, "migrate", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Cancel(Context* context, const v1::CancelRequest* request,
                                            v1::Operation* response) {
  return Submit(context, "cancel", request->job(), *request, response);
}

AgentService::Reactor* AgentService::CopyImage(Context* context, const v1::CopyImageRequest* request,
                                               v1::Operation* response) {
  return Submit(context, "copy", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Remove(Context* context, const v1::RemoveRequest* request,
                                            v1::Operation* response) {
  return Submit(context, "remove", request->job(), *request, response);
}

AgentService::Reactor* AgentService::Signal(Context* context, const v1::SignalRequest* request,
                                            v1::SignalResponse* response) {
  Call call{"signal", Access::kChange, request->job()};
  Result<Actor> actor = Admit(context, call, *request);
  if (!actor.ok()) return Finish(context, actor.status());
  auto work = [this, request, response, actor = *actor]() -> Status {
    JobPicture job = parts_.registry->Find(request->job());
    if (job == nullptr) return Status(StatusCode::kNotFound, "there is no job " + request->job());
    ASSIGN_OR_RETURN(bool paused, SignalJob(parts_.site, *job, request->signal()));
    response->set_paused(paused);
    if (!paused) return Status();
    v1::CancelRequest end;
    end.set_job(request->job());
    return parts_.operations->Submit({"cancel", end.job(), end.SerializeAsString(), "", actor}).status();
  };
  return Change(context, call, *actor, std::move(work), nullptr);
}

AgentService::Reactor* AgentService::GetOperation(Context* context, const v1::GetOperationRequest* request,
                                                  v1::Operation* response) {
  return Look(context, {"get-operation", Access::kRead, ""}, *request, [this, request, response] {
    return Into(parts_.operations->Get(request->id(), request->spans()), response);
  });
}

AgentService::Reactor* AgentService::ListOperations(Context* context,
                                                    const v1::ListOperationsRequest* request,
                                                    v1::ListOperationsResponse* response) {
  return Look(context, {"list-operations", Access::kRead, request->job()}, *request,
              [this, request, response]() -> Status {
                ASSIGN_OR_RETURN(std::vector<v1::Operation> found, parts_.operations->List(*request));
                for (v1::Operation& operation : found) *response->add_operations() = std::move(operation);
                return Status();
              });
}

AgentService::Writer<v1::Operation>* AgentService::WatchOperation(Context* context,
                                                                  const v1::WatchOperationRequest* request) {
  Result<Actor> actor = Admit(context, {"watch-operation", Access::kRead, ""}, *request);
  if (!actor.ok()) return Refuse<v1::Operation>(context, actor.status());
  return OpenOperationStream(*parts_.operations, *parts_.readers, *request, context);
}

AgentService::Reactor* AgentService::CancelOperation(Context* context,
                                                     const v1::CancelOperationRequest* request,
                                                     v1::Operation* response) {
  Call call{"cancel-operation", Access::kChange, ""};
  Result<Actor> actor = Admit(context, call, *request);
  if (!actor.ok()) return Finish(context, actor.status());
  auto work = [this, request, response] { return Into(parts_.operations->Cancel(request->id()), response); };
  return Change(context, call, *actor, std::move(work), response);
}

AgentService::Reactor* AgentService::SetSchedule(Context* context, const v1::SetScheduleRequest* request,
                                                 v1::Schedule* response) {
  Call call{"set-schedule", Access::kChange, request->schedule().job()};
  Result<Actor> actor = Admit(context, call, *request);
  if (!actor.ok()) return Finish(context, actor.status());
  auto work = [this, request, response]() -> Status {
    RETURN_IF_ERROR(parts_.fence->Admit(request->change().fence()));
    return Into(parts_.schedules->Set(request->schedule()), response);
  };
  return Change(context, call, *actor, std::move(work), nullptr);
}

AgentService::Reactor* AgentService::ListSchedules(Context* context, const v1::ListSchedulesRequest* request,
                                                   v1::ListSchedulesResponse* response) {
  Result<Actor> actor = Admit(context, {"list-schedules", Access::kRead, request->job()}, *request);
  if (!actor.ok()) return Finish(context, actor.status());
  for (v1::Schedule& schedule : parts_.schedules->List(request->job())) {
    *response->add_schedules() = std::move(schedule);
  }
  return Finish(context, Status());
}

}  // namespace stasis

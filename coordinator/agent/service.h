// The Agent service: checks who calls and what is asked, then hands on to the part that does it. Nothing
// blocks a thread of gRPC's: what does is done by a pool.
#ifndef COORDINATOR_AGENT_SERVICE_H_
#define COORDINATOR_AGENT_SERVICE_H_

#include <functional>
#include <string>

#include "base/worker_pool.h"
#include "coordinator/agent/fence.h"
#include "coordinator/agent/log_hub.h"
#include "coordinator/agent/node_facts.h"
#include "coordinator/agent/operations.h"
#include "coordinator/agent/progress_book.h"
#include "coordinator/agent/registry.h"
#include "coordinator/agent/schedule_slot.h"
#include "coordinator/agent/watch_hub.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/gate.h"
#include "stasis/v1/agent.grpc.pb.h"

namespace stasis {

// What the service hands on to. All outlive it.
struct AgentParts {
  Site site;
  Gate* gate = nullptr;
  Audit* audit = nullptr;
  Fence* fence = nullptr;
  Registry* registry = nullptr;
  Operations* operations = nullptr;
  ScheduleSlot* schedules = nullptr;
  NodeFacts* node = nullptr;
  ProgressBook* progress = nullptr;
  WatchHub* watches = nullptr;
  LogHub* logs = nullptr;
  WorkerPool* readers = nullptr;  // for what only looks
  WorkerPool* writers = nullptr;  // for what changes something
};

class AgentService final : public v1::Agent::CallbackService {
 public:
  explicit AgentService(const AgentParts& parts) : parts_(parts) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  template <typename Message>
  using Writer = grpc::ServerWriteReactor<Message>;

  Reactor* Info(Context* context, const v1::InfoRequest* request, v1::NodeInfo* response) override;
  Reactor* Devices(Context* context, const v1::DevicesRequest* request,
                   v1::DevicesResponse* response) override;
  Reactor* List(Context* context, const v1::ListRequest* request, v1::ListResponse* response) override;
  Writer<v1::WatchEvent>* Watch(Context* context, const v1::WatchRequest* request) override;
  Writer<v1::LogChunk>* Logs(Context* context, const v1::LogsRequest* request) override;
  Reactor* Progress(Context* context, const v1::ProgressRequest* request,
                    v1::ProgressResponse* response) override;
  Reactor* Images(Context* context, const v1::ImagesRequest* request, v1::ImagesResponse* response) override;

  Reactor* Run(Context* context, const v1::RunRequest* request, v1::Operation* response) override;
  Reactor* Pause(Context* context, const v1::PauseRequest* request, v1::Operation* response) override;
  Reactor* Resume(Context* context, const v1::ResumeRequest* request, v1::Operation* response) override;
  Reactor* Checkpoint(Context* context, const v1::CheckpointRequest* request,
                      v1::Operation* response) override;
  Reactor* Restore(Context* context, const v1::RestoreRequest* request, v1::Operation* response) override;
  Reactor* Migrate(Context* context, const v1::MigrateRequest* request, v1::Operation* response) override;
  Reactor* Cancel(Context* context, const v1::CancelRequest* request, v1::Operation* response) override;
  Reactor* CopyImage(Context* context, const v1::CopyImageRequest* request, v1::Operation* response) override;
  Reactor* Remove(Context* context, const v1::RemoveRequest* request, v1::Operation* response) override;
  Reactor* Signal(Context* context, const v1::SignalRequest* request, v1::SignalResponse* response) override;

  Reactor* GetOperation(Context* context, const v1::GetOperationRequest* request,
                        v1::Operation* response) override;
  Reactor* ListOperations(Context* context, const v1::ListOperationsRequest* request,
                          v1::ListOperationsResponse* response) override;
  Writer<v1::Operation>* WatchOperation(Context* context, const v1::WatchOperationRequest* request) override;
  Reactor* CancelOperation(Context* context, const v1::CancelOperationRequest* request,
                           v1::Operation* response) override;

  Reactor* SetSchedule(Context* context, const v1::SetScheduleRequest* request,
                       v1::Schedule* response) override;
  Reactor* ListSchedules(Context* context, const v1::ListSchedulesRequest* request,
                         v1::ListSchedulesResponse* response) override;

 private:
  // What a call is, for who may make it and for the record.
  struct Call {
    const char* verb;
    Access access;
    std::string job;
  };
  // Who calls, once that one may and what is asked is in order; else the refusal, which is on record.
  template <typename Request>
  Result<Actor> Admit(Context* context, const Call& call, const Request& request);
  // Calls `work` in `pool` and answers with what it returns.
  static Reactor* Later(WorkerPool& pool, Context* context, std::function<Status()> work);
  // The same, for a call that changes something: on record whatever comes of it.
  Reactor* Change(Context* context, const Call& call, const Actor& actor, std::function<Status()> work,
                  const v1::Operation* started);
  template <typename Request>
  Reactor* Submit(Context* context, const char* verb, const std::string& job, const Request& request,
                  v1::Operation* response);
  template <typename Request, typename Work>
  Reactor* Look(Context* context, const Call& call, const Request& request, Work work);
  void Record(const Context& context, const Call& call, const Actor& actor, const std::string& operation,
              const Status& outcome);

  const AgentParts parts_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SERVICE_H_

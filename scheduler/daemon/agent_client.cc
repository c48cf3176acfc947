#include <grpcpp/client_context.h>

#include <mutex>
#include <set>
#include <utility>

#include "proto/rpc/status.h"
#include "scheduler/daemon/agent_link.h"
#include "stasis/v1/agent.grpc.pb.h"

namespace stasis::scheduler {
namespace {

using Stub = v1::Agent::Stub;

constexpr Duration kShort = std::chrono::seconds(30);
constexpr Duration kAwaitTime = std::chrono::seconds(10);
// It may have to start a helper that asks the driver.
constexpr Duration kDevicesTime = std::chrono::seconds(120);

std::chrono::system_clock::time_point After(Duration wait) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
}

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

struct Beginner {
  Stub& stub;
  grpc::ClientContext& context;
  v1::Operation& reply;
  grpc::Status operator()(const v1::RunRequest& request) { return stub.Run(&context, request, &reply); }
  grpc::Status operator()(const v1::PauseRequest& request) { return stub.Pause(&context, request, &reply); }
  grpc::Status operator()(const v1::ResumeRequest& request) { return stub.Resume(&context, request, &reply); }
  grpc::Status operator()(const v1::CheckpointRequest& request) {
    return stub.Checkpoint(&context, request, &reply);
  }
  grpc::Status operator()(const v1::RestoreRequest& request) {
    return stub.Restore(&context, request, &reply);
  }
  grpc::Status operator()(const v1::MigrateRequest& request) {
    return stub.Migrate(&context, request, &reply);
  }
  grpc::Status operator()(const v1::CancelRequest& request) { return stub.Cancel(&context, request, &reply); }
  grpc::Status operator()(const v1::RemoveRequest& request) { return stub.Remove(&context, request, &reply); }
  grpc::Status operator()(const v1::CopyImageRequest& request) {
    return stub.CopyImage(&context, request, &reply);
  }
};

bool HasEnded(const v1::Operation& operation) {
  return operation.state() == v1::OPERATION_STATE_SUCCEEDED ||
         operation.state() == v1::OPERATION_STATE_FAILED ||
         operation.state() == v1::OPERATION_STATE_CANCELLED;
}

class AgentClient final : public AgentLink {
 public:
  explicit AgentClient(std::shared_ptr<grpc::Channel> channel) : stub_(v1::Agent::NewStub(channel)) {}

  Result<v1::NodeInfo> Info(Duration wait) override {
    return Call<v1::NodeInfo>(
        wait, [this](auto* context, auto* reply) { return stub_->Info(context, v1::InfoRequest(), reply); });
  }
  Result<v1::DevicesResponse> Devices(const std::string& kind) override {
    v1::DevicesRequest request;
    request.set_kind(kind);
    return Call<v1::DevicesResponse>(
        kDevicesTime, [&](auto* context, auto* reply) { return stub_->Devices(context, request, reply); });
  }
  Result<v1::ProgressResponse> Progress(Duration window, Duration wait) override {
    v1::ProgressRequest request;
    request.set_window_ms(static_cast<uint32_t>(Milliseconds(window)));
    return Call<v1::ProgressResponse>(
        wait, [&](auto* context, auto* reply) { return stub_->Progress(context, request, reply); });
  }
  Result<std::optional<v1::Job>> Find(const std::string& job) override {
    v1::ListRequest request;
    request.set_name(job);
    request.set_ended(true);
    ASSIGN_OR_RETURN(v1::ListResponse found, Call<v1::ListResponse>(kShort, [&](auto* context, auto* reply) {
                       return stub_->List(context, request, reply);
                     }));
    if (found.jobs().empty()) return std::optional<v1::Job>();
    return std::optional<v1::Job>(found.jobs(0));
  }
  Result<v1::ImagesResponse> Images(const std::string& job) override {
    v1::ImagesRequest request;
    request.set_job(job);
    return Call<v1::ImagesResponse>(
        kShort, [&](auto* context, auto* reply) { return stub_->Images(context, request, reply); });
  }
  Status Watch(const std::function<void(const v1::WatchEvent&)>& event) override {
    Waiting call(*this);
    auto stream = stub_->Watch(&call.context, v1::WatchRequest());
    for (v1::WatchEvent told; stream->Read(&told);) event(told);
    const Status ended = call.Outcome(stream->Finish());
    return ended.ok() ? Status(StatusCode::kUnavailable, "the agent tells no more of its jobs") : ended;
  }
  Result<v1::Operation> Begin(const AgentRequest& request) override {
    return Call<v1::Operation>(kShort, [&](auto* context, auto* reply) {
      return std::visit(Beginner{*stub_, *context, *reply}, request);
    });
  }
  Result<v1::Operation> Await(const std::string& operation) override {
    Waiting call(*this);
    call.context.set_deadline(After(kAwaitTime));
    v1::WatchOperationRequest request;
    request.set_id(operation);
    auto stream = stub_->WatchOperation(&call.context, request);
    v1::Operation last;
    for (v1::Operation told; stream->Read(&told);) last = std::move(told);
    RETURN_IF_ERROR(call.Outcome(stream->Finish()));
    if (HasEnded(last)) return last;
    return Status(StatusCode::kUnavailable, "the agent ends before the operation");
  }
  Status GiveUp(const std::string& operation) override {
    v1::CancelOperationRequest request;
    request.set_id(operation);
    return Call<v1::Operation>(
               kShort,
               [&](auto* context, auto* reply) { return stub_->CancelOperation(context, request, reply); })
        .status();
  }
  Status SetSchedule(const v1::SetScheduleRequest& request) override {
    return Call<v1::Schedule>(
               kShort,
               [&](auto* context, auto* reply) { return stub_->SetSchedule(context, request, reply); })
        .status();
  }
  void Stop() override {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    for (grpc::ClientContext* context : waiting_) context->TryCancel();
  }

 private:
  // A call that Stop() ends.
  struct Waiting {
    explicit Waiting(AgentClient& client) : client(client) {
      std::lock_guard lock(client.mutex_);
      client.waiting_.insert(&context);
      if (client.stopped_) context.TryCancel();
    }
    ~Waiting() {
      std::lock_guard lock(client.mutex_);
      client.waiting_.erase(&context);
    }
    Status Outcome(const grpc::Status& status) {
      std::lock_guard lock(client.mutex_);
      if (client.stopped_ && !status.ok())
        return Status(StatusCode::kUnavailable, "the connection is given up");
      return FromRpcStatus(status, context, nullptr);
    }
    AgentClient& client;
    grpc::ClientContext context;
  };

  template <typename Reply, typename Work>
  Result<Reply> Call(Duration wait, Work work) {
    Waiting call(*this);
    call.context.set_deadline(After(wait));
    Reply reply;
    RETURN_IF_ERROR(call.Outcome(work(&call.context, &reply)));
    return reply;
  }

  const std::unique_ptr<Stub> stub_;
  std::mutex mutex_;
  std::set<grpc::ClientContext*> waiting_;
  bool stopped_ = false;
};

}  // namespace

bool MayBeTriedAgain(const Status& status) {
  return status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kTimeout;
}

Result<std::shared_ptr<AgentLink>> ConnectToAgent(const std::string& address, const TlsFiles& tls) {
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(address));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(endpoint, tls));
  return std::shared_ptr<AgentLink>(std::make_shared<AgentClient>(std::move(channel)));
}

}  // namespace stasis::scheduler

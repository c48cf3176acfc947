#include "coordinator/agent/operation_stream.h"

#include <mutex>
#include <optional>

#include "proto/rpc/status.h"

namespace stasis {
namespace {

bool HasEnded(const v1::Operation& operation) {
  return operation.state() == v1::OPERATION_STATE_SUCCEEDED ||
         operation.state() == v1::OPERATION_STATE_FAILED ||
         operation.state() == v1::OPERATION_STATE_CANCELLED;
}

// One thing is under way at a time: reading the operation (it may be on disk), or writing it to the client.
class OperationStream final : public grpc::ServerWriteReactor<v1::Operation>,
                              public std::enable_shared_from_this<OperationStream> {
 public:
  OperationStream(Operations& operations, WorkerPool& pool, const v1::WatchOperationRequest& request,
                  grpc::CallbackServerContext* context)
      : operations_(operations), pool_(pool), request_(request), context_(context) {}

  void Begin() {
    self_ = shared_from_this();
    subscription_ = operations_.Subscribe(request_.id(), [this](const v1::Operation&) { Changed(); });
    Changed();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    busy_ = false;
    if (!ok) SetEnd(Status(StatusCode::kCancelled, "the client is gone"));
    if (HasEnded(operation_)) SetEnd(Status());
    Proceed();
  }
  void OnCancel() override {
    std::lock_guard lock(mutex_);
    SetEnd(Status(StatusCode::kCancelled, "the client is gone"));
    Proceed();
  }
  void OnDone() override {
    subscription_.reset();
    self_.reset();
  }

 private:
  void Changed() {
    std::lock_guard lock(mutex_);
    changed_ = true;
    Proceed();
  }
  void SetEnd(Status status) {
    if (!end_) end_ = std::move(status);
  }
  void Proceed() {
    if (busy_ || finished_) return;
    if (end_) {
      finished_ = true;
      Finish(ToRpcStatus(*end_, "", context_));
    } else if (changed_) {
      changed_ = false;
      busy_ = true;
      if (pool_.Post([self = shared_from_this()] { self->Read(); })) return;
      busy_ = false;
      SetEnd(Status(StatusCode::kResourceExhausted, "too many calls wait"));
      Proceed();
    }
  }
  void Read() {
    Result<v1::Operation> operation = operations_.Get(request_.id(), request_.spans());
    std::lock_guard lock(mutex_);
    bool news = operation.ok() && (!told_ || operation->revision() != operation_.revision());
    if (!operation.ok()) SetEnd(operation.status());
    if (!news || end_) {
      busy_ = false;
      return Proceed();
    }
    operation_ = std::move(*operation);
    told_ = true;
    StartWrite(&operation_);
  }

  Operations& operations_;
  WorkerPool& pool_;
  const v1::WatchOperationRequest request_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<OperationStream> self_;
  std::unique_ptr<Operations::Subscription> subscription_;

  std::mutex mutex_;
  v1::Operation operation_;  // told last
  bool told_ = false;
  bool changed_ = false;
  bool busy_ = false;
  bool finished_ = false;
  std::optional<Status> end_;
};

}  // namespace

grpc::ServerWriteReactor<v1::Operation>* OpenOperationStream(Operations& operations, WorkerPool& pool,
                                                             const v1::WatchOperationRequest& request,
                                                             grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<OperationStream>(operations, pool, request, context);
  stream->Begin();
  return stream.get();
}

}  // namespace stasis

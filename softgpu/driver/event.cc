#include "softgpu/driver/event.h"

#include <utility>

#include "base/clock.h"
#include "softgpu/driver/actions.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/stream.h"

namespace softgpu {

ActionPtr StampAction(std::shared_ptr<Event::Record> record) {
  return MakeAction(Action::Runs::kInline, [record = std::move(record)](Context&) {
    record->ended_ns.store(stasis::Clock::Real().Now().count(), std::memory_order_release);
    return CUDA_SUCCESS;
  });
}

std::shared_ptr<Event::Record> Event::record() const {
  std::lock_guard lock(mutex_);
  return record_;
}

void Event::set_record(std::shared_ptr<Record> record) {
  std::lock_guard lock(mutex_);
  record_ = std::move(record);
  capture_.reset();
  captured_.clear();
}

namespace {

// A recording that ends also where a broken context does no work any more: others wait for it.
class SharedStampAction final : public Action {
 public:
  SharedStampAction(std::shared_ptr<SharedEvent> shared, uint64_t number)
      : Action(CU_GRAPH_NODE_TYPE_EMPTY, Runs::kInline), shared_(std::move(shared)), number_(number) {}
  CUresult Run(Context&) const override {
    shared_->Complete(number_);
    return CUDA_SUCCESS;
  }
  void Skip(Context&, CUresult) const override { shared_->Complete(number_); }

 private:
  const std::shared_ptr<SharedEvent> shared_;
  const uint64_t number_;
};

}  // namespace

CUresult Event::RecordShared(Stream& stream) {
  auto record = std::make_shared<Record>();
  record->op = stream.Enqueue(std::make_shared<SharedStampAction>(shared_, shared_->Begin()));
  set_record(std::move(record));
  return CUDA_SUCCESS;
}

// Whose work it is cannot be known: a thread waits for it on behalf of the stream.
CUresult Event::WaitForShared(Stream& stream) const {
  const uint64_t number = shared_->latest();
  if (shared_->IsComplete(number)) return CUDA_SUCCESS;
  stream.Enqueue(MakeAction(Action::Runs::kWorker, [shared = shared_, number](Context& context) {
    shared->Wait(number, [&context] { return context.error() != CUDA_SUCCESS; });
    return CUDA_SUCCESS;
  }));
  return CUDA_SUCCESS;
}

CUresult Event::RecordIn(Stream& stream, bool external) {
  if (&stream.context() != context_) return CUDA_ERROR_INVALID_HANDLE;
  if (std::shared_ptr<Capture> capture = stream.capture()) {
    if (external && shared_ != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    if (external) return capture->Add(stream, std::make_shared<EventRecordAction>(shared_from_this()));
    if (capture->status() != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    std::vector<Node*> nodes = capture->Dependencies(stream);
    std::lock_guard lock(mutex_);
    captured_ = std::move(nodes);
    capture_ = std::move(capture);
    return CUDA_SUCCESS;
  }
  if (external) return CUDA_ERROR_ILLEGAL_STATE;
  CUresult forbidden = ForbidImplicitDependency(stream);
  if (forbidden != CUDA_SUCCESS) return forbidden;
  if (shared_ != nullptr) return RecordShared(stream);
  auto record = std::make_shared<Record>();
  record->op = stream.Enqueue(StampAction(record));
  set_record(std::move(record));
  return CUDA_SUCCESS;
}

CUresult Event::MakeWait(Stream& stream, bool external) {
  std::shared_ptr<Capture> capture;
  std::vector<Node*> nodes;
  std::shared_ptr<Record> record;
  {
    std::lock_guard lock(mutex_);
    capture = capture_;
    nodes = captured_;
    record = record_;
  }
  std::shared_ptr<Capture> own = stream.capture();
  if (own != nullptr && external && shared_ != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (own != nullptr && external)
    return own->Add(stream, std::make_shared<EventWaitAction>(shared_from_this()));
  if (external) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture != nullptr) {
    if (capture->status() != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (own != nullptr && own != capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    if (stream.kind() == Stream::Kind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    capture->AddDependencies(stream, nodes);
    return CUDA_SUCCESS;
  }
  if (own != nullptr) {
    // Work outside of the capture cannot become part of the graph.
    own->Invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  CUresult forbidden = ForbidImplicitDependency(stream);
  if (forbidden != CUDA_SUCCESS) return forbidden;
  if (shared_ != nullptr) return WaitForShared(stream);
  if (record != nullptr && !record->op->done()) stream.Enqueue(std::make_shared<EmptyAction>(), {record->op});
  return CUDA_SUCCESS;
}

CUresult Event::CapturedState() const {
  std::lock_guard lock(mutex_);
  if (capture_ == nullptr) return CUDA_SUCCESS;
  capture_->Invalidate();
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult Event::Query() const {
  CUresult captured = CapturedState();
  if (captured != CUDA_SUCCESS) return captured;
  if (shared_ != nullptr)
    return shared_->IsComplete(shared_->latest()) ? context_->error() : CUDA_ERROR_NOT_READY;
  std::shared_ptr<Record> record = this->record();
  if (record == nullptr || record->op->done()) return context_->error();
  return CUDA_ERROR_NOT_READY;
}

CUresult Event::Synchronize() const {
  CUresult captured = CapturedState();
  if (captured != CUDA_SUCCESS) return captured;
  if (shared_ != nullptr)
    shared_->Wait(shared_->latest(), [this] { return context_->error() != CUDA_SUCCESS; });
  else if (std::shared_ptr<Record> record = this->record())
    record->op->Wait();
  context_->Synchronized();
  return context_->error();
}

CUresult Event::Elapsed(const Event& start, const Event& end, float* milliseconds) {
  if (&start.context() != &end.context() || !start.timed() || !end.timed()) return CUDA_ERROR_INVALID_HANDLE;
  CUresult captured = start.CapturedState();
  if (captured == CUDA_SUCCESS) captured = end.CapturedState();
  if (captured != CUDA_SUCCESS) return captured;
  std::shared_ptr<Record> from = start.record(), to = end.record();
  if (from == nullptr || to == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (!from->op->done() || !to->op->done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(to->ended_ns.load() - from->ended_ns.load()) / 1e6f;
  return CUDA_SUCCESS;
}

}  // namespace softgpu

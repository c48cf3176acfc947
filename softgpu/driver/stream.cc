#include "softgpu/driver/stream.h"

#include <utility>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/state.h"

namespace softgpu {

Stream::Stream(Context* context, Kind kind, int priority, uint64_t id)
    : context_(context), kind_(kind), priority_(priority), id_(id) {}

std::vector<OpPtr> Stream::PendingLocked() {
  std::vector<OpPtr> pending;
  auto add = [&pending](OpPtr& tail) {
    if (tail == nullptr) return;
    if (tail->done()) {
      tail.reset();
    } else {
      pending.push_back(tail);
    }
  };
  add(tail_);
  if (kind_ == Kind::kNonBlocking) return pending;
  if (kind_ != Kind::kLegacy) {
    add(context_->legacy_->tail_);
    return pending;
  }
  for (Stream* other : context_->streams_) {
    if (other->kind_ != Kind::kNonBlocking) add(other->tail_);
  }
  for (auto& orphan : context_->orphans_) {
    if (orphan.blocking) add(orphan.tail);
  }
  return pending;
}

void Stream::AttachLocked(const OpPtr& op) {
  for (const OpPtr& earlier : PendingLocked()) op->After(earlier);
  tail_ = op;
}

OpPtr Stream::EnqueueOp(const OpPtr& op, const std::vector<OpPtr>& extra) {
  {
    std::lock_guard lock(context_->order_mutex_);
    AttachLocked(op);
  }
  for (const OpPtr& dependency : extra) op->After(dependency);
  op->Seal();
  return op;
}

OpPtr Stream::Enqueue(ActionPtr action, const std::vector<OpPtr>& extra) {
  return EnqueueOp(Op::Create(context_, std::move(action), priority_), extra);
}

void Stream::EnqueueSpan(const OpPtr& begin, const OpPtr& end) {
  std::lock_guard lock(context_->order_mutex_);
  for (const OpPtr& earlier : PendingLocked()) begin->After(earlier);
  tail_ = end;
}

std::vector<OpPtr> Stream::Pending() {
  std::lock_guard lock(context_->order_mutex_);
  return PendingLocked();
}

CUresult Stream::Submit(ActionPtr action) {
  if (std::shared_ptr<Capture> capture = this->capture()) return capture->Add(*this, std::move(action));
  CUresult forbidden = ForbidImplicitDependency(*this);
  if (forbidden != CUDA_SUCCESS) return forbidden;
  CUresult broken = context_->error();
  if (broken != CUDA_SUCCESS) return broken;
  Enqueue(std::move(action));
  return CUDA_SUCCESS;
}

CUresult Stream::CheckSynchronous() {
  if (std::shared_ptr<Capture> capture = this->capture()) {
    capture->Invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return ForbidImplicitDependency(*this);
}

CUresult Stream::RunBlocking(ActionPtr action) {
  CUresult forbidden = CheckSynchronous();
  if (forbidden == CUDA_SUCCESS) forbidden = ForbidDuringCapture(*CurrentThread());
  if (forbidden != CUDA_SUCCESS) return forbidden;
  OpPtr op = EnqueueOp(Op::CreateForCaller(context_, std::move(action)), {});
  CUresult result = op->RunHere();
  context_->print().Show();
  return result;
}

CUresult Stream::Synchronize() {
  CUresult forbidden = CheckSynchronous();
  if (forbidden != CUDA_SUCCESS) return forbidden;
  for (const OpPtr& op : Pending()) op->Wait();
  context_->Synchronized();
  return context_->error();
}

CUresult Stream::Query() {
  CUresult forbidden = CheckSynchronous();
  if (forbidden != CUDA_SUCCESS) return forbidden;
  CUresult broken = context_->error();
  if (broken != CUDA_SUCCESS) return broken;
  return Pending().empty() ? context_->error() : CUDA_ERROR_NOT_READY;
}

std::shared_ptr<Capture> Stream::capture() const {
  std::lock_guard lock(mutex_);
  return capture_;
}

void Stream::SetCapture(std::shared_ptr<Capture> capture) {
  std::lock_guard lock(mutex_);
  capture_.swap(capture);
}

Stream::Attributes Stream::attributes() const {
  std::lock_guard lock(mutex_);
  return attributes_;
}

void Stream::set_attributes(const Attributes& attributes) {
  std::lock_guard lock(mutex_);
  attributes_ = attributes;
}

std::shared_ptr<Stream> ResolveStream(Context& context, CUstream handle, CUresult* error) {
  *error = CUDA_SUCCESS;
  bool per_thread =
      handle == CU_STREAM_PER_THREAD || (handle == nullptr && CurrentCalls().per_thread_default);
  if (per_thread) return context.PerThreadStream();
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return context.legacy_stream_ptr();
  std::shared_ptr<Stream> stream = State::Get()->streams.Find(handle);
  if (stream == nullptr) {
    *error = CUDA_ERROR_INVALID_HANDLE;
  } else if (stream->context().error() != CUDA_SUCCESS) {
    *error = stream->context().error();
    return nullptr;
  }
  return stream;
}

}  // namespace softgpu

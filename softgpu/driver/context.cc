#include "softgpu/driver/context.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/device_heap.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/print_fifo.h"
#include "softgpu/driver/sm_pool.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/workers.h"

namespace softgpu {

namespace {

// How long a process that ends waits for a function of the program that runs on a stream.
constexpr std::chrono::seconds kAbandonAfter(2);

uint64_t NextStreamId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

// Tells a waiter that has a deadline, and may no longer be there, that everything before has ended.
class DrainedAction final : public Action {
 public:
  DrainedAction() : Action(CU_GRAPH_NODE_TYPE_EMPTY, Runs::kInline) {}
  CUresult Run(Context&) const override {
    Tell();
    return CUDA_SUCCESS;
  }
  void Skip(Context&, CUresult) const override { Tell(); }
  bool WaitUntil(const stasis::Deadline& deadline) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, deadline.Remaining(), [this] { return drained_; });
  }

 private:
  void Tell() const {
    std::lock_guard lock(mutex_);
    drained_ = true;
    changed_.notify_all();
  }
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool drained_ = false;
};

}  // namespace

Context::Context(CUcontext handle, Device* device, unsigned flags, unsigned api_version, uint64_t id)
    : handle_(handle),
      device_(device),
      id_(id),
      api_version_(api_version),
      flags_(flags),
      legacy_(std::make_shared<Stream>(this, Stream::Kind::kLegacy, 0, NextStreamId())),
      workers_(std::make_unique<WorkerPool>()),
      sms_(std::make_unique<SmPool>(device)),
      print_(std::make_unique<PrintFifo>(limits.printf_fifo_size)),
      heap_(std::make_unique<DeviceHeap>(this)) {}

Context::~Context() = default;

void Context::Break(CUresult error) {
  CUresult none = CUDA_SUCCESS;
  if (error_.compare_exchange_strong(none, error)) sms_->Cancel();
}

std::shared_ptr<Stream> Context::PerThreadStream() {
  uint64_t thread = CurrentThread()->number;
  std::lock_guard lock(order_mutex_);
  std::shared_ptr<Stream>& stream = per_thread_[thread];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>(this, Stream::Kind::kPerThread, 0, NextStreamId());
    streams_.push_back(stream.get());
  }
  return stream;
}

std::shared_ptr<Stream> Context::CreateStream(Stream::Kind kind, int priority) {
  auto stream = std::make_shared<Stream>(this, kind, priority, NextStreamId());
  std::lock_guard lock(order_mutex_);
  streams_.push_back(stream.get());
  return stream;
}

void Context::OrphanLocked(Stream* stream) {
  std::erase_if(orphans_, [](const Orphan& orphan) { return orphan.tail == nullptr || orphan.tail->done(); });
  if (stream->tail_ != nullptr && !stream->tail_->done()) {
    orphans_.push_back({stream->tail_, stream->kind() != Stream::Kind::kNonBlocking});
  }
  std::erase(streams_, stream);
}

void Context::ForgetStream(Stream* stream) {
  std::lock_guard lock(order_mutex_);
  OrphanLocked(stream);
}

void Context::ForgetThread(uint64_t thread) {
  std::lock_guard lock(order_mutex_);
  auto found = per_thread_.find(thread);
  if (found == per_thread_.end()) return;
  OrphanLocked(found->second.get());
  per_thread_.erase(found);
}

std::vector<OpPtr> Context::PendingOfAll() {
  std::vector<OpPtr> pending;
  std::lock_guard lock(order_mutex_);
  auto add = [&pending](const OpPtr& tail) {
    if (tail != nullptr && !tail->done()) pending.push_back(tail);
  };
  add(legacy_->tail_);
  for (Stream* stream : streams_) add(stream->tail_);
  for (const Orphan& orphan : orphans_) add(orphan.tail);
  return pending;
}

void Context::Drain() {
  for (const OpPtr& op : PendingOfAll()) op->Wait();
}

bool Context::DrainUntil(const stasis::Deadline& deadline) {
  if (deadline.never()) {
    Drain();
    return true;
  }
  auto drained = std::make_shared<DrainedAction>();
  OpPtr end = Op::Create(this, drained);
  for (const OpPtr& op : PendingOfAll()) end->After(op);
  end->Seal();
  return drained->WaitUntil(deadline);
}

void Context::Rest() {
  workers_->Rest();
  sms_->Rest();
}

CUresult Context::Synchronize() {
  std::vector<std::shared_ptr<Capture>> forbidding = captures();
  for (const std::shared_ptr<Capture>& capture : forbidding) capture->Invalidate();
  if (!forbidding.empty()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Drain();
  Synchronized();
  return error();
}

void Context::Synchronized() {
  print_->Show();
  State::Get()->memory().Synchronized();
}

void Context::AddCapture(std::shared_ptr<Capture> capture) {
  std::lock_guard lock(capture_mutex_);
  captures_.push_back(std::move(capture));
}

void Context::RemoveCapture(const Capture* capture) {
  std::lock_guard lock(capture_mutex_);
  std::erase_if(captures_, [capture](const auto& entry) { return entry.get() == capture; });
}

std::vector<std::shared_ptr<Capture>> Context::captures() const {
  std::lock_guard lock(capture_mutex_);
  return captures_;
}

bool Context::Close(bool cancel) {
  stasis::Deadline deadline = cancel ? stasis::Deadline::After(kAbandonAfter) : stasis::Deadline::Never();
  if (cancel) {
    Break(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  } else {
    Drain();
  }
  print_->Show();
  // In this order: kernels that end hand the rest of the work to the workers, which pass it over unperformed.
  bool ended = sms_->Close(deadline);
  ended &= workers_->Close(deadline);
  return ended;
}

}  // namespace softgpu

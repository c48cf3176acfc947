#include "scheduler/daemon/event_hub.h"

#include <deque>
#include <limits>
#include <optional>

#include "scheduler/daemon/request_checks.h"

namespace stasis::scheduler {
namespace {

constexpr size_t kAtOnce = 64;  // that a stream takes from the core

grpc::Status Ending() { return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the scheduler is about to end"); }

}  // namespace

// One write is under way at a time; Finish() comes after the last of them.
class EventStream final : public grpc::ServerWriteReactor<v1::ClusterEvent> {
 public:
  // `until`: the number of the last one to be told.
  EventStream(EventHub& hub, SchedulerCore& core, uint64_t after, uint64_t until)
      : hub_(hub), core_(core), taken_(after), until_(until) {
    // Then the client knows that it misses nothing.
    StartSendInitialMetadata();
  }

  void Proceed() {
    std::lock_guard lock(mutex_);
    ProceedLocked();
  }
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (end_) return;
    end_ = status;
    ProceedLocked();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    ProceedLocked();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    hub_.Leave(this);
    delete this;
  }

 private:
  void Take() {
    if (taken_ >= until_) return;
    for (v1::ClusterEvent& event : core_.EventsAfter(taken_, kAtOnce)) {
      taken_ = event.number();
      if (taken_ <= until_) waiting_.push_back(std::move(event));
    }
  }
  void ProceedLocked() {
    if (writing_ || finished_) return;
    if (!end_ && waiting_.empty()) Take();
    if (!end_ && waiting_.empty() && taken_ >= until_) end_ = grpc::Status::OK;
    if (end_) {
      finished_ = true;
      Finish(*end_);
      return;
    }
    if (waiting_.empty()) return;
    event_ = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    StartWrite(&event_);
  }

  EventHub& hub_;
  SchedulerCore& core_;
  std::mutex mutex_;
  std::deque<v1::ClusterEvent> waiting_;
  v1::ClusterEvent event_;  // being written
  uint64_t taken_;
  const uint64_t until_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> end_;
};

EventHub::EventHub(SchedulerCore& core) : core_(core), subscription_(core.Subscribe([this] { Tell(); })) {}

EventHub::~EventHub() {
  Stop();
  subscription_.reset();
}

uint64_t EventHub::StartOf(const v1::EventsRequest& request) const {
  if (request.after() != 0) return request.after();
  if (request.last() == 0) return request.until_now() ? 0 : core_.last_event();
  std::vector<v1::ClusterEvent> kept = core_.EventsAfter(0, kMaxListedEvents);
  size_t told = std::min<size_t>(kept.size(), request.last());
  return told == 0 ? 0 : kept[kept.size() - told].number() - 1;
}

grpc::ServerWriteReactor<v1::ClusterEvent>* EventHub::Open(const v1::EventsRequest& request) {
  uint64_t until = request.until_now() ? core_.last_event() : std::numeric_limits<uint64_t>::max();
  auto* stream = new EventStream(*this, core_, StartOf(request), until);
  std::lock_guard lock(mutex_);
  if (stopped_) {
    stream->End(Ending());
    return stream;
  }
  streams_.insert(stream);
  stream->Proceed();
  return stream;
}

void EventHub::Tell() {
  std::lock_guard lock(mutex_);
  for (EventStream* stream : streams_) stream->Proceed();
}

void EventHub::Leave(EventStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

void EventHub::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (EventStream* stream : streams_) stream->End(Ending());
}

}  // namespace stasis::scheduler

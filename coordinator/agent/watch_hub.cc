#include "coordinator/agent/watch_hub.h"

#include <optional>

#include "base/quiet_thread.h"
#include "coordinator/agent/watch_queue.h"

namespace stasis {
namespace {

constexpr size_t kMostGone = 1000;

}  // namespace

// One write is under way at a time; Finish() comes after the last of them.
class WatchStream final : public grpc::ServerWriteReactor<v1::WatchEvent> {
 public:
  WatchStream(WatchHub& hub, const std::string& name) : hub_(hub), queue_(name) {}

  void Begin(const std::vector<JobPicture>& jobs, uint64_t revision, bool complete) {
    std::lock_guard lock(mutex_);
    queue_.Begin(jobs, revision, complete);
    Proceed();
  }
  void Add(const JobPicture& job, bool late) {
    std::lock_guard lock(mutex_);
    if (end_) return;
    queue_.Add(job, late);
    Proceed();
  }
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (end_) return;
    end_ = status;
    Proceed();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok && !end_) end_ = grpc::Status::CANCELLED;
    Proceed();
  }
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override {
    hub_.Leave(this);
    delete this;
  }

 private:
  void Proceed() {
    if (writing_ || finished_) return;
    if (end_) {
      finished_ = true;
      Finish(*end_);
      return;
    }
    std::optional<v1::WatchEvent> next = queue_.Next();
    if (!next) return;
    event_ = std::move(*next);
    writing_ = true;
    StartWrite(&event_);
  }

  WatchHub& hub_;
  std::mutex mutex_;
  WatchQueue queue_;
  v1::WatchEvent event_;  // being written
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> end_;
};

WatchHub::WatchHub(Registry& registry) : registry_(registry) {
  thread_ = StartQuietThread([this] { Loop(); });
  subscription_ = registry_.Subscribe([this](const JobPicture& job) {
    std::lock_guard lock(changes_mutex_);
    changes_.push_back(job);
    more_.notify_one();
  });
  std::lock_guard lock(mutex_);
  gone_since_ = registry_.revision();
}

WatchHub::~WatchHub() {
  Stop();
  subscription_.reset();
  {
    std::lock_guard lock(changes_mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

grpc::ServerWriteReactor<v1::WatchEvent>* WatchHub::Open(const v1::WatchRequest& request) {
  auto* stream = new WatchStream(*this, request.name());
  std::lock_guard lock(mutex_);
  if (stopped_) {
    stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the agent is about to end"));
    return stream;
  }
  // What changes from here on is told to the stream; what it was told at the start already it passes over.
  streams_.insert(stream);
  uint64_t revision = registry_.revision();
  bool complete = false;
  std::vector<JobPicture> jobs = StartOf(request.after_revision(), revision, &complete);
  stream->Begin(jobs, revision, complete);
  return stream;
}

std::vector<JobPicture> WatchHub::StartOf(uint64_t after, uint64_t revision, bool* complete) const {
  *complete = after < gone_since_ || after > revision;
  std::vector<JobPicture> jobs;
  for (const JobPicture& job : registry_.List()) {
    if (*complete || job->revision() > after) jobs.push_back(job);
  }
  for (const JobPicture& job : gone_) {
    if (!*complete && job->revision() > after && job->revision() <= revision) jobs.push_back(job);
  }
  return jobs;
}

size_t WatchHub::streams() const {
  std::lock_guard lock(mutex_);
  return streams_.size();
}

void WatchHub::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (WatchStream* stream : streams_) {
    stream->End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the agent is about to end"));
  }
}

void WatchHub::Leave(WatchStream* stream) {
  std::lock_guard lock(mutex_);
  streams_.erase(stream);
}

void WatchHub::Tell(const JobPicture& job) {
  std::lock_guard lock(mutex_);
  // A stream that began between the removal and now has seen neither.
  bool late = job->gone() && registry_.Find(job->name()) == nullptr;
  if (job->gone()) {
    gone_.push_back(job);
    if (gone_.size() > kMostGone) {
      gone_since_ = gone_.front()->revision();
      gone_.pop_front();
    }
  }
  for (WatchStream* stream : streams_) stream->Add(job, late);
}

void WatchHub::Loop() {
  std::unique_lock lock(changes_mutex_);
  for (;;) {
    more_.wait(lock, [this] { return ending_ || !changes_.empty(); });
    if (ending_) return;
    JobPicture job = std::move(changes_.front());
    changes_.pop_front();
    lock.unlock();
    Tell(job);
    lock.lock();
  }
}

}  // namespace stasis

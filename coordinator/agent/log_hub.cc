#include "coordinator/agent/log_hub.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "base/quiet_thread.h"
#include "coordinator/agent/log_reader.h"
#include "proto/rpc/status.h"

namespace stasis {

// One thing is under way at a time: reading from disk, or writing to the client.
class LogStream final : public grpc::ServerWriteReactor<v1::LogChunk>,
                        public std::enable_shared_from_this<LogStream> {
 public:
  LogStream(LogHub& hub, const v1::LogsRequest& request, grpc::CallbackServerContext* context)
      : hub_(hub), request_(request), context_(context) {}

  const std::string& job() const { return request_.name(); }

  // There may be something new.
  void Wake() {
    std::lock_guard lock(mutex_);
    changed_ = true;
    Proceed();
  }
  void End(const Status& status) {
    std::lock_guard lock(mutex_);
    if (!end_) end_ = status;
    Proceed();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    busy_ = false;
    changed_ = true;  // the file may hold more than was written
    if (!ok && !end_) end_ = Status(StatusCode::kCancelled, "the client is gone");
    Proceed();
  }
  void OnCancel() override { End(Status(StatusCode::kCancelled, "the client is gone")); }
  void OnDone() override { hub_.Leave(this); }

 private:
  void Proceed() {
    if (busy_ || finished_) return;
    if (end_) {
      finished_ = true;
      Finish(ToRpcStatus(*end_, "", context_));
    } else if (changed_) {
      changed_ = false;
      busy_ = true;
      if (hub_.pool_.Post([self = shared_from_this()] { self->Read(); })) return;
      busy_ = false;
      end_ = Status(StatusCode::kResourceExhausted, "too many calls wait");
      Proceed();
    }
  }
  Result<std::optional<v1::LogChunk>> ReadNext(bool* may_grow) {
    // Asked first: what was printed before the end is in the file then.
    JobPicture job = hub_.registry_.Find(request_.name());
    if (job == nullptr && !reader_)
      return Status(StatusCode::kNotFound, "there is no job " + request_.name());
    *may_grow = request_.follow() && job != nullptr && MayPrint(*job);
    if (!reader_) {
      ASSIGN_OR_RETURN(LogReader reader, LogReader::Open(hub_.site_, *job, request_));
      reader_.emplace(std::move(reader));
      if (*may_grow) {
        for (const std::string& path : reader_->paths()) hub_.Follow(path, shared_from_this());
      }
    }
    return reader_->Next();
  }
  // Only one at a time.
  void Read() {
    bool may_grow = false;
    Result<std::optional<v1::LogChunk>> chunk = ReadNext(&may_grow);
    std::lock_guard lock(mutex_);
    if (!chunk.ok() && !end_) end_ = chunk.status();
    if (chunk.ok() && !*chunk && !may_grow && !end_) end_ = Status();
    if (end_ || !*chunk) {
      busy_ = false;
      return Proceed();
    }
    chunk_ = std::move(**chunk);
    StartWrite(&chunk_);
  }

  LogHub& hub_;
  const v1::LogsRequest request_;
  grpc::CallbackServerContext* const context_;
  std::optional<LogReader> reader_;

  std::mutex mutex_;
  v1::LogChunk chunk_;  // being written
  bool changed_ = false;
  bool busy_ = false;
  bool finished_ = false;
  std::optional<Status> end_;
};

Result<std::unique_ptr<LogHub>> LogHub::Start(const Site& site, Registry& registry, WorkerPool& pool) {
  std::unique_ptr<LogHub> hub(new LogHub(site, registry, pool));
  hub->inotify_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  hub->stop_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!hub->inotify_.valid() || !hub->stop_.valid()) return ErrnoStatus(errno, "inotify");
  hub->thread_ = StartQuietThread([raw = hub.get()] { raw->Loop(); });
  hub->subscription_ = registry.Subscribe([raw = hub.get()](const JobPicture& job) { raw->JobChanged(job); });
  return hub;
}

LogHub::~LogHub() {
  Stop();
  subscription_.reset();
  uint64_t one = 1;
  while (thread_.joinable() && write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  if (thread_.joinable()) thread_.join();
}

grpc::ServerWriteReactor<v1::LogChunk>* LogHub::Open(const v1::LogsRequest& request,
                                                     grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<LogStream>(*this, request, context);
  std::lock_guard lock(mutex_);
  streams_.insert(stream);
  if (stopped_) {
    stream->End(Status(StatusCode::kUnavailable, "the agent is about to end"));
  } else {
    stream->Wake();
  }
  return stream.get();
}

void LogHub::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& stream : streams_)
    stream->End(Status(StatusCode::kUnavailable, "the agent is about to end"));
}

void LogHub::Follow(const std::string& path, const std::shared_ptr<LogStream>& stream) {
  std::lock_guard lock(mutex_);
  if (!streams_.contains(stream)) return;
  int watch = inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
  if (watch >= 0) {
    followers_[watch].insert(stream.get());
    return;
  }
  stream->End(ErrnoStatus(errno, "watch " + path));
}

void LogHub::Leave(LogStream* stream) {
  std::shared_ptr<LogStream> last;  // not destroyed under the lock
  std::lock_guard lock(mutex_);
  for (auto at = followers_.begin(); at != followers_.end();) {
    at->second.erase(stream);
    if (at->second.empty()) inotify_rm_watch(inotify_.get(), at->first);
    at = at->second.empty() ? followers_.erase(at) : std::next(at);
  }
  last = stream->shared_from_this();
  streams_.erase(last);
}

void LogHub::JobChanged(const JobPicture& job) {
  std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) {
    if (stream->job() == job->name() && !MayPrint(*job)) stream->Wake();
  }
}

void LogHub::TakeEvents() {
  alignas(inotify_event) char buffer[16 << 10];
  ssize_t got = 0;
  while ((got = read(inotify_.get(), buffer, sizeof buffer)) > 0) {
    std::lock_guard lock(mutex_);
    for (ssize_t at = 0; at < got;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      bool lost = (event->mask & IN_Q_OVERFLOW) != 0;
      for (const auto& [watch, streams] : followers_) {
        if (!lost && watch != event->wd) continue;
        for (LogStream* stream : streams) stream->Wake();
      }
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

void LogHub::Loop() {
  for (;;) {
    pollfd waits[] = {{inotify_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
    if (waits[1].revents != 0) return;
    TakeEvents();
  }
}

}  // namespace stasis

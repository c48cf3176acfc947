#include "scheduler/daemon/node_keeper.h"

#include <algorithm>
#include <utility>

#include "base/log/log.h"

namespace stasis::scheduler {
namespace {

constexpr Duration kFirstRetry = std::chrono::milliseconds(200), kLastRetry = std::chrono::seconds(2);
constexpr int kHeartbeatsInTimeout = 6;

}  // namespace

NodeKeeper::NodeKeeper(Options options, Host& host)
    : options_(std::move(options)), host_(host), heard_(Clock::Real().Now()), lost_(options_.lost) {
  thread_ = std::thread([this] { Loop(); });
}

NodeKeeper::~NodeKeeper() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (link_ != nullptr) link_->Stop();
  }
  wake_.notify_all();
  thread_.join();
}

bool NodeKeeper::Pause(Duration longest) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, longest, [this] { return ending_; });
}

void NodeKeeper::Heard() {
  std::lock_guard lock(mutex_);
  heard_ = Clock::Real().Now();
}

void NodeKeeper::TellIfLost() {
  {
    std::lock_guard lock(mutex_);
    if (ending_ || lost_ || Clock::Real().Now() - heard_ < options_.timeout) return;
    lost_ = true;
  }
  host_.Lost(options_.node);
}

void NodeKeeper::Loop() {
  Duration wait = kFirstRetry;
  for (;;) {
    const MonotonicTime began = Clock::Real().Now();
    const Status ended = Session();
    if (Clock::Real().Now() - began > kLastRetry) wait = kFirstRetry;
    Log(LogLevel::kInfo, "node", "not connected", {{"node", options_.node}, {"why", ended.ToString()}});
    TellIfLost();
    if (!Pause(wait)) return;
    wait = std::min(wait * 2, kLastRetry);
  }
}

Status NodeKeeper::Session() {
  ASSIGN_OR_RETURN(std::shared_ptr<AgentLink> link, options_.connect(options_.address));
  {
    std::lock_guard lock(mutex_);
    if (ending_) return Status(StatusCode::kCancelled, "the scheduler ends");
    link_ = link;
    session_over_ = false;
  }
  const Status ended = Follow(link);
  link->Stop();
  std::lock_guard lock(mutex_);
  link_ = nullptr;
  return ended;
}

// The stream of jobs alone does not tell a node that is silent from one that is gone: it is asked all the
// time.
Status NodeKeeper::Follow(const std::shared_ptr<AgentLink>& link) {
  const Duration wait = options_.timeout / 3;
  ASSIGN_OR_RETURN(const v1::NodeInfo info, link->Info(wait));
  if (info.name() != options_.node)
    return Errorf(StatusCode::kFailedPrecondition, "the agent at %s is that of node %s",
                  options_.address.c_str(), info.name().c_str());
  ASSIGN_OR_RETURN(const v1::DevicesResponse devices, link->Devices(options_.kind));
  met_ = false;
  const MonotonicTime began = Clock::Real().Now();
  std::thread watch([&] { WatchJobs(link, info, devices); });
  Status ended;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, options_.timeout / kHeartbeatsInTimeout,
                     [this] { return ending_ || session_over_; });
      if (ending_ || session_over_) break;
    }
    const Result<v1::NodeInfo> again = link->Info(wait);
    ended = again.status();
    if (!ended.ok()) break;
    if (!met_ && Clock::Real().Now() - began < options_.timeout) continue;
    if (!met_) {
      ended = Status(StatusCode::kTimeout, "it answers, and does not tell its jobs, or is not to be used");
      break;
    }
    Heard();
    AskProgress(*link);
  }
  link->Stop();
  watch.join();
  return ended.ok() ? Status(StatusCode::kUnavailable, "the stream of its jobs has ended") : ended;
}

// An agent that does not answer this is no lost one: it may be older, or busy.
void NodeKeeper::AskProgress(AgentLink& link) {
  const Result<v1::ProgressResponse> progress =
      link.Progress(options_.progress_window, options_.timeout / kHeartbeatsInTimeout);
  if (progress.ok()) return host_.Progressed(options_.node, *progress);
  Log(LogLevel::kDebug, "node", "tells no progress",
      {{"node", options_.node}, {"why", progress.status().ToString()}});
}

void NodeKeeper::WatchJobs(const std::shared_ptr<AgentLink>& link, const v1::NodeInfo& info,
                           const v1::DevicesResponse& devices) {
  Pictures jobs;
  bool met = false;
  const Status ended = link->Watch([&](const v1::WatchEvent& event) {
    if (event.has_job() && met) return host_.Told(options_.node, event.job());
    if (event.has_job()) jobs[event.job().name()] = event.job();
    if (!event.caught_up()) return;
    const Status status = host_.Met(options_.node, info, devices, link, jobs);
    met = met_ = status.ok();
    if (met) Heard();
    std::lock_guard lock(mutex_);
    if (met) lost_ = false;
    if (met) return;
    Log(LogLevel::kWarning, "node", "not used", {{"node", options_.node}, {"why", status.ToString()}});
    link->Stop();
  });
  Log(LogLevel::kDebug, "node", "watch ended", {{"node", options_.node}, {"why", ended.ToString()}});
  if (met) host_.Parted(options_.node);
  std::lock_guard lock(mutex_);
  session_over_ = true;
  wake_.notify_all();
}

}  // namespace stasis::scheduler

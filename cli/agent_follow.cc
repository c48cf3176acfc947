#include "cli/agent_follow.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "coordinator/node/log_follower.h"

namespace stasis {

bool HasEnded(const v1::Rank& rank) {
  switch (rank.condition()) {
    case v1::CONDITION_EXITED:
    case v1::CONDITION_KILLED:
    case v1::CONDITION_CHECKPOINTED:
    case v1::CONDITION_MIGRATED:
      return true;
    default:
      return rank.missing();
  }
}

TaskView ViewOf(const v1::Job& job, const v1::Rank& rank) {
  TaskView view;
  view.last_image = job.last_image();
  view.exit_code = rank.exit_code();
  view.signal = rank.signal();
  view.condition = TaskCondition::kKilled;
  if (rank.condition() == v1::CONDITION_EXITED) view.condition = TaskCondition::kExited;
  if (rank.condition() == v1::CONDITION_CHECKPOINTED) view.condition = TaskCondition::kCheckpointed;
  return view;
}

AgentFollower::AgentFollower(AgentClient& client, v1::Job job, std::vector<uint64_t> offsets)
    : client_(client), job_(std::move(job)) {
  for (int number = 0; number < job_.ranks_size(); number++) {
    ranks_.emplace_back(number);
    if (static_cast<size_t>(number) < offsets.size())
      ranks_.back().offset = offsets[static_cast<size_t>(number)];
  }
}

void AgentFollower::Open(const Options& options) {
  v1::WatchRequest watch;
  watch.set_name(job_.name());
  watch_ = std::make_unique<AgentStream<v1::WatchEvent>>(
      [&](grpc::ClientContext* context) { return client_.stub().Watch(context, watch); });
  for (size_t number = 0; options.copy_output && number < ranks_.size(); number++) {
    if (ranks_[number].told) continue;
    v1::LogsRequest logs;
    logs.set_name(job_.name());
    logs.set_rank(static_cast<int>(number));
    logs.set_offset(ranks_[number].offset);
    logs.set_follow(true);
    ranks_[number].log = std::make_unique<AgentStream<v1::LogChunk>>(
        [&](grpc::ClientContext* context) { return client_.stub().Logs(context, logs); });
  }
}

void AgentFollower::Close() {
  watch_.reset();
  for (Rank& rank : ranks_) rank.log.reset();
}

bool AgentFollower::Done(const Options& options) const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [&](const Rank& rank) { return rank.ended && (rank.told || !options.copy_output); });
}

Status AgentFollower::Follow(SignalSource* signals, const Options& options) {
  Open(options);
  while (!Done(options)) {
    Status status = Round(signals, options);
    if (status.code() == StatusCode::kUnavailable) {
      Close();
      status = ReachAgain(status);
      if (status.ok()) Open(options);
    }
    if (!status.ok()) {
      Close();
      return status;
    }
  }
  Close();
  return Status();
}

Status AgentFollower::Round(SignalSource* signals, const Options& options) {
  std::vector<pollfd> waits = {{watch_->fd(), POLLIN, 0}, {signals ? signals->fd() : -1, POLLIN, 0}};
  // A negative descriptor is passed over.
  for (const Rank& rank : ranks_) waits.push_back({rank.log ? rank.log->fd() : -1, POLLIN, 0});
  int timeout = alarm_ ? alarm_->PollTimeout() : -1;
  if (poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
  // Output first: it was printed before what it is told of now.
  for (size_t number = 0; number < ranks_.size(); number++) {
    if (ranks_[number].log) RETURN_IF_ERROR(TakeLog(number, options));
  }
  RETURN_IF_ERROR(TakeJob(options));
  while (int signal = signals ? signals->Next() : 0) options.on_signal(signal);
  if (alarm_ && alarm_->Expired()) {
    alarm_.reset();
    options.on_alarm();
  }
  return Status();
}

Status AgentFollower::Print(Rank& rank, const v1::LogChunk& chunk, const Options& options) {
  rank.offset = chunk.offset() + chunk.data().size();
  std::string text = job_.ranked() ? rank.lines.Take(chunk.data()) : chunk.data();
  ASSIGN_OR_RETURN(bool read, WriteOutput(STDOUT_FILENO, text));
  if (!read && options.stop_when_unread) return Status(StatusCode::kPeerDied, "nobody reads the output");
  return Status();
}

Status AgentFollower::TakeLog(size_t index, const Options& options) {
  Rank& rank = ranks_[index];
  bool ended = false;
  for (const v1::LogChunk& chunk : rank.log->Take(&ended)) RETURN_IF_ERROR(Print(rank, chunk, options));
  if (!ended) return Status();
  Status status = rank.log->status();
  rank.log.reset();
  if (!status.ok()) return client_.Explained(status);
  rank.told = true;
  return job_.ranked() ? WriteOutput(STDOUT_FILENO, rank.lines.Finish()).status() : Status();
}

Status AgentFollower::TakeJob(const Options& options) {
  bool ended = false;
  for (v1::WatchEvent& event : watch_->Take(&ended)) {
    if (!event.has_job() || event.job().name() != job_.name()) continue;
    if (event.job().gone()) return Status(StatusCode::kNotFound, job_.name() + " was removed");
    job_ = std::move(*event.mutable_job());
    TakeRanks(options);
  }
  if (!ended) return Status();
  if (!watch_->status().ok()) return client_.Explained(watch_->status());
  return Status(StatusCode::kUnavailable, "the agent has ended the stream");
}

void AgentFollower::TakeRanks(const Options& options) {
  std::vector<RankEnd> ends;
  for (size_t number = 0; number < ranks_.size(); number++) {
    if (static_cast<int>(number) >= job_.ranks_size()) return;
    const v1::Rank& told = job_.ranks(static_cast<int>(number));
    Rank& rank = ranks_[number];
    rank.managed = rank.managed || told.managed();
    if (rank.ended || !HasEnded(told)) continue;
    rank.ended = true;
    ends.push_back({static_cast<int>(number), ViewOf(job_, told), static_cast<double>(told.ended_us()) / 1e6,
                    told.cancelled(), rank.managed});
  }
  // Several may have ended since the last word.
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.time < b.time; });
  for (const RankEnd& end : ends) options.on_end(end);
}

Status AgentFollower::ReachAgain(const Status& lost) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kAgentPatience);
  v1::NodeInfo info;
  Status status = FromRpcStatus(client_.stub().Info(&context, v1::InfoRequest(), &info), context, nullptr);
  return status.ok() ? status : lost;
}

}  // namespace stasis

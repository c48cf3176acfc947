#include "cli/job_follow.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "coordinator/node/job.h"

namespace stasis {
namespace {

// What is longer is broken, as it has to be kept.
constexpr size_t kMaxLine = 1 << 20;

}  // namespace

std::string RankLines::Take(std::string_view bytes) {
  std::string out;
  for (;;) {
    size_t end = bytes.find('\n');
    if (end == std::string_view::npos) break;
    out += prefix_ + kept_ + std::string(bytes.substr(0, end + 1));
    kept_.clear();
    bytes.remove_prefix(end + 1);
  }
  kept_ += bytes;
  if (kept_.size() > kMaxLine) out += Finish();
  return out;
}

std::string RankLines::Finish() {
  if (kept_.empty()) return "";
  std::string line = prefix_ + kept_ + "\n";
  kept_.clear();
  return line;
}

Result<JobFollower> JobFollower::Create(std::vector<TaskPaths> ranks) {
  Fd inotify(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify.valid()) return ErrnoStatus(errno, "inotify_init");
  JobFollower follower(std::move(inotify));
  for (TaskPaths& paths : ranks) {
    size_t index = follower.ranks_.size();
    follower.ranks_.emplace_back(std::move(paths), static_cast<int>(index));
    RETURN_IF_ERROR(follower.Watch(index));
  }
  return follower;
}

Status JobFollower::Watch(size_t index) {
  Rank& rank = ranks_[index];
  int ctl = inotify_add_watch(inotify_.get(), rank.paths.ctl.c_str(), IN_CREATE | IN_MOVED_TO);
  if (ctl < 0) return ErrnoStatus(errno, "watch " + rank.paths.ctl);
  ctl_watches_[ctl] = index;
  // Also tells of writes to output.log, and of files replaced by rename.
  if (inotify_add_watch(inotify_.get(), rank.paths.folder.c_str(), IN_MODIFY | IN_MOVED_TO | IN_CREATE) < 0) {
    return ErrnoStatus(errno, "watch " + rank.paths.folder);
  }
  return Status();
}

Status JobFollower::Begin(const std::vector<Start>& starts, const JobFollowOptions& options) {
  for (size_t i = 0; i < ranks_.size(); i++) {
    Rank& rank = ranks_[i];
    if (options.copy_output) {
      ASSIGN_OR_RETURN(rank.log, LogFollower::Open(rank.paths.File("output.log"), starts[i].log_offset));
    }
    Result<Fd> process = OpenPidFd(starts[i].init);
    if (!process.ok() && process.status().code() != StatusCode::kNotFound) return process.status();
    rank.alive = process.ok();
    if (process.ok()) rank.process = *std::move(process);
  }
  return Status();
}

Result<bool> JobFollower::Pump(Rank& rank, bool last) {
  ASSIGN_OR_RETURN(bool read, rank.log->Pump([&](std::string_view bytes) {
    return WriteOutput(STDOUT_FILENO, rank.lines.Take(bytes));
  }));
  if (!last || !read) return read;
  return WriteOutput(STDOUT_FILENO, rank.lines.Finish());
}

Status JobFollower::PumpAll(const JobFollowOptions& options) {
  for (Rank& rank : ranks_) {
    if (!options.copy_output || rank.ended) continue;
    ASSIGN_OR_RETURN(bool read, Pump(rank, false));
    if (!read && options.stop_when_unread) return Status(StatusCode::kPeerDied, "nobody reads the output");
  }
  return Status();
}

Status JobFollower::TakeEvents() {
  alignas(inotify_event) char buffer[16 << 10];
  for (;;) {
    ssize_t got = read(inotify_.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Status();
    if (got <= 0) return ErrnoStatus(got < 0 ? errno : EIO, "read inotify events");
    for (ssize_t at = 0; at < got;) {
      auto* event = reinterpret_cast<inotify_event*>(buffer + at);
      std::string_view name = event->len > 0 ? event->name : "";
      auto ctl = ctl_watches_.find(event->wd);
      if (ctl != ctl_watches_.end() && name.ends_with(".sock")) ranks_[ctl->second].managed = true;
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
  }
}

// Nothing while it is not known how the rank has ended.
Result<std::optional<RankEnd>> JobFollower::EndOf(size_t index, const JobFollowOptions& options) {
  Rank& rank = ranks_[index];
  ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(rank.paths));
  rank.ghost.Reset();
  ASSIGN_OR_RETURN(std::optional<TaskView> view, Verdict(facts, &rank.ghost));
  if (!view) return std::optional<RankEnd>();
  if (options.copy_output) RETURN_IF_ERROR(Pump(rank, true).status());
  rank.ended = true;
  bool cancelled =
      TextField(facts.status, "state") == "ended" && TextField(facts.status, "ended_by") == "cancel";
  return std::optional(RankEnd{static_cast<int>(index), *view, EndTimeOf(facts), cancelled, rank.managed});
}

Status JobFollower::TakeEnds(const JobFollowOptions& options) {
  std::vector<RankEnd> ends;
  for (size_t i = 0; i < ranks_.size(); i++) {
    if (ranks_[i].alive || ranks_[i].ended) continue;
    ASSIGN_OR_RETURN(std::optional<RankEnd> end, EndOf(i, options));
    if (end) ends.push_back(*end);
  }
  // Several may have ended since the last look.
  std::stable_sort(ends.begin(), ends.end(),
                   [](const RankEnd& a, const RankEnd& b) { return a.time < b.time; });
  for (const RankEnd& end : ends) options.on_end(end);
  return Status();
}

bool JobFollower::AllEnded() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

Status JobFollower::Wait(SignalSource& signals, const JobFollowOptions& options) {
  // A negative descriptor is passed over.
  std::vector<pollfd> waits = {
      {inotify_.get(), POLLIN, 0}, {signals.fd(), POLLIN, 0}, {options.also, POLLIN, 0}};
  bool look_again = false;
  for (const Rank& rank : ranks_) {
    waits.push_back({rank.alive ? rank.process.get() : rank.ended ? -1 : rank.ghost.get(), POLLIN, 0});
    look_again = look_again || (!rank.alive && !rank.ended && !rank.ghost.valid());
  }
  int timeout = look_again ? 0 : alarm_ ? alarm_->PollTimeout() : -1;
  if (poll(waits.data(), waits.size(), timeout) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
  if (waits[0].revents != 0) RETURN_IF_ERROR(TakeEvents());
  for (size_t i = 0; i < ranks_.size(); i++) {
    if (ranks_[i].alive && waits[i + 3].revents != 0) ranks_[i].alive = false;
  }
  if (waits[2].revents != 0) options.on_also();
  return Status();
}

Status JobFollower::Follow(const std::vector<Start>& starts, SignalSource& signals,
                           const JobFollowOptions& options) {
  RETURN_IF_ERROR(Begin(starts, options));
  for (;;) {
    RETURN_IF_ERROR(TakeEvents());
    RETURN_IF_ERROR(PumpAll(options));
    RETURN_IF_ERROR(TakeEnds(options));
    if (AllEnded()) return Status();
    RETURN_IF_ERROR(Wait(signals, options));
    while (int signal = signals.Next()) options.on_signal(signal);
    if (alarm_ && alarm_->Expired()) {
      alarm_.reset();
      options.on_alarm();
    }
  }
}

}  // namespace stasis

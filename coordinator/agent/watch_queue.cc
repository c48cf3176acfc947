#include "coordinator/agent/watch_queue.h"

namespace stasis {

void WatchQueue::Begin(const std::vector<JobPicture>& jobs, uint64_t revision, bool complete) {
  begun_ = revision;
  complete_ = complete;
  for (const JobPicture& job : jobs) {
    if (name_.empty() || job->name() == name_) waiting_[{job->revision(), job->name()}] = job;
  }
}

void WatchQueue::Add(const JobPicture& job, bool late) {
  if ((job->revision() <= begun_ && !late) || (!name_.empty() && job->name() != name_)) return;
  Place place{job->revision(), job->name()};
  auto older = newest_.find(job->name());
  if (older != newest_.end()) waiting_.erase(older->second);
  newest_[job->name()] = place;
  waiting_[place] = job;
}

std::optional<v1::WatchEvent> WatchQueue::Next() {
  v1::WatchEvent event;
  auto first = waiting_.begin();
  bool start_told = first == waiting_.end() || first->first.first > begun_;
  if (start_told && !caught_up_) {
    caught_up_ = true;
    event.set_caught_up(true);
    event.set_complete(complete_);
    event.set_revision(begun_);
    return event;
  }
  if (first == waiting_.end()) return std::nullopt;
  auto newest = newest_.find(first->first.second);
  if (newest != newest_.end() && newest->second == first->first) newest_.erase(newest);
  *event.mutable_job() = *first->second;
  event.set_revision(first->first.first);
  waiting_.erase(first);
  return event;
}

}  // namespace stasis

#include "coordinator/agent/progress_window.h"

namespace stasis {
namespace {

constexpr size_t kMostAnswers = 600;
// Two answers closer to each other than this say nothing of a rate.
constexpr auto kShortest = std::chrono::milliseconds(20);

bool IsBefore(const TaskProgress& a, const TaskProgress& b) {
  return a.iterations < b.iterations || a.launches < b.launches;
}

}  // namespace

void ProgressWindow::Add(MonotonicTime now, const TaskProgress& counted) {
  if (!answers_.empty() && IsBefore(counted, answers_.back().counted)) answers_.clear();
  while (!answers_.empty() &&
         (answers_.size() >= kMostAnswers || now - answers_.front().when > kLongestProgressWindow)) {
    // The one before the newest is a rate all the same.
    if (answers_.size() == 1) break;
    answers_.pop_front();
  }
  answers_.push_back({now, counted});
}

std::optional<ProgressWindow::Rate> ProgressWindow::RateOver(Duration window) const {
  const Answer* from = nullptr;
  for (const Answer& answer : answers_) {
    if (answers_.back().when - answer.when < kShortest) break;
    from = &answer;
    if (answers_.back().when - answer.when <= window) break;
  }
  if (from == nullptr) return std::nullopt;
  const Answer& to = answers_.back();
  Rate rate;
  rate.over = to.when - from->when;
  rate.iterations = to.counted.iterations > 0;
  const uint64_t count = rate.iterations ? to.counted.iterations - from->counted.iterations
                                         : to.counted.launches - from->counted.launches;
  rate.per_second = static_cast<double>(count) / std::chrono::duration<double>(rate.over).count();
  return rate;
}

}  // namespace stasis

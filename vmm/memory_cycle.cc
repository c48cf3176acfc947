#include "vmm/memory_cycle.h"

#include <algorithm>

namespace stasis::vmm {
namespace {

// Fewer entries show no cycle that could be told from chance.
constexpr size_t kShortestHistory = 16;
// What must be left when the older half goes.
constexpr size_t kEnoughCycles = 2 * MemoryCycle::kLatestCycles;

}  // namespace

void MemoryCycle::Span::Add(uint64_t bytes) {
  least = std::min(least, bytes);
  most = std::max(most, bytes);
}

void MemoryCycle::Span::Add(const Span& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
}

void MemoryCycle::Note(uint64_t bytes) {
  bytes_ = bytes;
  if (boundaries_ != 0) {
    iteration_.Add(bytes);
    return;
  }
  if (!history_.empty() && changes_of_last_ < changes_per_entry_) {
    history_.back().Add(bytes);
    ++changes_of_last_;
    return;
  }
  if (history_.size() == kHistory) MakeRoom();
  history_.push_back({bytes, bytes});
  changes_of_last_ = 1;
}

// What comes before the first boundary is the start of the program and no cycle.
void MemoryCycle::Boundary() {
  if (boundaries_++ != 0) {
    if (iterations_.size() == kLatestCycles) iterations_.erase(iterations_.begin());
    iterations_.push_back(iteration_);
  } else {
    history_ = {};
  }
  iteration_ = {bytes_, bytes_};
}

void MemoryCycle::MakeRoom() {
  const size_t cycles = CyclesOfHistory().size();
  if (cycles >= kEnoughCycles) {
    history_.erase(history_.begin(), history_.begin() + kHistory / 2);
    // Entries that hold cycles as a whole show only their extremes.
    if (cycles > kHistory / 8) changes_per_entry_ = std::max<uint64_t>(1, changes_per_entry_ / 2);
    return;
  }
  for (size_t i = 0; i < kHistory / 2; ++i) {
    history_[i] = history_[2 * i];
    history_[i].Add(history_[2 * i + 1]);
  }
  history_.resize(kHistory / 2);
  changes_per_entry_ *= 2;
}

// A fall by more than the swing makes what was before it a maximum; a rise by more, the other way round.
MemoryCycle::Cycles MemoryCycle::CyclesSince(size_t first) const {
  Span range = history_[first];
  for (size_t i = first; i < history_.size(); ++i) range.Add(history_[i]);
  const uint64_t swing = (range.most - range.least) / 2;
  Cycles cycles;
  if (swing == 0) return cycles;
  bool rising = true, complete = false;  // complete: a maximum lies before
  uint64_t top = 0, bottom = 0;
  for (size_t i = first; i < history_.size(); ++i) {
    const Span& entry = history_[i];
    if (rising) {
      top = std::max(top, entry.most);
      if (top - entry.least <= swing) continue;
      if (complete) cycles.spans.push_back({bottom, top});
      complete = true;
      cycles.last_begin = cycles.last_end;
      cycles.last_end = i;
      rising = false;
      bottom = entry.least;
    } else {
      bottom = std::min(bottom, entry.least);
      if (entry.most - bottom <= swing) continue;
      rising = true;
      top = entry.most;
    }
  }
  return cycles;
}

bool MemoryCycle::GoesOn(const Cycles& cycles) const {
  return cycles.spans.size() >= 2 &&
         history_.size() - cycles.last_end <= 2 * (cycles.last_end - cycles.last_begin);
}

std::vector<MemoryCycle::Span> MemoryCycle::CyclesOfHistory() const {
  for (size_t length = history_.size(); length >= kShortestHistory; length /= 2) {
    Cycles cycles = CyclesSince(history_.size() - length);
    if (GoesOn(cycles)) return std::move(cycles.spans);
  }
  return {};
}

std::optional<MemoryCycle::Learned> MemoryCycle::LearnFrom(const std::vector<Span>& cycles) {
  if (cycles.empty()) return std::nullopt;
  Learned learned;
  for (size_t i = cycles.size() - std::min(cycles.size(), kLatestCycles); i < cycles.size(); ++i) {
    learned.low = std::max(learned.low, cycles[i].least);
    learned.high = std::max(learned.high, cycles[i].most);
  }
  return learned;
}

std::optional<MemoryCycle::Learned> MemoryCycle::Learn() const {
  return LearnFrom(boundaries_ != 0 ? iterations_ : CyclesOfHistory());
}

}  // namespace stasis::vmm

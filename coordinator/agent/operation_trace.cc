#include "coordinator/agent/operation_trace.h"

#include <algorithm>

namespace stasis {
namespace {

// A job of a thousand ranks has ten for each.
constexpr size_t kMaxSpans = 16384;
constexpr size_t kMaxNotes = 1000;
constexpr size_t kMaxText = 4096;

uint64_t Count(const Json& event, const char* key) {
  return static_cast<uint64_t>(std::max<int64_t>(0, IntegerField(event, key)));
}

}  // namespace

int64_t OperationTrace::NowLocked() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(clock_.Now() - start_).count();
}

void OperationTrace::Start() {
  std::lock_guard lock(mutex_);
  start_ = clock_.Now();
}

uint32_t OperationTrace::BeginLocked(std::string_view name, uint32_t parent, std::string_view rank) {
  if (spans_.size() == kMaxSpans) return 0;
  v1::Span& span = spans_.emplace_back();
  span.set_id(static_cast<uint32_t>(spans_.size()));
  span.set_parent(parent);
  span.set_name(std::string(name.substr(0, kMaxText)));
  span.set_rank(std::string(rank));
  span.set_start_us(NowLocked());
  return span.id();
}

void OperationTrace::EndLocked(uint32_t span, uint64_t bytes) {
  if (span == 0 || span > spans_.size()) return;
  v1::Span& ended = spans_[span - 1];
  if (ended.end_us() != 0) return;
  // 0 says that it goes on.
  ended.set_end_us(std::max<int64_t>(1, NowLocked()));
  ended.set_bytes(bytes);
  std::erase(open_, span);
}

uint32_t OperationTrace::BeginSpan(std::string_view name, uint32_t parent, std::string_view rank) {
  std::lock_guard lock(mutex_);
  uint32_t span = BeginLocked(name, parent, rank);
  if (span != 0) open_.push_back(span);
  return span;
}

void OperationTrace::EndSpan(uint32_t span, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (span == 0) return;
  // Nothing tells of the end of a ghost's last phase but the end of what it was asked for.
  for (auto& [name, rank] : ranks_) {
    if (rank.span == 0 || spans_[rank.span - 1].parent() != span) continue;
    EndLocked(rank.span, rank.done);
    rank = {};
  }
  EndLocked(span, bytes);
}

void OperationTrace::Progress(const std::string& phase, uint64_t done, uint64_t total) {
  std::lock_guard lock(mutex_);
  phase_ = phase.substr(0, kMaxText);
  done_ = done;
  total_ = total;
}

void OperationTrace::Note(const std::string& sentence) {
  std::lock_guard lock(mutex_);
  if (notes_.size() < kMaxNotes) notes_.push_back(sentence.substr(0, kMaxText));
}

void OperationTrace::AddUpLocked() {
  done_ = total_ = 0;
  for (const auto& [name, rank] : ranks_) {
    if (rank.phase == phase_) done_ += rank.done, total_ += rank.total;
  }
}

void OperationTrace::TakeEvent(const std::string& rank, const Json& event) {
  std::lock_guard lock(mutex_);
  std::string phase = TextField(event, "phase").substr(0, kMaxText);
  RankPhase& mine = ranks_[rank];
  if (phase == "begin") {
    // Another attempt goes through the same phases again.
    seen_.clear();
  } else if (phase != mine.phase) {
    EndLocked(mine.span, mine.done);
    mine.span = BeginLocked(phase, open_.empty() ? 0 : open_.back(), rank);
    mine.phase = phase;
  }
  if (phase == "begin") return;
  mine.done = Count(event, "done");
  mine.total = Count(event, "total");
  if (mine.span != 0) spans_[mine.span - 1].set_bytes(mine.done);
  if (seen_.insert(phase).second) phase_ = phase;
  if (phase == phase_) AddUpLocked();
}

void OperationTrace::Finish() {
  std::lock_guard lock(mutex_);
  for (v1::Span& span : spans_) {
    if (span.end_us() == 0) EndLocked(span.id(), span.bytes());
  }
}

void OperationTrace::Fill(v1::Operation* operation, bool spans) const {
  std::lock_guard lock(mutex_);
  operation->set_phase(phase_);
  operation->set_done_bytes(done_);
  operation->set_total_bytes(total_);
  double share = total_ == 0 ? 0 : static_cast<double>(done_) / static_cast<double>(total_);
  operation->set_percent(std::min(100.0, 100 * share));
  for (const std::string& note : notes_) operation->add_notes(note);
  if (!spans) return;
  for (const v1::Span& span : spans_) *operation->add_spans() = span;
}

}  // namespace stasis

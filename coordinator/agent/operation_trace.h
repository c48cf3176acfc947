// How far an operation is and what its time went into, as whoever works on it tells. Thread-safe.
#ifndef COORDINATOR_AGENT_OPERATION_TRACE_H_
#define COORDINATOR_AGENT_OPERATION_TRACE_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

class OperationTrace {
 public:
  explicit OperationTrace(const Clock& clock = Clock::Real()) : clock_(clock) {}

  // Spans count from here.
  void Start();
  // 0 where there are too many of them already: that one is not kept.
  uint32_t BeginSpan(std::string_view name, uint32_t parent, std::string_view rank);
  void EndSpan(uint32_t span, uint64_t bytes);
  void Progress(const std::string& phase, uint64_t done, uint64_t total);
  void Note(const std::string& sentence);
  // A ghost's. The ranks' events are one phase after the other: a phase begins when the first rank is in it,
  // and is as far as all that are in it are together.
  void TakeEvent(const std::string& rank, const Json& event);
  // Ends what goes on.
  void Finish();

  void Fill(v1::Operation* operation, bool spans) const;

 private:
  struct RankPhase {
    std::string phase;
    uint32_t span = 0;
    uint64_t done = 0, total = 0;
  };

  int64_t NowLocked() const;
  uint32_t BeginLocked(std::string_view name, uint32_t parent, std::string_view rank);
  void EndLocked(uint32_t span, uint64_t bytes);
  void AddUpLocked();

  const Clock& clock_;
  mutable std::mutex mutex_;
  MonotonicTime start_{};
  std::vector<v1::Span> spans_;  // by id
  std::vector<uint32_t> open_;   // of BeginSpan()
  std::vector<std::string> notes_;
  std::string phase_;
  uint64_t done_ = 0, total_ = 0;
  std::map<std::string, RankPhase> ranks_;
  std::set<std::string> seen_;  // phases of ranks
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATION_TRACE_H_

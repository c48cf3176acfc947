// MemoryCycle: how the active memory of a program rises and falls, from what it is told of each change.
//
// A cycle is what lies between two boundaries that the program tells. For a program that tells none it is
// what lies between two maxima: a history of the latest changes is searched for swings of more than half of
// its range, first as a whole and then in ever shorter ends, since the rise at the start of a program is
// often more than all that follows; cycles that ended long ago are none.
//
// The history has a fixed number of entries, each the least and the most of so many changes. When it is full
// the older half goes if enough cycles are in it; else two entries become one, so that longer cycles fit.
//
// Not thread-safe, like any value.
#ifndef VMM_MEMORY_CYCLE_H_
#define VMM_MEMORY_CYCLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace stasis::vmm {

class MemoryCycle {
 public:
  // In bytes. Every one of the latest cycles has come down to `low`, and none has gone above `high`.
  struct Learned {
    uint64_t low = 0, high = 0;
  };
  static constexpr size_t kLatestCycles = 4;
  static constexpr size_t kHistory = 2048;  // entries

  void Note(uint64_t bytes);
  void Boundary();
  uint64_t boundaries() const { return boundaries_; }
  // Nothing while there was no whole cycle.
  std::optional<Learned> Learn() const;

 private:
  struct Span {
    uint64_t least = 0, most = 0;
    void Add(uint64_t bytes);
    void Add(const Span& other);
  };

  struct Cycles {
    std::vector<Span> spans;              // oldest first
    size_t last_begin = 0, last_end = 0;  // of the last one, entries of the history
  };

  static std::optional<Learned> LearnFrom(const std::vector<Span>& cycles);
  // The cycles of the history from its entry `first` on.
  Cycles CyclesSince(size_t first) const;
  bool GoesOn(const Cycles& cycles) const;
  std::vector<Span> CyclesOfHistory() const;
  void MakeRoom();

  uint64_t bytes_ = 0;
  uint64_t boundaries_ = 0;
  Span iteration_;                // since the last boundary
  std::vector<Span> iterations_;  // the latest, oldest first
  std::vector<Span> history_;     // oldest first
  uint64_t changes_per_entry_ = 1, changes_of_last_ = 0;
};

}  // namespace stasis::vmm

#endif  // VMM_MEMORY_CYCLE_H_

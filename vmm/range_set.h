// RangeSet: a set of addresses as disjoint ranges, ordered by address and by size.
//
// Ranges that touch are one. Every operation costs the logarithm of the number of ranges. Not thread-safe,
// like any value.
#ifndef VMM_RANGE_SET_H_
#define VMM_RANGE_SET_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace stasis::vmm {

struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  friend bool operator==(const Range&, const Range&) = default;
};

class RangeSet {
 public:
  // Nothing of `range` may be in the set.
  void Add(Range range);
  // All of `range` must be in the set.
  void Remove(Range range);
  // Takes out whatever of `range` is in the set.
  void RemoveAny(Range range);

  bool Contains(Range range) const;
  // The whole range that contains `address`.
  std::optional<Range> Find(uint64_t address) const;
  // The smallest range of at least `size`; among equals the lowest.
  std::optional<Range> BestFit(uint64_t size) const;

  uint64_t bytes() const { return bytes_; }
  const std::map<uint64_t, uint64_t>& ranges() const { return by_address_; }  // begin -> end

 private:
  void Insert(Range range);
  void Erase(std::map<uint64_t, uint64_t>::iterator where);

  std::map<uint64_t, uint64_t> by_address_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // size, begin
  uint64_t bytes_ = 0;
};

}  // namespace stasis::vmm

#endif  // VMM_RANGE_SET_H_

#include "vmm/range_set.h"

#include <algorithm>
#include <iterator>

#include "base/status.h"

namespace stasis::vmm {

void RangeSet::Insert(Range range) {
  if (range.empty()) return;
  by_address_.emplace(range.begin, range.end);
  by_size_.emplace(range.size(), range.begin);
  bytes_ += range.size();
}

void RangeSet::Erase(std::map<uint64_t, uint64_t>::iterator where) {
  bytes_ -= where->second - where->first;
  by_size_.erase({where->second - where->first, where->first});
  by_address_.erase(where);
}

void RangeSet::Add(Range range) {
  if (range.empty()) return;
  auto next = by_address_.lower_bound(range.begin);
  if (next != by_address_.end()) {
    STASIS_CHECK(next->first >= range.end);
    if (next->first == range.end) {
      range.end = next->second;
      Erase(next++);
    }
  }
  if (next != by_address_.begin()) {
    auto previous = std::prev(next);
    STASIS_CHECK(previous->second <= range.begin);
    if (previous->second == range.begin) {
      range.begin = previous->first;
      Erase(previous);
    }
  }
  Insert(range);
}

void RangeSet::Remove(Range range) {
  if (range.empty()) return;
  STASIS_CHECK(Contains(range));
  RemoveAny(range);
}

void RangeSet::RemoveAny(Range range) {
  auto it = by_address_.upper_bound(range.begin);
  if (it != by_address_.begin()) --it;
  while (it != by_address_.end() && it->first < range.end) {
    const Range old{it->first, it->second};
    auto current = it++;
    if (old.end <= range.begin) continue;
    Erase(current);
    if (old.begin < range.begin) Insert({old.begin, range.begin});
    if (old.end > range.end) Insert({range.end, old.end});
  }
}

bool RangeSet::Contains(Range range) const {
  const std::optional<Range> found = Find(range.begin);
  return found && range.end <= found->end;
}

std::optional<Range> RangeSet::Find(uint64_t address) const {
  auto next = by_address_.upper_bound(address);
  if (next == by_address_.begin()) return std::nullopt;
  auto found = std::prev(next);
  if (address >= found->second) return std::nullopt;
  return Range{found->first, found->second};
}

std::optional<Range> RangeSet::BestFit(uint64_t size) const {
  auto found = by_size_.lower_bound({size, 0});
  if (found == by_size_.end()) return std::nullopt;
  return Range{found->second, found->second + found->first};
}

}  // namespace stasis::vmm

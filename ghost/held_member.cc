#include "ghost/held_member.h"

#include <algorithm>

namespace stasis {
namespace {

// Two chunks and their place in the manifest cost more than the bytes of a gap as small as this.
constexpr uint64_t kGapBytes = 4096;

bool ByAddress(const HeldExtent& a, const HeldExtent& b) { return a.extent.address < b.extent.address; }

unsigned long long Print(uint64_t value) { return value; }

// The extent that holds the byte at `address`; null when none does.
const HeldExtent* ExtentOf(const std::vector<HeldExtent>& extents, uint64_t address) {
  auto next = std::upper_bound(extents.begin(), extents.end(), address,
                               [](uint64_t value, const HeldExtent& e) { return value < e.extent.address; });
  if (next == extents.begin()) return nullptr;
  const HeldExtent& found = *--next;
  return address - found.extent.address < found.extent.size ? &found : nullptr;
}

void Append(const TaskExtent& extent, TaskRange range, std::vector<TaskRange>* out) {
  if (!out->empty()) {
    TaskRange& last = out->back();
    uint64_t end = last.address + last.size;
    if (last.address >= extent.address && range.address <= end + kGapBytes) {
      last.size = std::max(end, range.address + range.size) - last.address;
      return;
    }
  }
  out->push_back(range);
}

}  // namespace

uint64_t HeldMember::bytes() const {
  uint64_t total = 0;
  for (const HeldExtent& e : extents) total += e.extent.size;
  return total;
}

uint64_t HeldMember::active_bytes() const {
  uint64_t total = 0;
  for (const TaskRange& range : ranges) total += range.size;
  return total;
}

std::string HeldMember::stream() const { return ranges.empty() ? "" : "device-" + std::to_string(nspid); }

std::vector<Segment> HeldMember::Segments() const {
  std::vector<Segment> segments;
  for (const TaskRange& range : ranges) segments.push_back({range.address, range.size});
  return segments;
}

StreamMap::StreamMap(const HeldMember& member) {
  uint64_t offset = 0;
  for (const TaskRange& range : member.ranges) {
    const HeldExtent* e = ExtentOf(member.extents, range.address);
    STASIS_CHECK(e != nullptr && range.address - e->extent.address + range.size <= e->extent.size);
    parts_.push_back({offset, range.size, static_cast<size_t>(e - member.extents.data()),
                      range.address - e->extent.address});
    offset += range.size;
  }
}

const StreamPart& StreamMap::At(uint64_t offset) const {
  auto next = std::upper_bound(parts_.begin(), parts_.end(), offset,
                               [](uint64_t value, const StreamPart& part) { return value < part.offset; });
  STASIS_CHECK(next != parts_.begin());
  return *--next;
}

Status OrderExtents(std::vector<HeldExtent>* extents) {
  std::sort(extents->begin(), extents->end(), ByAddress);
  for (size_t i = 1; i < extents->size(); ++i) {
    const TaskExtent& before = (*extents)[i - 1].extent;
    const TaskExtent& after = (*extents)[i].extent;
    if (after.address - before.address < before.size) {
      return Errorf(StatusCode::kCorrupt, "two pieces of device memory at 0x%llx", Print(after.address));
    }
  }
  return Status();
}

Result<std::vector<TaskRange>> ActiveRanges(const std::vector<HeldExtent>& extents,
                                            std::vector<TaskRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const TaskRange& a, const TaskRange& b) { return a.address < b.address; });
  std::vector<TaskRange> active;
  for (const TaskRange& range : ranges) {
    if (range.size > UINT64_MAX - range.address)
      return Errorf(StatusCode::kCorrupt, "active memory at 0x%llx has no end", Print(range.address));
    for (uint64_t at = range.address, end = at + range.size; at < end;) {
      const HeldExtent* e = ExtentOf(extents, at);
      if (e == nullptr)
        return Errorf(StatusCode::kCorrupt, "active memory at 0x%llx, where no device memory is", Print(at));
      uint64_t size = std::min(end, e->extent.address + e->extent.size) - at;
      Append(e->extent, {at, size}, &active);
      at += size;
    }
  }
  return active;
}

}  // namespace stasis

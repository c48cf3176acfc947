#include "ghost/held_member.h"

#include <algorithm>
#include <set>

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
  for (const HeldExtent& e : extents) total += e.borrowed ? 0 : e.extent.size;
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

namespace {

void DropRanges(const TaskExtent& extent, std::vector<TaskRange>* ranges) {
  std::erase_if(*ranges, [&](const TaskRange& range) {
    return range.address >= extent.address && range.address - extent.address < extent.size;
  });
}

// What one process has no use for another may need.
void CoverWhole(const TaskExtent& extent, std::vector<TaskRange>* ranges) {
  DropRanges(extent, ranges);
  auto at = std::upper_bound(ranges->begin(), ranges->end(), extent.address,
                             [](uint64_t value, const TaskRange& range) { return value < range.address; });
  ranges->insert(at, {extent.address, extent.size});
}

}  // namespace

Status FindShared(std::vector<HeldMember>* members) {
  std::map<uint64_t, const HeldExtent*> holders;
  std::set<uint64_t> shared;
  for (HeldMember& member : *members) {
    for (HeldExtent& e : member.extents) {
      if (e.extent.share == 0) continue;
      const HeldExtent* holder = holders.emplace(e.extent.share, &e).first->second;
      if (holder == &e) continue;
      if (holder->extent.size != e.extent.size || holder->physical != e.physical)
        return Errorf(StatusCode::kCorrupt, "processes differ about the device memory that they share");
      e.borrowed = true;
      e.fd.Reset();
      shared.insert(e.extent.share);
      DropRanges(e.extent, &member.ranges);
    }
  }
  for (HeldMember& member : *members) {
    for (const HeldExtent& e : member.extents) {
      if (!e.borrowed && shared.count(e.extent.share) != 0) CoverWhole(e.extent, &member.ranges);
    }
  }
  return Status();
}

const HeldExtent* HolderOf(const std::vector<HeldMember>& members, const HeldExtent& extent) {
  if (!extent.borrowed) return &extent;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (!e.borrowed && e.extent.share == extent.extent.share) return &e;
    }
  }
  return nullptr;
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

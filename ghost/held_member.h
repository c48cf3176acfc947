// What the ghost knows of one process's device memory: the pieces of it, and which of their bytes count.
//
// The active bytes of a member, in ascending order of their addresses, are its stream. Copies read and write
// streams; what is not active is never copied, and comes back with any content.
#ifndef GHOST_HELD_MEMBER_H_
#define GHOST_HELD_MEMBER_H_

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "dedup/image.h"

namespace stasis {

struct HeldExtent {
  TaskExtent extent;
  int physical = 0;  // the device it is on, or was
  Fd fd;             // keeps the device memory alive; invalid when it is not on a device, or borrowed
  // The memory is that of another extent (TaskExtent::share), which holds it for both.
  bool borrowed = false;
};

// Physical devices by virtual ordinal, in the numbering that this process's driver has.
using Placements = std::map<int32_t, int32_t>;

struct HeldMember {
  pid_t nspid = 0;
  pid_t pid = 0;  // 0: not known at the moment
  TaskStrategy strategy = TaskStrategy::kReconstruct;
  int32_t driver_version = 0;
  std::vector<TaskDevice> devices;
  Placements placed;      // where they are, or were when their memory was handed over
  Placements placements;  // where they shall be
  // For kDriverCheckpoint: of all physical devices that its driver has, first those of `devices`, in their
  // order.
  std::vector<std::string> placed_uuids;
  std::vector<HeldExtent> extents;  // ascending, disjoint
  std::vector<TaskRange> ranges;    // active: ascending, disjoint, each within one extent

  // It has looked at devices: until then it sees none.
  bool sees_devices() const { return !devices.empty(); }
  uint64_t bytes() const;         // of the extents that are not borrowed
  uint64_t active_bytes() const;  // of the stream
  // "" when there is nothing to be saved.
  std::string stream() const;
  std::vector<Segment> Segments() const;
};

// A run of a member's stream that lies in one extent.
struct StreamPart {
  uint64_t offset = 0;  // in the stream
  uint64_t size = 0;
  size_t extent = 0;
  uint64_t inside = 0;  // offset in the extent
};

// Where each byte of a member's stream is. Constant.
class StreamMap {
 public:
  StreamMap() = default;
  explicit StreamMap(const HeldMember& member);
  // The run that holds the byte at `offset` of the stream.
  const StreamPart& At(uint64_t offset) const;
  // Calls part(extent, offset in it, piece of `bytes`) for the bytes of the stream from `offset` on.
  template <typename Bytes, typename Part>
  Status ForParts(uint64_t offset, Bytes bytes, const Part& part) const {
    for (const StreamPart* at = &At(offset); !bytes.empty(); ++at) {
      uint64_t skip = offset - at->offset;
      uint64_t size = std::min<uint64_t>(bytes.size(), at->size - skip);
      RETURN_IF_ERROR(part(at->extent, at->inside + skip, bytes.subspan(0, size)));
      bytes = bytes.subspan(size);
      offset += size;
    }
    return Status();
  }

 private:
  std::vector<StreamPart> parts_;
};

// Ascending by address. kCorrupt when two overlap: their bytes would be restored twice.
Status OrderExtents(std::vector<HeldExtent>* extents);
// `ranges` as a task tells them, in the form of HeldMember::ranges for these (ordered) extents. Neighbours
// with a gap of less than a page become one. kCorrupt for what lies outside of all extents: it could not be
// saved.
Result<std::vector<TaskRange>> ActiveRanges(const std::vector<HeldExtent>& extents,
                                            std::vector<TaskRange> ranges);

// Of extents that are the same memory all but the first become borrowed: no descriptor, no active range of
// their own. The first is active as a whole. kCorrupt when they are not of one size on one device.
Status FindShared(std::vector<HeldMember>* members);
// The extent that holds the memory of `extent`, which may be itself. Null: there is none.
const HeldExtent* HolderOf(const std::vector<HeldMember>& members, const HeldExtent& extent);

}  // namespace stasis

#endif  // GHOST_HELD_MEMBER_H_

// Where the device memory of a restore comes from: each chunk that several places hold is read from the store
// for one of them, and copied from device to device to the others. The places are those of all ranks of a job
// that are restored on one node; each of their ghosts makes the same plan from the same manifests.
#ifndef GHOST_FAN_PLAN_H_
#define GHOST_FAN_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"
#include "ghost/held_member.h"

namespace stasis {

// The device memory in one rank's image, by member.
struct RankMemory {
  std::vector<StreamMap> maps;
  std::vector<std::vector<uint64_t>> extent_bytes;
  std::vector<StreamLayout> layouts;         // empty where there is no stream
  std::vector<std::vector<Hash128>> chunks;  // as in the layout
};
// kCorrupt: the streams are not what the description of the processes says.
Result<RankMemory> RankMemoryOf(const std::vector<HeldMember>& members, const ImageManifest& image);
// The same with the processes that the image describes.
Result<RankMemory> RankMemoryOf(const ImageManifest& image);

struct MemoryPlace {
  size_t rank = 0;      // in the list that the plan was made of
  size_t member = 0;    // of that rank
  uint64_t offset = 0;  // in the member's stream
  bool operator==(const MemoryPlace&) const = default;
};

struct MemoryCopy {
  MemoryPlace from;
  MemoryPlace to;
  uint64_t size = 0;
};

// One rank's part. Constant.
class FanPlan {
 public:
  FanPlan(const std::vector<RankMemory>& ranks, size_t mine);

  // The chunk is read from the store, or is zero.
  bool Reads(size_t member, size_t chunk) const { return reads_[member][chunk]; }
  uint64_t read_bytes() const { return read_bytes_; }  // without zeros, before compression
  // From what this rank has read, and from what other ranks have read. Each copy is at most kPieceBytes long.
  const std::vector<MemoryCopy>& from_here() const { return from_here_; }
  const std::vector<MemoryCopy>& from_others() const { return from_others_; }

 private:
  std::vector<std::vector<bool>> reads_;  // [member][chunk]
  std::vector<MemoryCopy> from_here_, from_others_;
  uint64_t read_bytes_ = 0;
};

}  // namespace stasis

#endif  // GHOST_FAN_PLAN_H_

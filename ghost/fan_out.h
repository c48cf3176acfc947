// The device memory of a restore, where several ranks of a job come back on one node: each of their ghosts
// reads a part of what they have in common and gives the others the memory that it is in.
//
// Used by one thread at a time.
#ifndef GHOST_FAN_OUT_H_
#define GHOST_FAN_OUT_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dedup/image.h"
#include "ghost/extent_socket.h"
#include "ghost/fan_plan.h"
#include "ghost/gpu.h"
#include "ghost/holdings.h"
#include "ghost/memory_copy.h"

namespace stasis {

class FanOut {
 public:
  // One rank of the node. The socket is where its ghost gives its memory out.
  struct Peer {
    std::string task;
    std::string image;
    std::string socket;
  };
  // `image` is that of one of `peers`, or there are none. It and `store` outlive what is made. kNotFound,
  // kCorrupt: an image of another rank.
  static Result<std::unique_ptr<FanOut>> Plan(Store& store, const ImageReader& image,
                                              std::vector<Peer> peers);

  // What this rank reads, into new memory on the devices that the members of `holdings` say; afterwards the
  // other ranks may copy it, as long as this object lives. Errors as of Holdings::CopyToDevice().
  Status Load(Gpu& gpu, Holdings& holdings, const CopyContext& context);
  // The rest. All ranks have done Load(), and none of their programs runs before all have done this.
  Status Fetch(Gpu& gpu, const Holdings& holdings, const CopyContext& context);

  // What has been read from the store, and what was copied from device to device instead.
  uint64_t read_bytes() const { return read_bytes_; }
  uint64_t fanned_out_bytes() const { return fanned_out_bytes_; }
  // For people: what could not be copied from other ranks' memory.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // Another rank's extent, mapped for copies to one device.
  struct MappingKey {
    size_t rank = 0;
    ExtentName extent;
    int device = 0;
    auto operator<=>(const MappingKey&) const = default;
  };
  using Mappings = std::map<MappingKey, GpuMemory>;

  FanOut(const ImageReader& image, std::vector<Peer> peers, std::vector<RankMemory> ranks, size_t mine);
  static MappingKey KeyOf(const MemoryPlace& place, size_t extent, int device);
  std::vector<MappingKey> NeededFor(const MemoryCopy& copy, const DeviceMemory& memory) const;
  Result<Mappings> MapOthers(Gpu& gpu, const DeviceMemory& memory);
  Status MapRank(Gpu& gpu, size_t rank, const std::vector<MappingKey>& keys, Mappings* mappings);

  const ImageReader& image_;
  const std::vector<Peer> peers_;
  const std::vector<RankMemory> ranks_;
  const size_t mine_;
  const FanPlan plan_;
  std::unique_ptr<ExtentServer> server_;
  uint64_t read_bytes_ = 0, fanned_out_bytes_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace stasis

#endif  // GHOST_FAN_OUT_H_

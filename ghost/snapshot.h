// A second copy of a task's active device memory, taken while the task stands still and written while it runs
// again: on the device where there is room, else in host memory.
//
// Made of blocks, runs of pieces, so that what has been written is given back while the rest is still needed.
// Thread-safe.
#ifndef GHOST_SNAPSHOT_H_
#define GHOST_SNAPSHOT_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "base/status.h"
#include "ghost/gpu.h"
#include "ghost/held_member.h"
#include "ghost/memory_copy.h"

namespace stasis {

enum class SnapshotMode : int { kAuto = 0, kDevice, kHost, kOff };
// "auto", "device", "host", "off"
bool FindSnapshotMode(const std::string& name, SnapshotMode* mode);

// That part of the host memory that can be had (FreeHostRoom()), in bytes.
uint64_t HostShare(unsigned percent);

class Snapshot final : public MemorySource {
 public:
  enum class Place { kDevice, kHost };
  // Of members whose memory is on devices. `host_limit`: bytes of host memory that it may take, now or when
  // it gives the device up. kResourceExhausted: there is no room at that place. `gpu` outlives it.
  static Result<std::unique_ptr<Snapshot>> Take(Gpu& gpu, const std::vector<HeldMember>& members,
                                                const Layouts& layouts, Place place, uint64_t host_limit);
  ~Snapshot() override;

  Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) override;
  void Done(const MemberPiece& piece) override;
  std::optional<DevicePlace> Locate(const MemberPiece& piece, uint64_t offset, uint64_t size) override;
  std::shared_lock<std::shared_mutex> KeepPlaces() override { return std::shared_lock(places_mutex_); }
  Status ReadPart(const MemberPiece& piece, uint64_t offset, std::span<std::byte> out) override;

  Place place() const { return place_; }
  // What it holds now, by physical device.
  std::map<int, uint64_t> DeviceBytes() const;
  // Takes what has not been written to host memory and frees all device memory. kResourceExhausted when that
  // is beyond the limit: then the device memory is free all the same, and every later Read() fails with this.
  Status GiveUpDevice();
  // GiveUpDevice() was called while it held device memory.
  bool gave_up() const { return gave_up_; }

 private:
  // Pieces of one member that follow each other.
  struct Block {
    size_t member = 0;
    uint64_t offset = 0;  // in the stream
    uint64_t size = 0;
    int device = 0;
    GpuMemory on_device;  // guarded by mutex, as the next
    Mapping in_host;
    std::shared_mutex mutex;
    std::atomic<size_t> left{0};  // pieces that have not been used
  };

  Snapshot(Gpu& gpu, Place place, uint64_t host_limit) : gpu_(gpu), place_(place), host_limit_(host_limit) {}
  void Plan(size_t member, const StreamLayout& layout, const HeldMember& held);
  Status CheckFits() const;
  Status Fill(const std::vector<HeldMember>& members);
  Status FillBlock(Block& block, const StreamMap& map, const std::vector<GpuMemory>& extents);
  // Host memory as large as the block, which `read` has filled from its device.
  Result<Mapping> InHost(const Block& block, const std::function<Status(std::span<std::byte>)>& read);
  Status ToHost(Block& block);
  void Lose(const Status& why);

  Gpu& gpu_;
  const Place place_;
  const uint64_t host_limit_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::vector<Block*>> by_piece_;  // [member][piece]
  std::atomic<bool> gave_up_{false};
  std::shared_mutex places_mutex_;  // held exclusively while the device is given up; taken first of all
  mutable std::shared_mutex lost_mutex_;
  Status lost_;  // guarded by lost_mutex_; taken before a block's
};

}  // namespace stasis

#endif  // GHOST_SNAPSHOT_H_

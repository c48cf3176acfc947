// The device memory of a task that the ghost holds while the task does not: on the device, in host memory, or
// in an image.
//
// Used by one thread at a time.
#ifndef GHOST_HOLDINGS_H_
#define GHOST_HOLDINGS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "dedup/image.h"
#include "dedup/json.h"
#include "ghost/fan_plan.h"
#include "ghost/gpu.h"
#include "ghost/held_member.h"
#include "ghost/memory_copy.h"

namespace stasis {

enum class Residency : int { kDevice = 0, kHost, kDisk };
const char* ResidencyName(Residency residency);  // "device", "host", "disk"
bool FindResidency(const std::string& name, Residency* residency);

class Holdings {
 public:
  std::vector<HeldMember> members;

  bool empty() const { return members.empty(); }
  uint64_t bytes() const;         // of extents
  uint64_t active_bytes() const;  // of streams
  std::map<int, uint64_t> ActiveBytesByDevice() const;
  size_t extent_count() const;
  // What is given up when the task runs again.
  void Clear();

  // Where a copy is. A task that is being resumed has two: the one it was held in and the one on the device.
  bool on_device() const;
  bool in_host() const { return arena_.valid(); }
  bool on_disk() const { return disk_; }
  uint64_t device_bytes() const;  // now on devices

  // Device -> host memory (a memfd), -> image kHeldImage of `task`. The device memory is still held
  // afterwards.
  Status CopyToHost(Gpu& gpu, const CopyContext& context);
  Status CopyToDisk(Gpu& gpu, std::shared_ptr<Store> store, const std::string& task,
                    const CopyContext& context);
  // Gives up one of several copies.
  void DropDevice();
  void DropHost() { arena_.Reset(); }
  void DropDisk();
  // From the copy that there is to new memory on the devices that `placements` of the members say. Checks for
  // room first: kResourceExhausted says what is needed and free.
  Status CopyToDevice(Gpu& gpu, const CopyContext& context);
  // From an image, of which `own` is the memory, what the plan says that is to be had without other ranks.
  Status LoadFromImage(Gpu& gpu, const ImageReader& image, const RankMemory& own, const FanPlan& plan,
                       const CopyContext& context);
  // Device to device where `placements` differ from where the extents are. The old memory is returned in
  // *old, to be dropped, or put back with PutBack().
  Status Move(Gpu& gpu, std::vector<std::vector<HeldExtent>>* old);
  void PutBack(std::vector<std::vector<HeldExtent>> old);

  std::vector<std::string> StreamNames() const;  // by member
  Status AddStreams(ImageWriter& image) const;
  // Writes all streams, which have been added; `gpu` is needed only if the only copy is on devices.
  Status Save(Gpu* gpu, ImageWriter& image, const CopyContext& context) const;

  // For another process: everything but descriptors as JSON, descriptors in a fixed order (the arena last).
  Json Describe() const;
  std::vector<Fd> Descriptors() const;
  // A copy on disk is that of `task`; it needs UseStore() before it can be read.
  static Result<Holdings> Adopt(const Json& description, std::vector<Fd> fds, const std::string& task);
  void UseStore(std::shared_ptr<Store> store);

 private:
  std::vector<StreamLayout> OwnLayouts() const;
  // Of the host memory that is held.
  std::unique_ptr<MemorySource> SourceOfArena() const;
  Result<std::unique_ptr<ImageReader>> OpenHeldImage() const;
  Status CheckRoom(Gpu& gpu) const;
  // New memory for all extents, filled by `fill`.
  Status FillDevice(Gpu& gpu, const std::function<Status(DeviceMemory& memory)>& fill);
  Status FillFromArena(Gpu& gpu, const CopyContext& context);
  Status FillFromImage(Gpu& gpu, const ImageReader& image, const RankMemory& own, const FanPlan& plan,
                       const CopyContext& context);

  Fd arena_;
  bool disk_ = false;  // image kHeldImage of task_
  std::shared_ptr<Store> store_;
  std::string task_;
  std::string key_;  // of the image, where it is encrypted: ImageWriter::HandOver()
};

// OK when each of these devices has that much free; kResourceExhausted says what is needed and free.
Status CheckDeviceRoom(Gpu& gpu, const std::map<int, uint64_t>& needs);
// The image's streams are what the members say.
Status CheckStreams(const std::vector<HeldMember>& members, const ImageReader& image);
// "3.0 GiB"
std::string SizeText(uint64_t bytes);

}  // namespace stasis

#endif  // GHOST_HOLDINGS_H_

// The device memory of a task that the ghost holds while the task does not: on the device, in host memory, or
// in an image.
//
// Each member's extents lie one after another in one stream of bytes; copies go by chunks of that stream.
// Used by one thread at a time.
#ifndef GHOST_HOLDINGS_H_
#define GHOST_HOLDINGS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "ghost/gpu.h"
#include "ghost/image.h"
#include "ghost/member.h"

namespace stasis {

enum class Residency : int { kDevice = 0, kHost, kDisk };
const char* ResidencyName(Residency residency);  // "device", "host", "disk"
bool FindResidency(const std::string& name, Residency* residency);

struct HeldExtent {
  TaskExtent extent;
  int physical = 0;     // the device it is on, or was
  uint64_t offset = 0;  // in the member's stream
  Fd fd;                // keeps the device memory alive; invalid when it is not on a device
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
  std::vector<std::string>
      placed_uuids;  // of the physical devices, in the order of `devices`; for kDriverCheckpoint
  std::vector<HeldExtent> extents;

  uint64_t bytes() const { return extents.empty() ? 0 : extents.back().offset + extents.back().extent.size; }
  std::string stream() const { return extents.empty() ? "" : "device-" + std::to_string(nspid); }
};

// Reads pieces of the members' streams.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // `size` bytes at `offset` of the stream of members[member]: in `staging` (of that size), or in place.
  // Called by several threads at once. Offsets are multiples of kImageChunk.
  virtual Result<std::span<const std::byte>> Read(size_t member, uint64_t offset,
                                                  std::span<std::byte> staging) = 0;
};

struct CopyContext {
  Progress* progress = nullptr;        // told of every chunk; may be null
  const CancelFlag* cancel = nullptr;  // may be null
};

class Holdings {
 public:
  std::vector<HeldMember> members;

  bool empty() const { return members.empty(); }
  uint64_t bytes() const;
  size_t extent_count() const;
  // What is given up when the task runs again.
  void Clear();

  // Where a copy is. A task that is being resumed has two: the one it was held in and the one on the device.
  bool on_device() const;
  bool in_host() const { return arena_.valid(); }
  bool on_disk() const { return !disk_folder_.empty(); }
  uint64_t device_bytes() const;  // now on devices

  // Device -> host memory (a memfd), -> image `folder`/`id`. The device memory is still held afterwards.
  Status CopyToHost(Gpu& gpu, const CopyContext& context);
  Status CopyToDisk(Gpu& gpu, const std::string& folder, const std::string& id, const CopyContext& context);
  // Gives up one of several copies.
  void DropDevice();
  void DropHost() { arena_.Reset(); }
  void DropDisk();
  // From the copy that there is to new memory on the devices that `placements` of the members say. Checks for
  // room first: kResourceExhausted says what is needed and free.
  Status CopyToDevice(Gpu& gpu, const CopyContext& context);
  // The same from an image.
  Status LoadFromImage(Gpu& gpu, const FolderImageReader& image, const CopyContext& context);
  // Device to device where `placements` differ from where the extents are. The old memory is returned in
  // *old, to be dropped, or put back with Restore().
  Status Move(Gpu& gpu, std::vector<std::vector<HeldExtent>>* old);
  void PutBack(std::vector<std::vector<HeldExtent>> old);
  // A second copy of all of it on the same devices. kResourceExhausted when it does not fit.
  Result<Holdings> Duplicate(Gpu& gpu) const;

  // Writes all streams; `gpu` is needed only if the only copy is on devices.
  Status Save(Gpu* gpu, FolderImageWriter& image, const CopyContext& context) const;

  // For another process: everything but descriptors as JSON, descriptors in a fixed order (the arena last).
  Json Describe() const;
  std::vector<Fd> Descriptors() const;
  static Result<Holdings> Adopt(const Json& description, std::vector<Fd> fds);

 private:
  Result<std::unique_ptr<MemorySource>> OpenSource(Gpu* gpu) const;
  Status CheckRoom(Gpu& gpu) const;
  Status FillDevice(Gpu& gpu, MemorySource& source, const CopyContext& context);

  Fd arena_;
  std::string disk_folder_;
  std::string disk_id_;
};

// "needs 3.0 GiB"
std::string SizeText(uint64_t bytes);

}  // namespace stasis

#endif  // GHOST_HOLDINGS_H_

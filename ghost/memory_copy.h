// Copying the streams of device memory, piece by piece, on a few threads.
#ifndef GHOST_MEMORY_COPY_H_
#define GHOST_MEMORY_COPY_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/status.h"
#include "dedup/image.h"
#include "ghost/device_save.h"
#include "ghost/gpu.h"
#include "ghost/held_member.h"
#include "ghost/member.h"

namespace stasis {

// What saving has done, for people.
struct SaveReport {
  std::atomic<uint64_t> copied_bytes{0};  // from devices
  uint64_t hashed_bytes = 0;              // on devices
  std::vector<std::string> notes;
};

struct CopyContext {
  Progress* progress = nullptr;        // told of every piece; may be null
  const CancelFlag* cancel = nullptr;  // may be null
  // Of saving from devices alone.
  DeviceHashMode device_hash = DeviceHashMode::kOff;
  SaveReport* report = nullptr;  // may be null
  bool shared = false;           // other ranks write what they have in common with this one
};

// How each member's stream is cut, by member: one without bytes has an empty layout. Not owned.
using Layouts = std::vector<const StreamLayout*>;

// One piece of one member's stream.
struct MemberPiece {
  size_t member = 0;
  size_t index = 0;  // among the pieces of its layout
  Piece piece;
};

// Gives the bytes of pieces. Called by several threads at once, for each piece once.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  // In `staging` (as long as the piece), or in place: good until Done().
  virtual Result<std::span<const std::byte>> Read(const MemberPiece& piece, std::span<std::byte> staging) = 0;
  // The piece has been used.
  virtual void Done(const MemberPiece&) {}

  // Where [offset, offset + size) of the member's stream, within the piece, is when it is in one run of
  // device memory; nothing when it is not.
  virtual std::optional<DevicePlace> Locate(const MemberPiece&, uint64_t, uint64_t) { return std::nullopt; }
  // While the lock is held, what Locate() says remains true.
  virtual std::shared_lock<std::shared_mutex> KeepPlaces() { return {}; }
  // A part of a piece of which something could be located, from `offset` of the stream on.
  virtual Status ReadPart(const MemberPiece&, uint64_t offset, std::span<std::byte> out);
};

// From memory on devices.
using DeviceMemory = std::vector<std::vector<GpuMemory>>;  // by member and extent
Result<DeviceMemory> ImportAll(Gpu& gpu, const std::vector<HeldMember>& members);
std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, DeviceMemory memory);
// From a file that outlives the source, in which the members' streams begin at `starts`.
std::unique_ptr<MemorySource> SourceOf(std::vector<uint64_t> starts, int file);
// From an image that outlives the source; its streams have the members' names.
std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, const ImageReader& image);

// Takes every piece from `source` to `sink`, through staging memory that is pinned in `gpu`.
Status CopyPieces(const Layouts& layouts, MemorySource& source, Gpu& gpu, const CopyContext& context,
                  const std::function<Status(const MemberPiece&, std::span<const std::byte>)>& sink);

// One piece into the stream `name` of an image. `staging` is as long as the piece.
Status SavePiece(MemorySource& source, const MemberPiece& piece, std::span<std::byte> staging,
                 const std::string& name, ImageWriter& image);
// Every stream; `names` by member. They have been added to the image, which has the layouts. `gpu` is null
// unless the source is on devices.
Status SaveStreams(const std::vector<std::string>& names, MemorySource& source, Gpu* gpu, ImageWriter& image,
                   const CopyContext& context);

}  // namespace stasis

#endif  // GHOST_MEMORY_COPY_H_

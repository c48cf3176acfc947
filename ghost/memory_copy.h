// Copying the streams of device memory, piece by piece, on a few threads.
#ifndef GHOST_MEMORY_COPY_H_
#define GHOST_MEMORY_COPY_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapping.h"
#include "base/progress.h"
#include "base/status.h"
#include "dedup/image.h"
#include "ghost/gpu.h"
#include "ghost/held_member.h"
#include "ghost/member.h"

namespace stasis {

struct CopyContext {
  Progress* progress = nullptr;        // told of every piece; may be null
  const CancelFlag* cancel = nullptr;  // may be null
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
};

// From memory on devices.
using DeviceMemory = std::vector<std::vector<GpuMemory>>;  // by member and extent
Result<DeviceMemory> ImportAll(Gpu& gpu, const std::vector<HeldMember>& members);
std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, DeviceMemory memory);
// From host memory in which the member's streams begin at `starts`.
std::unique_ptr<MemorySource> SourceOf(std::vector<uint64_t> starts, Mapping arena);
// From an image that outlives the source; its streams have the members' names.
std::unique_ptr<MemorySource> SourceOf(const std::vector<HeldMember>& members, const ImageReader& image);

// Takes every piece from `source` to `sink`. `place` may name the memory that a piece goes to; else staging
// memory is used, pinned in `gpu` if that is not null.
Status CopyPieces(const Layouts& layouts, MemorySource& source, Gpu* gpu, const CopyContext& context,
                  const std::function<std::span<std::byte>(const MemberPiece&)>& place,
                  const std::function<Status(const MemberPiece&, std::span<const std::byte>)>& sink);

// One piece into the stream `name` of an image: the only place where device memory enters a store. `staging`
// is as long as the piece.
Status SavePiece(MemorySource& source, const MemberPiece& piece, std::span<std::byte> staging,
                 const std::string& name, ImageWriter& image);
// Every stream; `names` by member. They have been added to the image, which has the layouts.
Status SaveStreams(const std::vector<std::string>& names, MemorySource& source, Gpu* gpu, ImageWriter& image,
                   const CopyContext& context);

}  // namespace stasis

#endif  // GHOST_MEMORY_COPY_H_

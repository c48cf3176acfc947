#include "ghost/fan_plan.h"

#include <algorithm>
#include <unordered_map>

#include "dedup/live_chunks.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

// Neighbours stay together, so that copies are long: in groups of so many chunks the ranks take turns.
constexpr size_t kTurn = kPieceBytes / kDefaultChunkBytes;

// Where a rank holds a chunk for the first time.
struct Holder {
  size_t rank = 0, member = 0, chunk = 0;
};
// By rank, ascending.
using Holders = std::unordered_map<Hash128, std::vector<Holder>, HashLowBits>;

// Of the chunks that `mine` has.
Holders FindHolders(const std::vector<RankMemory>& ranks, size_t mine) {
  Holders holders;
  for (const std::vector<Hash128>& chunks : ranks[mine].chunks) {
    for (const Hash128& hash : chunks) {
      if (hash != kZeroChunk) holders[hash];
    }
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (size_t member = 0; member < ranks[rank].chunks.size(); ++member) {
      const std::vector<Hash128>& chunks = ranks[rank].chunks[member];
      for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
        auto found = holders.find(chunks[chunk]);
        if (found == holders.end()) continue;
        std::vector<Holder>& list = found->second;
        if (list.empty() || list.back().rank != rank) list.push_back({rank, member, chunk});
      }
    }
  }
  return holders;
}

// Who reads it: the same for every rank that asks.
const Holder& ReaderOf(const std::vector<Holder>& holders) {
  return holders[holders.front().chunk / kTurn % holders.size()];
}

// As a part of the last copy if it goes on where that ends.
void Append(const MemoryCopy& copy, std::vector<MemoryCopy>* copies) {
  if (!copies->empty()) {
    MemoryCopy& last = copies->back();
    MemoryPlace from = last.from, to = last.to;
    from.offset += last.size;
    to.offset += last.size;
    if (from == copy.from && to == copy.to && last.size + copy.size <= kPieceBytes) {
      last.size += copy.size;
      return;
    }
  }
  copies->push_back(copy);
}

HeldMember MemberOf(const ManifestMember& described) {
  HeldMember member;
  member.nspid = described.nspid;
  for (const TaskExtent& extent : described.extents) member.extents.push_back({extent, 0, Fd(), false});
  member.ranges = described.ranges;
  return member;
}

}  // namespace

Result<RankMemory> RankMemoryOf(const std::vector<HeldMember>& members, const ImageManifest& image) {
  RankMemory memory;
  for (const HeldMember& member : members) {
    memory.maps.emplace_back(member);
    memory.extent_bytes.emplace_back();
    for (const HeldExtent& e : member.extents) memory.extent_bytes.back().push_back(e.extent.size);
    memory.layouts.emplace_back();
    memory.chunks.emplace_back();
    if (member.ranges.empty()) continue;
    auto stream = std::find_if(image.streams.begin(), image.streams.end(),
                               [&](const ManifestStream& s) { return s.name == member.stream(); });
    if (stream == image.streams.end() || stream->segments != member.Segments()) {
      return Status(StatusCode::kCorrupt, "image " + image.task + "/" + image.id +
                                              ": the device memory does not fit its description");
    }
    memory.layouts.back() = StreamLayout(stream->segments, image.chunk_bytes);
    memory.chunks.back() = stream->chunks;
  }
  return memory;
}

Result<RankMemory> RankMemoryOf(const ImageManifest& image) {
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(image.meta));
  std::vector<HeldMember> members;
  for (const ManifestMember& member : manifest.members) members.push_back(MemberOf(member));
  RETURN_IF_ERROR(FindShared(&members));
  return RankMemoryOf(members, image);
}

FanPlan::FanPlan(const std::vector<RankMemory>& ranks, size_t mine) {
  Holders holders = FindHolders(ranks, mine);
  const RankMemory& own = ranks[mine];
  for (size_t member = 0; member < own.chunks.size(); ++member) {
    const StreamLayout& layout = own.layouts[member];
    reads_.emplace_back(layout.chunk_count(), true);
    for (size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      const Hash128& hash = own.chunks[member][chunk];
      if (hash == kZeroChunk) continue;
      const Holder& reader = ReaderOf(holders.at(hash));
      const StreamLayout& source = ranks[reader.rank].layouts[reader.member];
      uint64_t size = layout.ChunkSize(chunk);
      bool itself = reader.rank == mine && reader.member == member && reader.chunk == chunk;
      // Two sizes for one hash are a damage, which reading will name.
      if (itself || source.ChunkSize(reader.chunk) != size) {
        read_bytes_ += size;
        continue;
      }
      reads_[member][chunk] = false;
      MemoryCopy copy{{reader.rank, reader.member, source.ChunkOffset(reader.chunk)},
                      {mine, member, layout.ChunkOffset(chunk)},
                      size};
      Append(copy, reader.rank == mine ? &from_here_ : &from_others_);
    }
  }
}

}  // namespace stasis

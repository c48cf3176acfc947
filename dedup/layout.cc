#include <algorithm>

#include "dedup/image.h"

namespace stasis {
namespace {

constexpr uint64_t kMaxStreamBytes = 1ull << 62;

std::vector<Piece> CutIntoPieces(const std::vector<uint64_t>& ends) {
  std::vector<Piece> pieces;
  uint64_t begin = 0;
  for (size_t chunk = 0; chunk < ends.size(); ++chunk) {
    uint64_t size = ends[chunk] - begin;
    if (pieces.empty() || pieces.back().size + size > kPieceBytes) pieces.push_back({begin, 0, chunk, 0});
    pieces.back().size += size;
    pieces.back().chunks++;
    begin = ends[chunk];
  }
  return pieces;
}

}  // namespace

std::optional<uint64_t> StreamLayout::CountChunks(std::span<const Segment> segments, uint64_t chunk_bytes) {
  uint64_t total = 0, chunks = 0;
  for (const Segment& segment : segments) {
    if (segment.size == 0 || segment.size > kMaxStreamBytes - total) return std::nullopt;
    uint64_t last = segment.address + (segment.size - 1);
    if (last < segment.address) return std::nullopt;
    total += segment.size;
    chunks += last / chunk_bytes - segment.address / chunk_bytes + 1;
  }
  return chunks;
}

StreamLayout::StreamLayout(std::vector<Segment> segments, uint64_t chunk_bytes)
    : segments_(std::move(segments)) {
  std::optional<uint64_t> chunks = CountChunks(segments_, chunk_bytes);
  STASIS_CHECK(chunks.has_value());
  ends_.reserve(*chunks);
  for (const Segment& segment : segments_) {
    for (uint64_t at = 0; at < segment.size;) {
      at += std::min(chunk_bytes - (segment.address + at) % chunk_bytes, segment.size - at);
      ends_.push_back(size_ + at);
    }
    size_ += segment.size;
  }
  pieces_ = CutIntoPieces(ends_);
}

}  // namespace stasis

#include <gtest/gtest.h>

#include <random>

#include "dedup/image.h"

namespace stasis {
namespace {

constexpr uint64_t kUnit = 4096;

TEST(StreamLayoutTest, ChunksEndAtMultiplesOfTheAddress) {
  StreamLayout layout({{kUnit - 10, 20}, {5 * kUnit, 2 * kUnit + 1}}, kUnit);
  EXPECT_EQ(layout.size(), 20 + 2 * kUnit + 1);
  ASSERT_EQ(layout.chunk_count(), 5u);
  EXPECT_EQ(layout.ChunkSize(0), 10u);
  EXPECT_EQ(layout.ChunkSize(1), 10u);
  EXPECT_EQ(layout.ChunkSize(2), kUnit);
  EXPECT_EQ(layout.ChunkOffset(3), 20 + kUnit);
  EXPECT_EQ(layout.ChunkSize(4), 1u);
}

TEST(StreamLayoutTest, NothingHasNoChunks) {
  StreamLayout layout({}, kUnit);
  EXPECT_EQ(layout.size(), 0u);
  EXPECT_EQ(layout.chunk_count(), 0u);
  EXPECT_TRUE(layout.pieces().empty());
}

TEST(StreamLayoutTest, TheLastByteOfTheAddressSpaceCounts) {
  std::vector<Segment> last = {{UINT64_MAX - kUnit + 1, kUnit}};
  EXPECT_EQ(StreamLayout::CountChunks(last, kUnit), 1u);
  EXPECT_EQ(StreamLayout(last, kUnit).chunk_count(), 1u);
}

TEST(StreamLayoutTest, SegmentsThatCannotBeAreRefused) {
  for (const std::vector<Segment>& segments :
       std::vector<std::vector<Segment>>{{{0, 0}},
                                         {{1, UINT64_MAX}},
                                         {{UINT64_MAX, 2}},
                                         {{0, 1ull << 62}, {0, 1}},
                                         {{0, 1ull << 61}, {0, 1ull << 61}, {5, 1}}}) {
    EXPECT_EQ(StreamLayout::CountChunks(segments, kUnit), std::nullopt);
  }
}

void CheckChunks(const StreamLayout& layout, uint64_t unit) {
  uint64_t offset = 0;
  size_t chunk = 0;
  for (const Segment& segment : layout.segments()) {
    for (uint64_t end = offset + segment.size, address = segment.address; offset < end; ++chunk) {
      ASSERT_LT(chunk, layout.chunk_count());
      ASSERT_EQ(layout.ChunkOffset(chunk), offset);
      uint64_t size = layout.ChunkSize(chunk);
      ASSERT_TRUE((address + size) % unit == 0 || offset + size == end);
      ASSERT_EQ(address / unit, (address + size - 1) / unit);
      offset += size;
      address += size;
    }
  }
  EXPECT_EQ(chunk, layout.chunk_count());
  EXPECT_EQ(offset, layout.size());
}

void CheckPieces(const StreamLayout& layout) {
  uint64_t offset = 0;
  size_t chunk = 0;
  for (const Piece& piece : layout.pieces()) {
    ASSERT_EQ(piece.offset, offset);
    ASSERT_EQ(piece.first_chunk, chunk);
    ASSERT_GT(piece.chunks, 0u);
    ASSERT_LE(piece.size, kPieceBytes);
    offset += piece.size;
    chunk += piece.chunks;
    ASSERT_EQ(chunk == layout.chunk_count() ? layout.size() : layout.ChunkOffset(chunk), offset);
  }
  EXPECT_EQ(chunk, layout.chunk_count());
}

TEST(StreamLayoutTest, ChunksAndPiecesCoverWhatIsThere) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 300; ++round) {
    uint64_t unit = kUnit << random() % 9;
    std::vector<Segment> segments(random() % 20);
    for (Segment& segment : segments)
      segment = {random() >> 2, 1 + random() % (round % 10 == 0 ? 9 << 20 : 3 * unit)};
    StreamLayout layout(segments, unit);
    EXPECT_EQ(StreamLayout::CountChunks(segments, unit), layout.chunk_count());
    ASSERT_NO_FATAL_FAILURE(CheckChunks(layout, unit));
    ASSERT_NO_FATAL_FAILURE(CheckPieces(layout));
  }
}

}  // namespace
}  // namespace stasis

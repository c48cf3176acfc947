#include "ghost/fan_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace stasis {
namespace {

constexpr uint64_t kChunk = kDefaultChunkBytes;
constexpr uint64_t kAddress = 0x7f0000000000;

Hash128 Named(uint64_t name) { return name == 0 ? kZeroChunk : Hash128{name, name * 77}; }

// One process whose memory begins at a chunk's begin and holds these chunks; 0 is a zero one.
RankMemory Rank(const std::vector<uint64_t>& names, uint64_t last_bytes = kChunk) {
  RankMemory rank;
  HeldMember member;
  member.nspid = 2;
  uint64_t size = (names.size() - 1) * kChunk + last_bytes;
  member.extents.push_back({{1, 0, kAddress, size, 0, 0}, 0, Fd(), false});
  member.ranges = {{kAddress, size}};
  rank.layouts.emplace_back(member.Segments(), kChunk);
  rank.maps.emplace_back(member);
  rank.extent_bytes.push_back({size});
  rank.chunks.emplace_back();
  for (uint64_t name : names) rank.chunks.back().push_back(Named(name));
  return rank;
}

uint64_t Bytes(const std::vector<MemoryCopy>& copies) {
  uint64_t bytes = 0;
  for (const MemoryCopy& copy : copies) bytes += copy.size;
  return bytes;
}

// Follows the plans of all ranks and looks at what comes out.
void ExpectComplete(const std::vector<RankMemory>& ranks) {
  using Content = std::vector<std::vector<Hash128>>;  // [rank][chunk]
  Content content;
  std::vector<FanPlan> plans;
  std::map<std::pair<uint64_t, uint64_t>, int> reads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    plans.emplace_back(ranks, rank);
    const std::vector<Hash128>& chunks = ranks[rank].chunks[0];
    content.emplace_back(chunks.size(), Hash128{99, 99});
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      if (!plans[rank].Reads(0, chunk)) continue;
      content[rank][chunk] = chunks[chunk];
      if (chunks[chunk] != kZeroChunk) ++reads[{chunks[chunk].high, chunks[chunk].low}];
    }
  }
  for (auto [hash, times] : reads) EXPECT_EQ(times, 1) << hash.first;
  const Content loaded = content;
  for (const FanPlan& plan : plans) {
    for (const auto* copies : {&plan.from_here(), &plan.from_others()}) {
      for (const MemoryCopy& copy : *copies) {
        EXPECT_LE(copy.size, kPieceBytes);
        for (uint64_t at = 0; at < copy.size; at += kChunk) {
          content[copy.to.rank][(copy.to.offset + at) / kChunk] =
              loaded[copy.from.rank][(copy.from.offset + at) / kChunk];
        }
      }
    }
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    EXPECT_TRUE(content[rank] == ranks[rank].chunks[0]) << rank;
}

TEST(FanPlanTest, AloneEverythingIsReadOnce) {
  std::vector<RankMemory> ranks;
  ranks.push_back(Rank({1, 0, 2, 1, 3, 1}, 100));
  ranks[0].chunks[0][5] = Named(4);
  FanPlan plan(ranks, 0);
  EXPECT_EQ(plan.read_bytes(), 3 * kChunk + 100);
  ASSERT_EQ(plan.from_here().size(), 1u);
  EXPECT_EQ(plan.from_here()[0].from.offset, 0u);
  EXPECT_EQ(plan.from_here()[0].to.offset, 3 * kChunk);
  EXPECT_TRUE(plan.from_others().empty());
  EXPECT_TRUE(plan.Reads(0, 1)) << "zeros are written";
  ExpectComplete(ranks);
}

TEST(FanPlanTest, ReplicasAreReadByTurns) {
  std::vector<uint64_t> names;
  for (uint64_t i = 1; i <= 1000; ++i) names.push_back(i);
  std::vector<RankMemory> ranks;
  for (int i = 0; i < 4; ++i) ranks.push_back(Rank(names));
  uint64_t read = 0;
  for (size_t i = 0; i < 4; ++i) {
    FanPlan plan(ranks, i);
    EXPECT_GT(plan.read_bytes(), 180 * kChunk);
    EXPECT_LT(plan.read_bytes(), 320 * kChunk);
    EXPECT_EQ(plan.read_bytes() + Bytes(plan.from_others()), 1000 * kChunk);
    EXPECT_LT(plan.from_others().size(), 20u) << "neighbours are copied at once";
    read += plan.read_bytes();
  }
  EXPECT_EQ(read, 1000 * kChunk);
  ExpectComplete(ranks);
}

TEST(FanPlanTest, WhatOnlySomeHaveIsReadByOneOfThem) {
  std::vector<RankMemory> ranks;
  ranks.push_back(Rank({1, 2, 3, 10}));
  ranks.push_back(Rank({0, 3, 3, 11, 2}));
  ranks.push_back(Rank({4, 0, 2}));
  ExpectComplete(ranks);
  EXPECT_EQ(FanPlan(ranks, 2).read_bytes() + Bytes(FanPlan(ranks, 2).from_others()), 2 * kChunk);
}

TEST(FanPlanTest, ARankWithoutMemoryIsPassedOver) {
  std::vector<RankMemory> ranks;
  ranks.emplace_back();
  ranks.push_back(Rank({1, 2}));
  EXPECT_EQ(FanPlan(ranks, 0).read_bytes(), 0u);
  EXPECT_EQ(FanPlan(ranks, 1).read_bytes(), 2 * kChunk);
}

TEST(FanPlanTest, OneHashOfTwoSizesIsReadAndNotCopied) {
  std::vector<RankMemory> ranks;
  ranks.push_back(Rank({1, 2}));
  ranks.push_back(Rank({1, 2}, 100));
  EXPECT_EQ(Bytes(FanPlan(ranks, 1).from_others()), kChunk * (FanPlan(ranks, 1).Reads(0, 0) ? 0 : 1));
  EXPECT_TRUE(FanPlan(ranks, 1).Reads(0, 1));
}

}  // namespace
}  // namespace stasis

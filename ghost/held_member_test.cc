#include "ghost/held_member.h"

#include <array>
#include <span>

#include "ghost/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kMib = 1 << 20;

std::vector<HeldExtent> Extents(std::vector<TaskExtent> list) {
  std::vector<HeldExtent> extents;
  for (TaskExtent& extent : list) extents.push_back({extent, 0, Fd()});
  return extents;
}

TEST(HeldMemberTest, ExtentsAreOrderedAndMayNotOverlap) {
  std::vector<HeldExtent> extents = Extents({{1, 0, 4 * kMib, 2 * kMib}, {2, 1, 2 * kMib, 2 * kMib}});
  ASSERT_OK(OrderExtents(&extents));
  EXPECT_EQ(extents[0].extent.id, 2u);
  std::vector<HeldExtent> twice = Extents({{1, 0, 2 * kMib, 4 * kMib}, {2, 0, 4 * kMib, 2 * kMib}});
  EXPECT_EQ(OrderExtents(&twice).code(), StatusCode::kCorrupt);
}

TEST(HeldMemberTest, ActiveRangesAreCutAtExtentsAndJoinedOverSmallGaps) {
  std::vector<HeldExtent> extents = Extents({{1, 0, 2 * kMib, 2 * kMib}, {2, 0, 4 * kMib, 2 * kMib}});
  // Over the border of two extents, unsorted, one within another, one close behind another.
  Result<std::vector<TaskRange>> ranges = ActiveRanges(extents, {{5 * kMib, 100},
                                                                 {4 * kMib - 512, 1024},
                                                                 {4 * kMib, 100},
                                                                 {5 * kMib + 200, 56},
                                                                 {5 * kMib + 65536, 1}});
  ASSERT_OK(ranges.status());
  std::vector<TaskRange> expected = {
      {4 * kMib - 512, 512}, {4 * kMib, 512}, {5 * kMib, 256}, {5 * kMib + 65536, 1}};
  EXPECT_EQ(*ranges, expected);
}

TEST(HeldMemberTest, ActiveMemoryThatIsNowhereIsRefused) {
  std::vector<HeldExtent> extents = Extents({{1, 0, 2 * kMib, 2 * kMib}});
  for (TaskRange range : {TaskRange{kMib, 10}, TaskRange{4 * kMib - 1, 2}, TaskRange{4 * kMib, 1},
                          TaskRange{2 * kMib, UINT64_MAX}, TaskRange{2 * kMib - 1, 2}}) {
    EXPECT_EQ(ActiveRanges(extents, {range}).status().code(), StatusCode::kCorrupt) << range.address;
  }
  EXPECT_TRUE(ActiveRanges(extents, {})->empty());
  EXPECT_FALSE(ActiveRanges({}, {{1, 1}}).ok());
}

TEST(HeldMemberTest, TheStreamFindsItsBytes) {
  HeldMember member;
  member.nspid = 7;
  member.extents = Extents({{1, 0, 2 * kMib, 2 * kMib}, {2, 0, 8 * kMib, 2 * kMib}});
  member.ranges = {{2 * kMib + 10, 100}, {3 * kMib, 50}, {8 * kMib, 1000}};
  EXPECT_EQ(member.bytes(), 4 * kMib);
  EXPECT_EQ(member.active_bytes(), 1150u);
  EXPECT_EQ(member.stream(), "device-7");
  StreamMap map(member);
  std::vector<std::byte> bytes(1050);
  std::vector<std::array<uint64_t, 3>> parts;
  ASSERT_OK(map.ForParts(90, std::span<std::byte>(bytes),
                         [&](size_t extent, uint64_t inside, std::span<std::byte> part) {
                           parts.push_back({extent, inside, part.size()});
                           return Status();
                         }));
  std::vector<std::array<uint64_t, 3>> expected = {{0, 100, 10}, {0, kMib, 50}, {1, 0, 990}};
  EXPECT_EQ(parts, expected);
  EXPECT_EQ(HeldMember().stream(), "");
}

TEST(HeldMemberTest, SharedMemoryIsHeldOnceAndSavedAsAWhole) {
  constexpr uint64_t kSize = 1 << 21;
  std::vector<HeldMember> members(2);
  members[0].extents = Extents({{1, 0, 0x200000, kSize, 0, 77}, {2, 0, 0x400000, kSize}});
  members[0].ranges = {{0x200000 + 512, 512}, {0x400000, 4096}};
  members[1].extents = Extents({{5, 0, 0x800000, kSize, 0, 77}, {6, 0, 0xa00000, kSize, 0, 78}});
  members[1].ranges = {{0x800000, kSize}, {0xa00000, kSize}};
  ASSERT_TRUE(FindShared(&members).ok());
  EXPECT_FALSE(members[0].extents[0].borrowed);
  EXPECT_TRUE(members[1].extents[0].borrowed);
  EXPECT_FALSE(members[1].extents[1].borrowed);
  EXPECT_EQ(members[0].ranges, (std::vector<TaskRange>{{0x200000, kSize}, {0x400000, 4096}}));
  EXPECT_EQ(members[1].ranges, (std::vector<TaskRange>{{0xa00000, kSize}}));
  EXPECT_EQ(members[1].bytes(), kSize);
  EXPECT_EQ(HolderOf(members, members[1].extents[0]), &members[0].extents[0]);
  EXPECT_EQ(HolderOf(members, members[1].extents[1]), &members[1].extents[1]);
}

TEST(HeldMemberTest, ProcessesThatDifferAboutSharedMemoryAreRefused) {
  std::vector<HeldMember> members(2);
  members[0].extents = Extents({{1, 0, 0x200000, 1 << 21, 0, 77}});
  members[1].extents = Extents({{1, 0, 0x200000, 1 << 22, 0, 77}});
  EXPECT_EQ(FindShared(&members).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stasis

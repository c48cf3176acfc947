#include "vmm/active_map.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace stasis::vmm {
namespace {

using Ranges = std::vector<TaskRange>;

TEST(ActiveMapTest, AnAllocationWithoutNotesIsActiveAsAWhole) {
  ActiveMap map;
  map.AddAllocation(0x1000, 100);
  map.AddAllocation(0x2000, 50);
  EXPECT_EQ(map.bytes(), 150u);
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 100}, {0x2000, 50}}));
  map.RemoveAllocation(0x1000);
  EXPECT_EQ(map.Ranges(), (Ranges{{0x2000, 50}}));
  map.RemoveAllocation(0x1000);
  EXPECT_EQ(map.bytes(), 50u);
}

TEST(ActiveMapTest, NotedBlocksAloneAreActiveInTheirAllocation) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  map.AddAllocation(0x8000, 0x10);
  EXPECT_TRUE(map.AddBlock(0x1800, 0x100));
  EXPECT_TRUE(map.AddBlock(0x1200, 0x100));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1200, 0x100}, {0x1800, 0x100}, {0x8000, 0x10}}));
  EXPECT_TRUE(map.RemoveBlock(0x1200));
  EXPECT_TRUE(map.RemoveBlock(0x1800));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x8000, 0x10}}));
  EXPECT_EQ(map.bytes(), 0x10u);
}

TEST(ActiveMapTest, RangesThatTouchAreOne) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  map.AddAllocation(0x2000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 0x200));
  EXPECT_TRUE(map.AddBlock(0x1200, 0xe00));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x2000}}));
}

TEST(ActiveMapTest, AFreedAllocationForgetsItsNotes) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 0x10));
  map.RemoveAllocation(0x1000);
  EXPECT_EQ(map.bytes(), 0u);
  map.AddAllocation(0x1000, 0x800);
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x800}}));
  EXPECT_FALSE(map.RemoveBlock(0x1000));
}

TEST(ActiveMapTest, NotesThatMakeNoSenseLoseNoByte) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  EXPECT_FALSE(map.AddBlock(0x1000, 0));
  EXPECT_FALSE(map.AddBlock(0x5000, 0x10));
  EXPECT_FALSE(map.RemoveBlock(0x5000));
  EXPECT_FALSE(map.RemoveBlock(0x1000));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x1000}})) << "nothing was noted in it";
}

TEST(ActiveMapTest, ABlockNotedTwiceStaysUntilItIsFreedTwice) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 0x100));
  EXPECT_FALSE(map.AddBlock(0x1000, 0x200));
  EXPECT_TRUE(map.RemoveBlock(0x1000));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x200}}));
  EXPECT_TRUE(map.RemoveBlock(0x1000));
  EXPECT_FALSE(map.RemoveBlock(0x1000));
  EXPECT_EQ(map.bytes(), 0u);
}

TEST(ActiveMapTest, OverlappingBlocksAreActiveTogether) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 0x300));
  EXPECT_FALSE(map.AddBlock(0x1200, 0x300));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x500}}));
  EXPECT_EQ(map.bytes(), 0x500u);
  EXPECT_TRUE(map.RemoveBlock(0x1000));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1200, 0x300}}));
  EXPECT_EQ(map.bytes(), 0x300u);
}

TEST(ActiveMapTest, ABlockThatLeavesItsAllocationMakesAllThatItTouchesActive) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  map.AddAllocation(0x2000, 0x1000);
  map.AddAllocation(0x4000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 1));
  EXPECT_TRUE(map.AddBlock(0x2000, 1));
  EXPECT_TRUE(map.AddBlock(0x4000, 1));
  EXPECT_FALSE(map.AddBlock(0x1f00, 0x200));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x2000}, {0x4000, 1}}));
  EXPECT_FALSE(map.AddBlock(0x3fff, 2));
  EXPECT_EQ(map.bytes(), 0x3000u);
  EXPECT_FALSE(map.AddBlock(0x4800, ~0ull));
}

TEST(ActiveMapTest, AnAllocationThatHasLostItsNotesIsActiveAsAWhole) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000, false);
  EXPECT_TRUE(map.AddBlock(0x1000, 1));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x1000}}));
  EXPECT_EQ(map.bytes(), 0x1000u);
}

TEST(ActiveMapTest, BlocksThatNobodyCanHaveWrittenAreLeftOutWhileFrozen) {
  ActiveMap map;
  map.AddAllocation(0x1000, 0x1000);
  EXPECT_TRUE(map.AddBlock(0x1000, 0x10, true)) << "not frozen: it may be written";
  map.Freeze();
  EXPECT_TRUE(map.AddBlock(0x1200, 0x10, true));
  EXPECT_TRUE(map.AddBlock(0x1400, 0x10, false));
  map.Freeze();
  EXPECT_FALSE(map.AddBlock(0x1000, 0x10, true)) << "and it stays what it was";
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x10}, {0x1400, 0x10}}));
  EXPECT_EQ(map.bytes(), 0x30u);
  map.Thaw();
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x10}, {0x1200, 0x10}, {0x1400, 0x10}}));
  map.Freeze();
  EXPECT_TRUE(map.RemoveBlock(0x1200));
  EXPECT_TRUE(map.AddBlock(0x1200, 0x10, true));
  EXPECT_EQ(map.Ranges(), (Ranges{{0x1000, 0x10}, {0x1400, 0x10}}))
      << "its content has gone with the old block";
}

// Against the plainest of models: a set of bytes.
TEST(ActiveMapTest, RandomNotesAgreeWithAModel) {
  std::mt19937 random(7);
  for (int turn = 0; turn < 20; ++turn) {
    ActiveMap map;
    map.AddAllocation(1000, 400);
    std::multimap<uint64_t, uint64_t> blocks;
    for (int step = 0; step < 300; ++step) {
      if (blocks.empty() || random() % 2 == 0) {
        const uint64_t address = 1000 + random() % 380, size = 1 + random() % 20;
        if (blocks.count(address) != 0) continue;
        map.AddBlock(address, size);
        blocks.emplace(address, size);
      } else {
        auto gone = std::next(blocks.begin(), static_cast<long>(random() % blocks.size()));
        EXPECT_TRUE(map.RemoveBlock(gone->first));
        blocks.erase(gone);
      }
      std::set<uint64_t> expected, got;
      for (auto [address, size] : blocks)
        for (uint64_t byte = 0; byte < size; ++byte) expected.insert(address + byte);
      uint64_t end = 0;
      for (const TaskRange& range : map.Ranges()) {
        EXPECT_TRUE(end == 0 || range.address > end);
        end = range.address + range.size;
        for (uint64_t byte = 0; byte < range.size; ++byte) got.insert(range.address + byte);
      }
      if (blocks.empty() && step == 0) continue;
      ASSERT_EQ(got, expected);
      ASSERT_EQ(map.bytes(), expected.size());
    }
  }
}

}  // namespace
}  // namespace stasis::vmm

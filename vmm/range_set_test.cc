#include "vmm/range_set.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace stasis::vmm {
namespace {

TEST(RangeSetTest, RangesThatTouchAreOne) {
  RangeSet set;
  set.Add({10, 20});
  set.Add({30, 40});
  EXPECT_FALSE(set.Contains({15, 35}));
  set.Add({20, 30});
  EXPECT_EQ(set.Find(25), (Range{10, 40}));
  EXPECT_EQ(set.ranges().size(), 1u);
  set.Remove({12, 38});
  EXPECT_EQ(set.bytes(), 4u);
  EXPECT_EQ(set.Find(12), std::nullopt);
}

TEST(RangeSetTest, BestFitIsTheSmallestThatFits) {
  RangeSet set;
  set.Add({100, 200});
  set.Add({300, 350});
  set.Add({400, 450});
  EXPECT_EQ(set.BestFit(50), (Range{300, 350}));
  EXPECT_EQ(set.BestFit(51), (Range{100, 200}));
  EXPECT_EQ(set.BestFit(101), std::nullopt);
}

// The model is a bit for each address.
TEST(RangeSetTest, AgreesWithBitsOverRandomChanges) {
  std::mt19937 random(20261);
  std::vector<bool> bits(300);
  RangeSet set;
  for (int step = 0; step < 20000; ++step) {
    const uint64_t begin = random() % 299, end = begin + 1 + random() % (300 - begin - 1 + 1) % 20;
    const Range range{begin, std::min<uint64_t>(end, 300)};
    bool all = true, none = true;
    for (uint64_t i = range.begin; i < range.end; ++i) (bits[i] ? none : all) = false;
    ASSERT_EQ(set.Contains(range), all);
    bool value = false;
    if (none) {
      set.Add(range);
      value = true;
    } else if (all) {
      set.Remove(range);
    } else {
      set.RemoveAny(range);
    }
    for (uint64_t i = range.begin; i < range.end; ++i) bits[i] = value;
    uint64_t count = 0;
    for (bool bit : bits) count += bit;
    ASSERT_EQ(set.bytes(), count);
    ASSERT_EQ(set.Find(begin).has_value(), bits[begin]);
  }
}

}  // namespace
}  // namespace stasis::vmm

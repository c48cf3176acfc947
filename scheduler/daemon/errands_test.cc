#include "scheduler/daemon/errands.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace stasis::scheduler {
namespace {

constexpr Duration kLong = std::chrono::hours(1);

TEST(ErrandsTest, OneIsUnderWayForASubject) {
  Errands errands;
  std::promise<void> go, done;
  ASSERT_TRUE(errands.Start(
      "a", [&] { go.get_future().wait(); }, [&] { done.set_value(); }));
  EXPECT_TRUE(errands.Busy("a"));
  EXPECT_FALSE(errands.Start("a", [] { FAIL() << "a second one"; }));
  go.set_value();
  done.get_future().wait();
  EXPECT_FALSE(errands.Busy("a"));
  std::promise<void> second;
  EXPECT_TRUE(errands.Start("a", [&] { second.set_value(); }));
  second.get_future().wait();
}

TEST(ErrandsTest, WhoWaitsAsksAgainAfterEachChange) {
  Errands errands;
  std::atomic<bool> wanted = true;
  std::promise<void> asked;
  std::atomic<int> times = 0;
  std::promise<bool> waited;
  errands.Start("a", [&] {
    waited.set_value(errands.Wait(kLong, [&] {
      if (times++ == 0) asked.set_value();
      return wanted.load();
    }));
  });
  asked.get_future().wait();
  wanted = false;
  errands.Wake();
  EXPECT_FALSE(waited.get_future().get());
  EXPECT_TRUE(errands.Wait(Duration::zero(), [] { return true; }));
}

TEST(ErrandsTest, TheEndEndsWaiting) {
  Errands errands;
  std::promise<void> asked;
  std::atomic<int> times = 0;
  std::promise<bool> waited;
  errands.Start("a", [&] {
    waited.set_value(errands.Wait(kLong, [&] {
      if (times++ == 0) asked.set_value();
      return true;
    }));
  });
  asked.get_future().wait();
  EXPECT_TRUE(errands.End());
  EXPECT_FALSE(errands.End());
  EXPECT_FALSE(waited.get_future().get());
  EXPECT_FALSE(errands.Start("b", [] {}));
  errands.AwaitChange(errands.changes(), kLong);
}

TEST(ErrandsTest, AChangeThatHasHappenedMeanwhileIsNotWaitedFor) {
  Errands errands;
  const uint64_t seen = errands.changes();
  errands.Wake();
  errands.AwaitChange(seen, kLong);
  EXPECT_NE(errands.changes(), seen);
}

}  // namespace
}  // namespace stasis::scheduler

// What is measured of jobs, and what becomes of jobs that share devices.
#include <gtest/gtest.h>

#include "scheduler/live/testing.h"

namespace stasis::scheduler {
namespace {

constexpr Time kWindow = 20 * kSecond;

// One node with one device, and two jobs that wait for it in turn.
class SharingTest : public ::testing::Test {
 protected:
  SharingTest() : keeper_("gandiva") {
    keeper_.Happens(0, TenantSet{"a", 1});
    keeper_.Happens(0, NodeJoined{"n0", "here", 1, "", "", 100});
  }
  void Submit(Time at, const std::string& name, int64_t memory, double utilization = 0.4) {
    JobRequest request = Request(name, "a", 1);
    request.memory = memory;
    request.utilization = utilization;
    keeper_.Happens(at, JobSubmitted{request});
  }
  // Decides, and lets everything be done at once.
  void Pass(Time at) {
    keeper_.Decide(at);
    for (std::vector<Order> ready = keeper_.cluster().Ready(); !ready.empty();
         ready = keeper_.cluster().Ready()) {
      for (const Order& order : ready) keeper_.Happens(at, OrderEnded{order.number, true, ""});
      keeper_.Decide(at);
    }
  }
  // Whether it was news.
  bool Tell(Time at, const std::string& job, double rate, Time over = kWindow) {
    const std::optional<RateMeasured> news = keeper_.cluster().Tell(job, {rate, "launches", over}, at);
    if (news) keeper_.Happens(at, *news);
    return news.has_value();
  }
  const Cluster::Entry& Entry(const std::string& job) { return *keeper_.cluster().Find(job); }
  const Job& StateOf(const std::string& job) { return keeper_.cluster().state().job(Entry(job).id); }
  std::string Beside(const std::string& job) { return keeper_.cluster().Beside(Entry(job)); }

  // Each has had the device for itself, and has been measured; from `second` on they share it.
  Time Share(int64_t memory = 40) {
    Submit(0, "one", memory);
    Pass(0);
    EXPECT_TRUE(Tell(30 * kSecond, "one", 10));
    Submit(31 * kSecond, "two", memory);
    Pass(31 * kSecond);
    EXPECT_EQ(Entry("two").where, Cluster::Where::kNowhere) << "nobody knows how it is alone";
    Pass(kLease);
    EXPECT_EQ(Entry("one").where, Cluster::Where::kPaused);
    const Time then = kLease + 30 * kSecond;
    EXPECT_TRUE(Tell(then, "two", 20));
    Pass(then);
    return then;
  }

  Keeper keeper_;
};

TEST_F(SharingTest, JobsThatGetOnBetterTogetherStayTogether) {
  const Time then = Share();
  ASSERT_EQ(Beside("one"), "two");
  EXPECT_EQ(Beside("two"), "one");
  EXPECT_TRUE(Tell(then + 30 * kSecond, "one", 9));
  EXPECT_TRUE(Tell(then + 30 * kSecond, "two", 16));
  EXPECT_DOUBLE_EQ(StateOf("one").rate + StateOf("two").rate, 1.7);
  keeper_.Restart();
  for (Time at = then; at < then + 20 * kLease; at += kSecond) Pass(at);
  EXPECT_EQ(Beside("one"), "two");
  EXPECT_EQ(StateOf("one").pauses, 1);
}

TEST_F(SharingTest, JobsThatStandInEachOthersWayArePartedForGood) {
  const Time then = Share();
  ASSERT_EQ(Beside("one"), "two");
  EXPECT_TRUE(Tell(then + 30 * kSecond, "one", 5));
  EXPECT_TRUE(Tell(then + 30 * kSecond, "two", 4));
  Pass(then + 59 * kSecond);
  EXPECT_EQ(Beside("one"), "two") << "not before they have settled";
  Pass(then + 60 * kSecond);
  EXPECT_EQ(Beside("one"), "");
  EXPECT_EQ(Beside("two"), "");
  keeper_.Restart();
  for (Time at = then + 61 * kSecond; at < then + 20 * kLease; at += kSecond) {
    Pass(at);
    ASSERT_EQ(Beside("one"), "") << at;
    ASSERT_EQ(Beside("two"), "") << at;
  }
}

TEST_F(SharingTest, WhoseProgressIsNotToldIsPartedToo) {
  const Time then = Share();
  ASSERT_EQ(Beside("one"), "two");
  Pass(then + 60 * kSecond);
  EXPECT_EQ(Beside("one"), "");
}

TEST_F(SharingTest, APairSettlesFromWhenBothAreThere) {
  const Time then = Share();
  const Time late = then + 40 * kSecond;
  // As if the second one had come late: it has left, and comes again.
  keeper_.Happens(late, JobLost{"one", "n0", "gone"});
  keeper_.Decide(late);
  ASSERT_EQ(keeper_.cluster().Ready().size(), 1u);
  const uint64_t restore = keeper_.cluster().Ready()[0].number;
  keeper_.Happens(late + 50 * kSecond, OrderEnded{restore, true, ""});
  Pass(late + 65 * kSecond);
  EXPECT_EQ(Beside("one"), "two");
  Pass(late + 110 * kSecond);
  EXPECT_EQ(Beside("one"), "");
}

TEST_F(SharingTest, WhoDoesNotTellItsMemoryOrNeedsMuchSharesWithNobody) {
  Submit(0, "silent", 0);
  Pass(0);
  EXPECT_FALSE(Tell(30 * kSecond, "silent", 10));
  EXPECT_EQ(Entry("silent").rate, 10) << "it is shown all the same";
  EXPECT_EQ(Entry("silent").rate_unit, "launches");
  keeper_.Happens(30 * kSecond, JobEnded{"silent", true, 0, ""});
  EXPECT_EQ(Entry("silent").rate_unit, "") << "it does not run any more";
  Submit(30 * kSecond, "large", 60);
  Pass(30 * kSecond);
  EXPECT_TRUE(Tell(60 * kSecond, "large", 10));
  Submit(61 * kSecond, "other", 60);
  Pass(61 * kSecond);
  Pass(30 * kSecond + kLease);
  EXPECT_TRUE(Tell(60 * kSecond + kLease, "other", 10));
  Pass(60 * kSecond + kLease);
  EXPECT_EQ(Beside("other"), "");
}

TEST_F(SharingTest, WhatIsOfTwoSituationsOrOfAMomentIsNoNews) {
  Submit(0, "one", 40);
  keeper_.Decide(0);
  EXPECT_FALSE(Tell(20 * kSecond, "one", 10)) << "it is on its way";
  keeper_.Happens(20 * kSecond, OrderEnded{keeper_.cluster().Ready()[0].number, true, ""});
  EXPECT_FALSE(Tell(30 * kSecond, "one", 10, 11 * kSecond)) << "it was not there yet";
  EXPECT_FALSE(Tell(30 * kSecond, "one", 10, 1)) << "a moment";
  EXPECT_FALSE(Tell(50 * kSecond, "one", 0)) << "it does nothing yet";
  EXPECT_TRUE(Tell(50 * kSecond, "one", 10));
  EXPECT_FALSE(Tell(55 * kSecond, "nobody", 10));
}

TEST_F(SharingTest, RatesAreSeldomFacts) {
  Submit(0, "one", 40);
  Pass(0);
  int news = 0;
  for (Time at = 20 * kSecond; at < 3600 * kSecond; at += 5 * kSecond)
    news += Tell(at, "one", at % (10 * kSecond) == 0 ? 10 : 10.5) ? 1 : 0;
  EXPECT_EQ(news, 1) << "the same but for noise";
  for (Time at = 3600 * kSecond; at < 7200 * kSecond; at += 5 * kSecond)
    news += Tell(at, "one", at % (10 * kSecond) == 0 ? 10 : 20) ? 1 : 0;
  EXPECT_LE(news, 62) << "at most one a minute, however it jumps";
}

}  // namespace
}  // namespace stasis::scheduler

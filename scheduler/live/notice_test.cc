// Nodes of which is known when they will be gone, with saves that take as long as they are said to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/live/testing.h"

namespace stasis::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Where = Cluster::Where;

constexpr Time kBegin = 1'000'000 * kSecond;
constexpr Time kNotice = 30 * kSecond;

class NoticeTest : public ::testing::Test {
 protected:
  NoticeTest() : keeper_("astraea") {
    Happens(TenantSet{"a", 1});
    Happens(NodeJoined{"n0", "here", 4});
  }
  void Happens(const Fact& fact) { keeper_.Happens(now_, fact); }
  void Decide() { keeper_.Decide(now_); }
  void At(Time after_notice) { now_ = notice_ + after_notice; }
  const Cluster::Entry& Job(const std::string& name) { return *keeper_.cluster().Find(name); }
  const Cluster::Node& Leaving() { return *keeper_.cluster().FindNode("n0"); }

  // It runs on n0 from now on.
  void Run(const std::string& name, int gpus = 1) {
    Happens(JobSubmitted{Request(name, "a", gpus)});
    Decide();
    End(name);
    ASSERT_EQ(Job(name).node, "n0");
  }
  // Its order has ended.
  void End(const std::string& name, bool image = false, bool ok = true, const std::string& why = "") {
    const std::vector<Order> ready = keeper_.cluster().Ready();
    for (const Order& order : ready) {
      if (order.job == name) return Happens(OrderEnded{order.number, ok, why, image});
    }
    FAIL() << name << " has no order";
  }
  // Jobs of 5, 25 and 60 s with as much work each, and a node for them.
  void RunThree() {
    for (const char* job : {"sixty", "twentyfive", "five"}) Run(job);
    Happens(NodeJoined{"n1", "there", 4});
    now_ += 100 * kSecond;
    Happens(ImageKept{"sixty", "n1", now_, 60 * kSecond});
    Happens(ImageKept{"twentyfive", "n1", now_, 25 * kSecond});
    Happens(ImageKept{"five", "n1", now_, 5 * kSecond});
    now_ += 10 * kSecond;
  }
  void Notice(Time notice = kNotice) {
    notice_ = now_;
    Happens(NodeChanged{"n0", true, true, "reclaimed", now_ + notice});
    Decide();
  }
  std::vector<std::string> Orders() {
    std::vector<std::string> orders;
    for (const Order& order : keeper_.cluster().Ready())
      orders.push_back(std::string(OrderKindName(order.kind)) + " " + order.job);
    return orders;
  }
  std::vector<std::string> Ended() {
    std::vector<std::string> ended;
    for (const SaveEnded& save : Leaving().saves)
      ended.push_back(save.job + (save.saved ? " saved" : " not"));
    return ended;
  }

  Keeper keeper_;
  Time now_ = kBegin, notice_ = 0;
};

TEST_F(NoticeTest, WhatFitsIsSavedAndWhatDoesNotKeepsNobodyBack) {
  RunThree();
  Notice();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate five", "migrate twentyfive"));
  keeper_.Compact();
  At(5 * kSecond);
  End("five");
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("five saved"));
  EXPECT_THAT(Orders(), ElementsAre("migrate twentyfive")) << "it would be slower beside another";
  keeper_.Restart();
  At(25 * kSecond);
  End("twentyfive");
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("five saved", "twentyfive saved"));
  EXPECT_THAT(Orders(), ElementsAre("migrate sixty")) << "there is nothing to lose by it";
  EXPECT_EQ(keeper_.cluster().wake(), notice_ + kNotice);
  At(kNotice - 1);
  Decide();
  EXPECT_EQ(Ended().size(), 2u) << "it is not over yet";
  At(kNotice);
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("five saved", "twentyfive saved", "sixty not"));
  const SaveEnded& unsaved = Leaving().saves.back();
  EXPECT_EQ(unsaved.message, "saving it was not done in time; its newest image elsewhere is 40 s old");
  EXPECT_EQ(unsaved.image, notice_ - 10 * kSecond);
  EXPECT_EQ(Job("sixty").where, Where::kRunning) << "nothing is ended for it";
  keeper_.Restart();
  // The node was not gone after all.
  At(60 * kSecond);
  End("sixty");
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("five saved", "twentyfive saved", "sixty saved"));
  EXPECT_EQ(Job("sixty").node, "n1");
}

TEST_F(NoticeTest, WhatWasNotBegunStaysWhenThereIsNoNoticeAnyMore) {
  RunThree();
  Notice();
  At(5 * kSecond);
  End("five");
  Decide();
  At(20 * kSecond);
  Happens(NodeChanged{"n0", true, false, ""});
  Decide();
  EXPECT_THAT(Orders(), ElementsAre("migrate twentyfive")) << "it goes on";
  EXPECT_THAT(Ended(), IsEmpty());
  At(25 * kSecond);
  End("twentyfive");
  Decide();
  At(10 * kNotice);
  Decide();
  keeper_.Compact();
  EXPECT_THAT(Ended(), IsEmpty());
  EXPECT_THAT(Orders(), IsEmpty());
  EXPECT_EQ(Job("sixty").node, "n0");
  EXPECT_EQ(Job("sixty").moves, 0);
}

TEST_F(NoticeTest, ALaterOneLeavesTimeForMore) {
  RunThree();
  Notice();
  At(20 * kSecond);
  End("five");
  Happens(NodeChanged{"n0", true, true, "reclaimed", notice_ + 120 * kSecond});
  Decide();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate twentyfive", "migrate sixty"));
  At(kNotice);
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("five saved")) << "it is not over any more";
}

TEST_F(NoticeTest, WhatIsUnderWayTakesOfTheTimeThatIsLeft) {
  RunThree();
  Notice(70 * kSecond);
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate five", "migrate twentyfive"));
  At(5 * kSecond);
  End("five");
  Decide();
  EXPECT_THAT(Orders(), ElementsAre("migrate twentyfive")) << "20 s and 60 s are more than 65 s";
  Notice(80 * kSecond);
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate twentyfive", "migrate sixty"));
}

TEST_F(NoticeTest, WhatHangsKeepsNobodyBackForEver) {
  RunThree();
  Happens(JobEnded{"five", true, 0, ""});
  Notice(84 * kSecond);
  ASSERT_THAT(Orders(), ElementsAre("migrate twentyfive"));
  EXPECT_EQ(keeper_.cluster().wake(), notice_ + 25 * kSecond) << "when it should have been done";
  At(25 * kSecond - 1);
  Decide();
  ASSERT_THAT(Orders(), ElementsAre("migrate twentyfive"));
  At(25 * kSecond);
  Decide();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate twentyfive", "migrate sixty"));
}

TEST_F(NoticeTest, WithNothingKnownOfTheTimeTheMostWorkGoesFirst) {
  Run("old");
  now_ += 50 * kSecond;
  Run("wide", 2);
  now_ += 50 * kSecond;
  Run("young");
  Happens(NodeJoined{"n1", "there", 4});
  now_ += 10 * kSecond;
  // 110 device-seconds of the one, 120 and 10 of the others; but the newest image of the wide one saves most.
  Notice();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate old", "migrate wide"));
  At(kSecond);
  End("wide");
  Decide();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate old", "migrate young"));
}

TEST_F(NoticeTest, AnImageElsewhereIsWorkThatIsSafe) {
  Run("old");
  now_ += 100 * kSecond;
  Run("wide", 2);
  Run("young");
  Happens(NodeJoined{"n1", "there", 4});
  now_ += 10 * kSecond;
  Happens(ImageKept{"old", "n1", now_ - 2 * kSecond});
  Notice();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate wide", "migrate young"));
}

TEST_F(NoticeTest, ACopyOnANodeThatGoesTooIsNone) {
  Run("old");
  now_ += 100 * kSecond;
  Run("wide", 2);
  Run("young");
  Happens(NodeJoined{"n1", "there", 4});
  Happens(NodeJoined{"n2", "there", 1});
  now_ += 10 * kSecond;
  Happens(ImageKept{"old", "n2", now_ - 2 * kSecond});
  Happens(NodeChanged{"n2", true, true, "reclaimed", now_ + kNotice});
  Notice();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate old", "migrate wide"));
}

TEST_F(NoticeTest, WhatHasNoPlaceIsSavedOnceItsImageIsElsewhere) {
  Run("j");
  Happens(NodeJoined{"n1", "there", 0});
  now_ += 10 * kSecond;
  Happens(ImageKept{"j", "n1", now_, kSecond});
  now_ += 10 * kSecond;
  Notice();
  EXPECT_THAT(Orders(), ElementsAre("pause j"));
  At(2 * kSecond);
  End("j", /*image=*/true);
  Decide();
  EXPECT_EQ(Job("j").where, Where::kImage);
  EXPECT_THAT(Ended(), IsEmpty()) << "its image would go with the node";
  ASSERT_EQ(keeper_.cluster().UnsavedAt(Leaving()).size(), 1u);
  EXPECT_TRUE(keeper_.cluster().UnsavedAt(Leaving())[0].begun);
  keeper_.Compact();
  At(4 * kSecond);
  Happens(ImageKept{"j", "n1", now_ - 2 * kSecond, 2 * kSecond, /*last=*/true});
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("j saved"));
  EXPECT_EQ(Job("j").save_took, 4 * kSecond);
  At(kNotice);
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("j saved"));
}

TEST_F(NoticeTest, WhatIsPausedWaitsForItsTurnToo) {
  Run("low", 4);
  now_ += 10 * kSecond;
  Happens(JobSubmitted{Request("high", "a", 4, 3)});
  Decide();
  End("low");
  End("high");
  Happens(NodeJoined{"n1", "there", 0});
  now_ += 100 * kSecond;
  Happens(ImageKept{"high", "n1", now_, kNotice});
  Happens(ImageKept{"low", "n1", now_, 2 * kNotice});
  Notice();
  EXPECT_TRUE(keeper_.cluster().IsToLeave(Job("high")));
  EXPECT_FALSE(keeper_.cluster().IsToLeave(Job("low"))) << "it is not expected to be done in time";
  At(2 * kSecond);
  End("high", /*image=*/true);
  Happens(ImageKept{"high", "n1", now_, 0, /*last=*/true});
  Decide();
  EXPECT_TRUE(keeper_.cluster().IsToLeave(Job("low")));
  Happens(JobLost{"low", "n0", "it was made an image", false, /*planned=*/true});
  Happens(ImageKept{"low", "n1", now_, 0, /*last=*/true});
  Decide();
  EXPECT_THAT(Ended(), UnorderedElementsAre("high saved", "low saved"));
  keeper_.Restart();
}

TEST_F(NoticeTest, WithoutAnotherNodeNothingIsBegun) {
  Run("j");
  Notice();
  EXPECT_THAT(Orders(), IsEmpty());
  At(kNotice);
  Decide();
  EXPECT_THAT(Ended(), ElementsAre("j not"));
  EXPECT_EQ(Leaving().saves[0].message, "there is no other node; there is no image of it elsewhere");
  EXPECT_EQ(Leaving().saves[0].image, 0);
  EXPECT_THAT(Orders(), IsEmpty());
}

TEST_F(NoticeTest, WhatRefusesLetsTheNextOneCome) {
  RunThree();
  Notice(100 * kSecond);
  ASSERT_THAT(Orders(), UnorderedElementsAre("migrate five", "migrate twentyfive"));
  End("five", false, /*ok=*/false, "it uses cuFoo");
  Decide();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate twentyfive", "migrate sixty"));
  At(6 * kSecond);
  End("sixty");
  Decide();
  EXPECT_THAT(Orders(), UnorderedElementsAre("migrate twentyfive", "migrate five")) << "it is asked again";
}

TEST_F(NoticeTest, ANodeThatGoesBeforeItsTimeIsReportedThen) {
  RunThree();
  Notice();
  At(10 * kSecond);
  End("five");
  Decide();
  Happens(NodeChanged{"n0", false, true, "not reached", notice_ + kNotice});
  Decide();
  EXPECT_THAT(Ended(), UnorderedElementsAre("five saved", "twentyfive not", "sixty not"));
  EXPECT_THAT(Leaving().saves.back().message, HasSubstr("the node has gone before its time"));
  for (const char* job : {"twentyfive", "sixty"}) Happens(JobLost{job, "n1", "node n0 is lost"});
  Decide();
  EXPECT_EQ(Ended().size(), 3u);
  EXPECT_EQ(Job("sixty").saved_from, "");
  keeper_.Restart();
}

TEST_F(NoticeTest, OnlyWhatIsDrainedHasADeadline) {
  const auto code_of = [this](const Fact& fact) { return keeper_.cluster().Check(fact).code(); };
  EXPECT_EQ(code_of(NodeChanged{"n0", true, false, "", now_ + 1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(NodeChanged{"n0", true, true, "", -1}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of(SaveBegun{"nobody", "n0"}), StatusCode::kNotFound);
  EXPECT_EQ(code_of(SaveEnded{"nobody", "n9", true, "", 0}), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stasis::scheduler

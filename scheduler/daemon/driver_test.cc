// The driver against agents that do what they are told, late, twice, or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "scheduler/daemon/driver_testing.h"

namespace stasis::scheduler {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Not;

TEST_F(DriverTest, AJobRunsToItsEnd) {
  Join("n0");
  EXPECT_EQ(Run("j", 2), "n0");
  agents_.End("n0", "j", 0);
  AwaitState("j", v1::QUEUE_STATE_DONE);
  EXPECT_THAT(agents_.Started("n0"), ElementsAre("run j", "schedule j"));
}

TEST_F(DriverTest, AProgramThatFailsComesBackAsOftenAsItMay) {
  Join("n0");
  Run("j", 1, 2);
  agents_.End("n0", "j", 3);
  ASSERT_TRUE(agents_.Await([&] { return Job("j").restarts() == 1; }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  agents_.SetImage("n0", "j", "i1");
  agents_.End("n0", "j", 0, 11);
  ASSERT_TRUE(agents_.Await([&] { return Job("j").restarts() == 2; }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  agents_.End("n0", "j", 4);
  AwaitState("j", v1::QUEUE_STATE_FAILED);
  EXPECT_EQ(Job("j").exit_code(), 4);
  EXPECT_THAT(agents_.Started("n0"), ElementsAre("run j", "schedule j", "cancel j", "remove j", "run j",
                                                 "schedule j", "cancel j", "restore j", "schedule j"));
}

TEST_F(DriverTest, WhatCannotBeStartedHasFailed) {
  Join("n0");
  agents_.Refuse("run", "no such program");
  Submit("j", 1);
  AwaitState("j", v1::QUEUE_STATE_FAILED);
  EXPECT_EQ(Job("j").reason(), "run: no such program");
}

TEST_F(DriverTest, AnOrderIsAskedOnceWhateverIsKilled) {
  Join("n0");
  agents_.Hold("run", true);
  Submit("j", 1);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started("n0").size() == 1; }));
  agents_.SetDown("n0", true);
  End();
  agents_.SetDown("n0", false);
  Start();
  ASSERT_TRUE(agents_.Await([&] { return Reachable("n0"); }));
  agents_.Hold("run", false);
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_THAT(agents_.Started("n0"), ElementsAre("run j", "schedule j"));
}

// What it has begun before it was killed may have been done when it asks again: it must not be undone.
TEST_F(DriverTest, WhatWasDoneWhileNobodyLookedIsNotUndone) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2, 1), other = Other(here);
  const auto meanwhile = [&](const std::string& verb, const std::string& at) {
    const std::string order = verb + " j";
    const auto count = [&] {
      const std::vector<std::string> asked = agents_.Started(at);
      return std::count(asked.begin(), asked.end(), order);
    };
    const auto before = count();
    agents_.Hold(verb, true);
    if (verb == "migrate") {
      v1::DrainRequest drain;
      drain.set_node(here);
      ASSERT_OK(core_->Drain(drain).status());
    } else {
      agents_.End(at, "j", 1);
    }
    ASSERT_TRUE(agents_.Await([&] { return count() == before + 1; }));
    End();
    agents_.Hold(verb, false);
    Start();
    AwaitState("j", v1::QUEUE_STATE_RUNNING);
  };
  meanwhile("migrate", here);
  EXPECT_TRUE(agents_.Lives(other, "j"));
  EXPECT_THAT(agents_.Started(other), ElementsAre("schedule j"));
  meanwhile("run", other);
  EXPECT_THAT(agents_.Started(other),
              ElementsAre("schedule j", "cancel j", "remove j", "run j", "schedule j"));
  EXPECT_EQ(Job("j").restarts(), 1u);
}

TEST_F(DriverTest, WhatEndsWhileNobodyLooksIsNoticedAfterwards) {
  Join("n0");
  Run("j", 1);
  Run("k", 1);
  End();
  agents_.End("n0", "j", 0);
  agents_.End("n0", "k", 7);
  Start();
  AwaitState("j", v1::QUEUE_STATE_DONE);
  AwaitState("k", v1::QUEUE_STATE_FAILED);
}

TEST_F(DriverTest, AHigherClassPausesALowerOne) {
  Join("n0");
  Run("low", 2);
  Submit("high", 2, 0, 3);
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("low").state(), v1::QUEUE_STATE_PAUSED);
  agents_.End("n0", "high", 0);
  AwaitState("low", v1::QUEUE_STATE_RUNNING);
  EXPECT_THAT(agents_.Started("n0"),
              ElementsAre("run low", "schedule low", "pause low", "run high", "schedule high", "resume low"));
}

TEST_F(DriverTest, WhatRefusesToBePausedRunsOn) {
  Join("n0");
  Run("low", 2);
  agents_.Refuse("pause", "it uses cuFoo");
  Submit("high", 2, 0, 3);
  ASSERT_TRUE(agents_.Await([&] { return Job("low").reason() == "pause: it uses cuFoo"; }));
  EXPECT_TRUE(agents_.Lives("n0", "low"));
  EXPECT_NE(Job("high").state(), v1::QUEUE_STATE_RUNNING);
  agents_.Refuse("pause", "");
  now_ += 30 * kSecond;
  core_->Tick();
  EXPECT_NE(Job("high").state(), v1::QUEUE_STATE_STARTING) << "it is not asked again yet";
  now_ += 31 * kSecond;
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
}

TEST_F(DriverTest, ADrainedNodeIsLeft) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2);
  v1::DrainRequest request;
  request.set_node(here);
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(Other(here), "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("j").node(), Other(here));
  EXPECT_THAT(agents_.Started(Other(here)), ElementsAre("schedule j"));
}

TEST_F(DriverTest, ADrainWhoseMoveFailsIsTriedAgainSoon) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2);
  agents_.Refuse("migrate", "the way was cut");
  v1::DrainRequest request;
  request.set_node(here);
  const Time begun = now_;
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] {
    std::string why;
    core_->Look([&](const Cluster& cluster) { why = cluster.Find("j")->message; });
    return why == "migrate: the way was cut";
  }));
  agents_.Refuse("migrate", "");
  ASSERT_TRUE(agents_.Await([&] {
    now_ += 100;
    core_->Tick();
    return agents_.Lives(Other(here), "j");
  }));
  EXPECT_LT(now_ - begun, 15 * kSecond);
}

// Somebody else has stopped it into an image before the scheduler's own pause came.
TEST_F(DriverTest, AJobThatWasCheckpointedUnderAPauseComesBackAtOnce) {
  Join("n0");
  Run("low", 2);
  agents_.Hold("pause", true);
  Submit("high", 2, 0, 3);
  ASSERT_TRUE(agents_.Await([&] {
    const std::vector<std::string> started = agents_.Started("n0");
    return started.back() == "pause low";
  }));
  agents_.SetCondition("n0", "low", v1::CONDITION_CHECKPOINTED);
  agents_.SetImage("n0", "low", "i1");
  const Time begun = now_;
  agents_.Hold("pause", false);
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  agents_.End("n0", "high", 0);
  AwaitState("low", v1::QUEUE_STATE_RUNNING);
  EXPECT_LT(now_ - begun, 30 * kSecond);
  EXPECT_EQ(Job("low").restarts(), 0u);
}

TEST_F(DriverTest, WhatIsPausedOnADrainedNodeBecomesAnImage) {
  Join("n0");
  Run("low", 2);
  Submit("high", 2, 0, 3);
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  v1::DrainRequest request;
  request.set_node("n0");
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] {
    bool both = true;
    core_->Look([&](const Cluster& cluster) {
      for (const char* job : {"low", "high"})
        both = both && cluster.Find(job)->where == Cluster::Where::kImage;
    });
    return both;
  }));
  EXPECT_FALSE(agents_.Lives("n0", "low") || agents_.Lives("n0", "high"));
  AwaitState("high", v1::QUEUE_STATE_PAUSED);
  EXPECT_EQ(Job("low").state(), v1::QUEUE_STATE_PAUSED);
  ASSERT_OK(core_->Undrain("n0").status());
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  agents_.End("n0", "high", 0);
  AwaitState("low", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("low").restarts(), 0u);
  EXPECT_THAT(agents_.Started("n0"), ::testing::Contains("restore low"));
}

TEST_F(DriverTest, JobsOfALostNodeComeBackFromCopies) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.SetImage(here, "j", "i1");
  ASSERT_TRUE(agents_.Await([&] {
    bool kept = false;
    core_->Look([&](const Cluster& cluster) { kept = !cluster.Find("j")->copies.empty(); });
    return kept;
  }));
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(other, "j"); }));
  EXPECT_TRUE(agents_.Lives(here, "j")) << "nobody reaches it";
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("j").restarts(), 1u);
  // It comes back, and gives up what is not its any more before it is used again.
  agents_.SetDown(here, false);
  ASSERT_TRUE(agents_.Await([&] { return Reachable(here); }));
  EXPECT_FALSE(agents_.Lives(here, "j"));
  // Its image may have been copied back by now.
  std::vector<std::string> asked = agents_.Started(other);
  std::erase(asked, "copy-image j");
  EXPECT_THAT(asked, ElementsAre("cancel j", "restore j", "schedule j"));
}

TEST_F(DriverTest, WithoutACopyAJobOfALostNodeBeginsAnew) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(other, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_THAT(agents_.Started(other), ElementsAre("cancel j", "remove j", "run j", "schedule j"));
}

// As a migration leaves it that its node was lost in.
TEST_F(DriverTest, AJobComesBackFromAnImageThatNobodyKnewOf) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.CopyByHand(here, other, "j", "i9");
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(other, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("j").restarts(), 1u);
  EXPECT_THAT(agents_.Started(other), ElementsAre("cancel j", "restore j", "schedule j"));
}

TEST_F(DriverTest, AJobComesBackFromTheNewestImageOfAllNodes) {
  agents_.Add("n2", 4);
  for (const char* node : {"n0", "n1", "n2"}) Join(node);
  const std::string here = Run("j", 2);
  agents_.SetImage(here, "j", "i1");
  std::string copy;
  ASSERT_TRUE(agents_.Await([&] {
    core_->Look([&](const Cluster& cluster) {
      const std::vector<std::string>& copies = cluster.Find("j")->copies;
      copy = copies.empty() ? "" : copies.back();
    });
    return !copy.empty();
  }));
  std::string third;
  for (const char* node : {"n0", "n1", "n2"}) {
    if (node != here && node != copy) third = node;
  }
  agents_.CopyByHand(here, third, "j", "i2");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(third); }));
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(copy, "j") || agents_.Lives(third, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(agents_.ImageAt(agents_.Lives(copy, "j") ? copy : third, "j"), 2);
}

// What is left there of an earlier life would keep the name taken for ever.
TEST_F(DriverTest, ARecordOfAnEarlierLifeKeepsNoJobOut) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.RecordOfAnotherLife(other, "j", "/bin/train");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(other); }));
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(other, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_THAT(agents_.Started(other), ElementsAre("cancel j", "remove j", "run j", "schedule j"));
}

TEST_F(DriverTest, SomebodyElsesJobOfThatNameStays) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.RecordOfAnotherLife(other, "j", "/bin/other");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(other); }));
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return !Job("j").reason().empty() && !agents_.Started(other).empty(); }));
  EXPECT_THAT(agents_.Started(other), Each("run j"));
}

TEST_F(DriverTest, AJobWaitsForTheNodeThatHasItsImages) {
  Join("n0");
  Join("n1");
  agents_.Refuse("copy-image", "there is no room");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.SetImage(here, "j", "i1");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(here); }));
  agents_.SetDown(here, true);
  AwaitState("j", v1::QUEUE_STATE_LOST);
  now_ += 60 * kSecond;
  core_->Tick();
  EXPECT_FALSE(agents_.Lives(other, "j"));
  agents_.SetDown(here, false);
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("j").restarts(), 1u);
  std::vector<std::string> asked = agents_.Started(here);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), "run j"), 1);
  EXPECT_THAT(agents_.Started(other), Not(Contains("run j")));
}

TEST_F(DriverTest, AfterAWhileAJobWaitsNoMoreAndBeginsAnew) {
  Join("n0");
  Join("n1");
  agents_.Refuse("copy-image", "there is no room");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.SetImage(here, "j", "i1");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(here); }));
  agents_.SetDown(here, true);
  AwaitState("j", v1::QUEUE_STATE_LOST);
  now_ += 600 * kSecond;
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_TRUE(agents_.Lives(other, "j"));
  // The old image stays until the new life has one that is to be there in its place.
  agents_.SetDown(here, false);
  ASSERT_TRUE(agents_.Await([&] { return Reachable(here) && !agents_.Lives(here, "j"); }));
  EXPECT_THAT(agents_.Started(here), Not(Contains("remove j")));
  agents_.Refuse("copy-image", "");
  agents_.SetImage(other, "j", "i2");
  ASSERT_TRUE(agents_.Await([&] {
    bool kept = false;
    core_->Look([&](const Cluster& cluster) {
      const std::vector<std::string>& copies = cluster.Find("j")->copies;
      kept = !copies.empty() && copies.back() == here;
    });
    return kept;
  }));
  EXPECT_THAT(agents_.Started(here), Contains("remove j"));
}

TEST_F(DriverTest, ASilentMomentCostsNothing) {
  Join("n0");
  Run("j", 1);
  agents_.SetDown("n0", true);
  agents_.SetDown("n0", false);
  agents_.End("n0", "j", 0);
  AwaitState("j", v1::QUEUE_STATE_DONE);
  EXPECT_EQ(Job("j").restarts(), 0u);
}

TEST_F(DriverTest, AJobThatWasOnItsWayToALostNodeComesBack) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.Hold("migrate", true);
  v1::DrainRequest request;
  request.set_node(here);
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] { return Job("j").state() == v1::QUEUE_STATE_MOVING; }));
  agents_.SetDown(other, true);
  ASSERT_TRUE(agents_.Await([&] { return Job("j").restarts() == 1; }));
  ASSERT_OK(core_->Undrain(here).status());
  agents_.Refuse("migrate", "the target is gone");
  agents_.Hold("migrate", false);
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("j").node(), here);
  EXPECT_TRUE(agents_.Lives(here, "j"));
}

TEST_F(DriverTest, WhatSomebodyElseHasPausedIsResumed) {
  Join("n0");
  Run("j", 1);
  agents_.SetCondition("n0", "j", v1::CONDITION_PAUSED);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started("n0").size() == 3; }));
  EXPECT_THAT(agents_.Started("n0"), ElementsAre("run j", "schedule j", "resume j"));
  agents_.End("n0", "j", 0);
  AwaitState("j", v1::QUEUE_STATE_DONE);
}

using Late = FakeAgents::Late;

// An answer that was on its way when it happened is older than what was told of it, and nothing is told
// twice.
TEST_F(DriverTest, AnEndThatIsToldBeforeAnOlderAnswerComesIsNotForgotten) {
  Join("n0");
  agents_.SetLate("n0", Late::kAnswers);
  Submit("j", 1);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Waiting("n0") == 1; })) << "after the order has ended";
  agents_.End("n0", "j", 0);
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold("n0"); }));
  agents_.SetLate("n0", Late::kNothing);
  AwaitState("j", v1::QUEUE_STATE_DONE);
}

TEST_F(DriverTest, WhatHasComeRightMeanwhileIsNotPutRight) {
  Join("n0");
  Run("j", 1);
  agents_.SetLate("n0", Late::kQuestions);
  agents_.SetCondition("n0", "j", v1::CONDITION_PAUSED);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Waiting("n0") == 1; }));
  agents_.SetCondition("n0", "j", v1::CONDITION_RUNNING);
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold("n0"); }));
  agents_.SetLate("n0", Late::kNothing);
  agents_.End("n0", "j", 0);
  AwaitState("j", v1::QUEUE_STATE_DONE);
  EXPECT_THAT(agents_.Started("n0"), ElementsAre("run j", "schedule j"));
}

TEST_F(DriverTest, ACopyThatHasEndedMeanwhileIsNotEnded) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  v1::DrainRequest request;
  request.set_node(here);
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] { return agents_.Lives(other, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  agents_.SetLate(here, Late::kQuestions);
  agents_.SetCondition(here, "j", v1::CONDITION_RUNNING);  // by hand, from an image
  ASSERT_TRUE(agents_.Await([&] { return agents_.Waiting(here) == 1; }));
  agents_.SetCondition(here, "j", v1::CONDITION_CHECKPOINTED);
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(here); }));
  agents_.SetLate(here, Late::kNothing);
  agents_.End(other, "j", 0);
  AwaitState("j", v1::QUEUE_STATE_DONE);
  EXPECT_THAT(agents_.Started(here), ::testing::Not(::testing::Contains("cancel j")));
}

// Leases rotate, jobs move and nodes are drained, while answers come when they like.
TEST_F(DriverTest, NobodyRunsWhereSomebodyElseDoesHoweverLateItIsTold) {
  End();
  Start(50);
  Join("n0");
  Join("n1");
  std::mt19937 random(7);
  const auto below = [&](unsigned most) { return random() % most; };
  std::vector<std::string> living;
  int submitted = 0, most = 0;
  const auto node = [&] { return "n" + std::to_string(below(2)); };
  for (int step = 0; step < 600; ++step) {
    now_ += 5;
    if (submitted < 40 && below(8) == 0) {
      living.push_back("j" + std::to_string(submitted++));
      Submit(living.back(), 1 + static_cast<int>(below(2)), 0, below(10) == 0 ? 5 : 0);
    }
    if (below(4) == 0) agents_.SetLate(node(), static_cast<Late>(below(3)));
    if (below(20) == 0) agents_.Hold(below(2) == 0 ? "pause" : "migrate", below(2) == 0);
    if (below(40) == 0) {
      v1::DrainRequest request;
      request.set_node(node());
      if (below(2) == 0) static_cast<void>(core_->Drain(request));
      static_cast<void>(core_->Undrain(node()));
    }
    if (!living.empty() && below(12) == 0) {
      const std::string job = living[below(static_cast<unsigned>(living.size()))];
      for (const char* at : {"n0", "n1"}) {
        if (agents_.Runs(at, job)) agents_.End(at, job, 0);
      }
    }
    most = std::max(most, static_cast<int>(living.size()));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const char* at : {"n0", "n1"}) {
    agents_.SetLate(at, Late::kNothing);
    static_cast<void>(core_->Undrain(at));
  }
  for (const char* verb : {"pause", "migrate"}) agents_.Hold(verb, false);
  EXPECT_TRUE(agents_.Await([&] {
    now_ += 10;
    core_->Tick();
    bool all = true;
    for (const std::string& job : living) {
      for (const char* at : {"n0", "n1"}) {
        if (agents_.Runs(at, job)) agents_.End(at, job, 0);
      }
      all = all && Job(job).state() == v1::QUEUE_STATE_DONE;
    }
    return all;
  }));
  EXPECT_THAT(agents_.Clashes(), ::testing::IsEmpty());
  EXPECT_GT(most, 4);
}

TEST_F(DriverTest, ACancelledJobIsEndedWhereverItIs) {
  Join("n0");
  Run("runs", 2);
  Submit("waits", 2);
  ASSERT_OK(core_->Cancel("waits").status());
  EXPECT_EQ(Job("waits").state(), v1::QUEUE_STATE_CANCELLED);
  ASSERT_OK(core_->Cancel("runs").status());
  AwaitState("runs", v1::QUEUE_STATE_CANCELLED);
  EXPECT_FALSE(agents_.Lives("n0", "runs"));
}

TEST_F(DriverTest, AfterANewerSchedulerItDoesNothingMore) {
  Join("n0");
  Run("j", 1);
  agents_.SetFence("n0", core_->reign() + 1);
  Submit("k", 1);
  ASSERT_TRUE(agents_.Await([&] { return fenced_off_.load(); }));
  EXPECT_EQ(Job("k").state(), v1::QUEUE_STATE_STARTING) << "the order was neither done nor refused";
  EXPECT_TRUE(agents_.Lives("n0", "j"));
}

TEST_F(DriverTest, AnotherAgentDoesNotGetTheNameOfANodeThatIsThere) {
  Join("n0");
  v1::JoinRequest request;
  request.set_address("unix:/n1");
  request.set_node("n0");
  request.set_agent_id("another");
  EXPECT_EQ(driver_->Join(request).code(), StatusCode::kFailedPrecondition);
  request.set_address("nowhere");
  EXPECT_EQ(driver_->Join(request).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stasis::scheduler

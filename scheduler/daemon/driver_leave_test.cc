// The driver and jobs that are to leave their devices: those that never do, and nodes that will be gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "scheduler/daemon/driver_testing.h"

namespace stasis::scheduler {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// ---- Pauses that never end

TEST_F(DriverTest, AVictimThatNeverPausesIsLetGoAndAnotherOneTaken) {
  Join("n0");
  for (const char* job : {"low-1", "low-2"}) Run(job, 1);
  for (const char* job : {"low-1", "low-2"}) agents_.Hold(std::string("pause ") + job, true);
  Submit("high", 1, 0, 3);
  std::string stuck;
  ASSERT_TRUE(agents_.Await([&] {
    for (const char* job : {"low-1", "low-2"}) {
      if (Job(job).state() == v1::QUEUE_STATE_PAUSING) stuck = job;
    }
    const std::vector<std::string> started = agents_.Started("n0");
    return started.back() == "pause " + stuck;
  }));
  const std::string other = stuck == "low-1" ? "low-2" : "low-1";
  agents_.Hold("pause " + other, false);
  now_ += kPauseTimeout - 1;
  core_->Tick();
  EXPECT_THAT(agents_.Started("n0"), Not(Contains("give up pause " + stuck)));
  now_ += 1;
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job(other).state(), v1::QUEUE_STATE_PAUSED);
  EXPECT_EQ(Job(stuck).state(), v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job(stuck).reason(), "job " + stuck + " has not paused within 600 s");
  EXPECT_TRUE(agents_.Runs("n0", stuck));
  EXPECT_THAT(agents_.Started("n0"), Contains("give up pause " + stuck));
  EXPECT_THAT(Events(stuck), Contains("refused"));
  // It pauses after all, when nobody waits for it any more.
  agents_.Hold("pause " + stuck, false);
  ASSERT_TRUE(agents_.Await([&] {
    const std::vector<std::string> started = agents_.Started("n0");
    return started.back() == "resume " + stuck && agents_.Runs("n0", stuck);
  }));
  EXPECT_EQ(Job(stuck).state(), v1::QUEUE_STATE_RUNNING);
  agents_.End("n0", stuck, 0);
  AwaitState(stuck, v1::QUEUE_STATE_DONE);
}

TEST_F(DriverTest, APauseThatIsGivenUpIsNotBegunAgainAtOnce) {
  Join("n0");
  Run("low", 2);
  agents_.Hold("pause", true);
  agents_.SetObedient(true);
  Submit("high", 2, 0, 3);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started("n0").back() == "pause low"; }));
  now_ += kPauseTimeout;
  AwaitState("low", v1::QUEUE_STATE_RUNNING);
  const std::vector<std::string> started = agents_.Started("n0");
  EXPECT_EQ(std::count(started.begin(), started.end(), "pause low"), 1);
  EXPECT_EQ(started.back(), "give up pause low");
  agents_.Hold("pause", false);
  now_ += 60 * kSecond;
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
}

// Nobody waits for devices of a node that is drained, and an image takes as long as it takes.
TEST_F(DriverTest, AnImageOfADrainedNodeIsNotGivenUp) {
  Join("n0");
  Run("j", 2);
  agents_.Hold("checkpoint", true);
  v1::DrainRequest request;
  request.set_node("n0");
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started("n0").back() == "checkpoint j"; }));
  now_ += 2 * kPauseTimeout;
  core_->Tick();
  // The link is asked for its end again and again meanwhile.
  const size_t asked = agents_.Asked("n0");
  ASSERT_TRUE(agents_.Await([&] { return agents_.Asked("n0") >= asked + 2; }));
  EXPECT_EQ(agents_.Started("n0").back(), "checkpoint j");
  agents_.Hold("checkpoint", false);
  AwaitState("j", v1::QUEUE_STATE_PAUSED);
}

// ---- What could not be put right

TEST_F(DriverTest, WhatCouldNotBePutRightIsTriedAgain) {
  Join("n0");
  Run("j", 1);
  agents_.Refuse("resume", "no room on the device");
  agents_.SetCondition("n0", "j", v1::CONDITION_PAUSED);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started("n0").back() == "resume j"; }));
  agents_.Refuse("resume", "");
  EXPECT_TRUE(agents_.Await([&] { return agents_.Runs("n0", "j"); })) << "nothing new is told of it";
}

TEST_F(DriverTest, ACopyThatCouldNotBeEndedIsEndedLater) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  v1::DrainRequest request;
  request.set_node(here);
  ASSERT_OK(core_->Drain(request).status());
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
  ASSERT_TRUE(agents_.Await([&] { return Job("j").node() == other; }));
  agents_.Refuse("cancel", "its init does not answer");
  agents_.SetCondition(here, "j", v1::CONDITION_RUNNING);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Started(here).back() == "cancel j"; }));
  agents_.Refuse("cancel", "");
  EXPECT_TRUE(agents_.Await([&] { return !agents_.Lives(here, "j"); }));
  EXPECT_TRUE(agents_.Runs(other, "j"));
}

// ---- Nodes that will be gone

class NoticedNodeTest : public DriverTest {
 protected:
  // Jobs whose images take 5, 25 and 60 s to be somewhere else, on "big", and as many devices elsewhere.
  void RunThree() {
    agents_.Add("big", 3);
    agents_.Add("new", 3);
    Join("big");
    for (const auto& [job, seconds] : kSeconds) Run(job, 1);
    Join("new");
    for (const auto& [job, seconds] : kSeconds) {
      agents_.Hold("copy-image " + job, true);
      agents_.SetImage("big", job, "i1");
      ASSERT_TRUE(
          agents_.Await([&, copy = "copy-image " + job] { return Contained(agents_.Started("big"), copy); }));
      now_ += seconds * kSecond;
      agents_.Hold("copy-image " + job, false);
      ASSERT_TRUE(agents_.Await([&, name = job] {
        bool kept = false;
        core_->Look([&](const Cluster& cluster) { kept = cluster.Find(name)->save_took > 0; });
        return kept;
      }));
      agents_.Hold("migrate " + job, true);
    }
    now_ += 10 * kSecond;
  }
  void Notice(Time notice) {
    notice_ = now_;
    v1::DrainRequest request;
    request.set_node("big");
    request.set_reason("reclaimed");
    request.set_notice_ms(static_cast<uint64_t>(notice));
    ASSERT_OK(core_->Drain(request).status());
  }
  void At(Time after_notice) {
    now_ = notice_ + after_notice;
    core_->Tick();
  }
  static bool Contained(const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  }
  void AwaitStarted(const std::string& what) {
    ASSERT_TRUE(agents_.Await([&] { return Contained(agents_.Started("big"), what); })) << what;
  }
  void Move(const std::string& job) {
    agents_.Hold("migrate " + job, false);
    ASSERT_TRUE(agents_.Await(
        [&] { return Job(job).node() == "new" && Job(job).state() == v1::QUEUE_STATE_RUNNING; }));
  }
  std::map<std::string, v1::SaveState> Saves() {
    std::map<std::string, v1::SaveState> saves;
    const v1::ClusterNode node = Node("big");
    for (const v1::NodeSave& save : node.saves()) saves[save.job()] = save.state();
    return saves;
  }
  v1::NodeSave Save(const std::string& job) {
    const v1::ClusterNode node = Node("big");
    for (const v1::NodeSave& save : node.saves()) {
      if (save.job() == job) return save;
    }
    return {};
  }

  const std::map<std::string, Time> kSeconds = {{"five", 5}, {"twentyfive", 25}, {"sixty", 60}};
  Time notice_ = 0;
};

TEST_F(NoticedNodeTest, WhatFitsIsSavedAndWhatDoesNotIsReported) {
  RunThree();
  Notice(30 * kSecond);
  EXPECT_EQ(Node("big").deadline_ms(), notice_ + 30 * kSecond);
  AwaitStarted("migrate five");
  AwaitStarted("migrate twentyfive");
  EXPECT_THAT(Saves(), UnorderedElementsAre(Pair("five", v1::SAVE_STATE_SAVING),
                                            Pair("twentyfive", v1::SAVE_STATE_SAVING),
                                            Pair("sixty", v1::SAVE_STATE_WAITING)));
  At(5 * kSecond);
  Move("five");
  // It is the same after a start: the notice, what is under way, and how long things take.
  End();
  Start();
  ASSERT_TRUE(agents_.Await([&] { return Reachable("big") && Reachable("new"); }));
  EXPECT_EQ(Node("big").deadline_ms(), notice_ + 30 * kSecond);
  EXPECT_THAT(Saves(), UnorderedElementsAre(Pair("five", v1::SAVE_STATE_SAVED),
                                            Pair("twentyfive", v1::SAVE_STATE_SAVING),
                                            Pair("sixty", v1::SAVE_STATE_WAITING)));
  EXPECT_THAT(agents_.Started("big"), Not(Contains("migrate sixty")));
  At(25 * kSecond);
  Move("twentyfive");
  AwaitStarted("migrate sixty");  // nothing else is to be saved
  At(30 * kSecond - 1);
  EXPECT_EQ(Save("sixty").state(), v1::SAVE_STATE_SAVING);
  At(30 * kSecond);
  EXPECT_EQ(Save("sixty").state(), v1::SAVE_STATE_UNSAVED);
  EXPECT_THAT(Save("sixty").text(), HasSubstr("not done in time; its newest image elsewhere is"));
  EXPECT_GT(Save("sixty").image_ms(), 0);
  EXPECT_THAT(Events("sixty"), Contains("unsaved"));
  for (const char* job : {"five", "twentyfive"}) EXPECT_THAT(Events(job), IsSupersetOf({"moved", "saved"}));
  EXPECT_TRUE(agents_.Runs("big", "sixty")) << "nothing is ended for it";
  // Then it goes, and the job comes back from its last image.
  agents_.SetDown("big", true);
  ASSERT_TRUE(agents_.Await([&] { return Job("sixty").restarts() == 1; }));
  EXPECT_EQ(AwaitState("sixty", v1::QUEUE_STATE_RUNNING), "new");
  agents_.Hold("migrate sixty", false);
}

TEST_F(NoticedNodeTest, WhatWasNotBegunStaysWhenTheNodeDoesAfterAll) {
  RunThree();
  Notice(30 * kSecond);
  AwaitStarted("migrate five");
  AwaitStarted("migrate twentyfive");
  At(5 * kSecond);
  Move("five");
  At(20 * kSecond);
  ASSERT_OK(core_->Undrain("big").status());
  EXPECT_EQ(Node("big").deadline_ms(), 0);
  At(25 * kSecond);
  Move("twentyfive");
  At(30 * kSecond);
  EXPECT_EQ(Job("sixty").state(), v1::QUEUE_STATE_RUNNING);
  EXPECT_EQ(Job("sixty").node(), "big");
  EXPECT_THAT(Saves(), ::testing::IsEmpty());
  EXPECT_THAT(Events("sixty"), ElementsAre("submitted", "started"));
  EXPECT_THAT(agents_.Started("big"), Not(Contains("migrate sixty")));
}

// What is paused is not safe either, and an image is not while only the node that goes has it.
TEST_F(NoticedNodeTest, ImagesAreSavedOnceTheyAreElsewhere) {
  agents_.Add("big", 4);
  Join("big");
  Run("low", 4);
  Submit("high", 4, 0, 3);
  AwaitState("high", v1::QUEUE_STATE_RUNNING);
  ASSERT_EQ(Job("low").state(), v1::QUEUE_STATE_PAUSED);
  Join("n1");  // too small for either
  agents_.Hold("copy-image", true);
  Notice(30 * kSecond);
  for (const char* job : {"low", "high"}) {
    ASSERT_TRUE(agents_.Await([&] { return !agents_.Lives("big", job); })) << job;
    agents_.SetImage("big", job, std::string("image-of-") + job);
    AwaitStarted(std::string("copy-image ") + job);
    EXPECT_EQ(Save(job).state(), v1::SAVE_STATE_SAVING);
  }
  agents_.Hold("copy-image", false);
  for (const char* job : {"low", "high"}) {
    ASSERT_TRUE(agents_.Await([&] { return Save(job).state() == v1::SAVE_STATE_SAVED; })) << job;
    EXPECT_THAT(Events(job), Contains("saved"));
  }
  At(30 * kSecond);
  EXPECT_EQ(Save("low").state(), v1::SAVE_STATE_SAVED);
}

TEST_F(DriverTest, AnImageOfTheSameIdOnAnotherNodeIsAnotherImage) {
  agents_.Add("small", 1);
  Join("n0");
  Run("j", 2);
  Join("small");
  const auto copies = [&](const std::string& node) {
    const std::vector<std::string> started = agents_.Started(node);
    return std::count(started.begin(), started.end(), "copy-image j");
  };
  agents_.SetImage("n0", "j", "000001");
  ASSERT_TRUE(agents_.Await([&] { return copies("n0") == 1; }));
  Join("n1");
  v1::DrainRequest request;
  request.set_node("n0");
  ASSERT_OK(core_->Drain(request).status());
  ASSERT_TRUE(
      agents_.Await([&] { return Job("j").node() == "n1" && Job("j").state() == v1::QUEUE_STATE_RUNNING; }));
  agents_.SetImage("n1", "j", "000001");
  EXPECT_TRUE(agents_.Await([&] { return copies("n1") == 1; }));
}

// Images whose copies go with the next node are copied again.
TEST_F(NoticedNodeTest, CopiesLeaveANodeThatGoes) {
  agents_.Add("n2", 2);
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.SetImage(here, "j", "i1");
  const auto copy_at = [&] {
    std::string copy;
    core_->Look([&](const Cluster& cluster) {
      const std::vector<std::string>& copies = cluster.Find("j")->copies;
      copy = copies.empty() ? "" : copies.back();
    });
    return copy;
  };
  ASSERT_TRUE(agents_.Await([&] { return copy_at() == other; }));
  Join("n2");
  v1::DrainRequest request;
  request.set_node(other);
  request.set_notice_ms(30'000);
  ASSERT_OK(core_->Drain(request).status());
  EXPECT_TRUE(agents_.Await([&] { return copy_at() == "n2"; }));
}

// The other life may have got further than the one that comes, and is all that is left of it.
TEST_F(DriverTest, AMoveOfALifeWithoutImagesRemovesNoneOfAnotherOne) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.RecordOfAnotherLife(other, "j", "/bin/train");
  agents_.SetImage(other, "j", "old");
  ASSERT_TRUE(agents_.Await([&] { return agents_.AllTold(other); }));
  v1::DrainRequest drain;
  drain.set_node(here);
  ASSERT_OK(core_->Drain(drain).status());
  ASSERT_TRUE(agents_.Await([&] {
    const std::vector<std::string> asked = agents_.Started(other);
    return std::find(asked.begin(), asked.end(), "remove j") != asked.end();
  }));
  EXPECT_GT(agents_.ImageAt(other, "j"), 0);
}

// Whoever waits for an agent that is gone keeps the job from everything else.
TEST_F(DriverTest, WhatIsPutRightAtANodeThatIsLostKeepsNoJobFromComingBack) {
  Join("n0");
  Join("n1");
  const std::string here = Run("j", 2), other = Other(here);
  agents_.CopyByHand(here, other, "j", "i1");
  agents_.Hold("resume", true);
  agents_.SetCondition(here, "j", v1::CONDITION_PAUSED);
  ASSERT_TRUE(agents_.Await([&] {
    const std::vector<std::string> asked = agents_.Started(here);
    return std::find(asked.begin(), asked.end(), "resume j") != asked.end();
  }));
  agents_.SetDown(here, true);
  ASSERT_TRUE(agents_.Await([&] { return agents_.Runs(other, "j"); }));
  AwaitState("j", v1::QUEUE_STATE_RUNNING);
}

TEST_F(DriverTest, ANodeThatAnswersAndIsNotToBeUsedIsLost) {
  Join("n0");
  Join("n1");
  End();
  agents_.Add("n1", 1);  // it had two devices
  Start();
  EXPECT_TRUE(agents_.Await([&] { return !Reachable("n1"); }));
}

TEST_F(DriverTest, WhatWasMovedOutOfTheClusterHasFailed) {
  Join("n0");
  Run("j", 1);
  agents_.SetMoved("n0", "j", "elsewhere");
  AwaitState("j", v1::QUEUE_STATE_FAILED);
  EXPECT_NE(Job("j").reason().find("elsewhere"), std::string::npos);
}

}  // namespace
}  // namespace stasis::scheduler

// What a schedule does for a job that has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/agent/schedule_book_testing.h"

namespace stasis {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

class ScheduleRestartsTest : public ScheduleBookTest {};

TEST_F(ScheduleRestartsTest, RestartsWhatWasKilledFromTheNewestImage) {
  Set(Rules(20000, 3));
  images_.Add(kJob, "000001");
  images_.Add(kJob, "000002");
  Kill();
  Turn();
  EXPECT_EQ(Told().state(), "restarting");
  EXPECT_EQ(Told().restart_ms(), now_.wall_ms + 1000);
  EXPECT_EQ(Wait(), seconds(1));
  ASSERT_EQ(LastVerb(), "restore");
  EXPECT_EQ(RestoredImage(), "000002");
  EXPECT_EQ(operations_.submitted().back().request.actor.name, "restart");
  SucceedRestore();
  EXPECT_EQ(Told().state(), "watching");
  EXPECT_EQ(Told().restarts(), 1u);
  EXPECT_EQ(Told().restart_ms(), 0);
  EXPECT_EQ(Wait(), seconds(20));
  EXPECT_EQ(LastVerb(), "checkpoint");
}

TEST_F(ScheduleRestartsTest, BackoffDoublesUntilItIsGivenUp) {
  Set(Rules(0, 3));
  images_.Add(kJob, "000001");
  for (int seconds_before : {1, 2, 4}) {
    Kill();
    Turn();
    EXPECT_EQ(Wait(), seconds(seconds_before));
    SucceedRestore();
  }
  Kill();
  Turn();
  EXPECT_FALSE(wait_.has_value());
  EXPECT_EQ(Told().state(), "given-up");
  EXPECT_EQ(Told().restarts(), 3u);
  EXPECT_THAT(Told().last_error(), HasSubstr("after 3 restarts"));
  Open();
  Turn();
  EXPECT_EQ(count(), 3u);
  EXPECT_EQ(Told().state(), "given-up");
  Be(v1::CONDITION_RUNNING, true);  // somebody has restored it
  Turn();
  EXPECT_EQ(Told().state(), "watching");
}

TEST_F(ScheduleRestartsTest, AnImageInBetweenBeginsAnew) {
  Set(Rules(20000, 1));
  images_.Add(kJob, "000001");
  for (int round = 2; round < 8; round++) {
    Kill();
    Turn();
    EXPECT_EQ(Wait(), seconds(1));
    SucceedRestore();
    Wait();
    SucceedCheckpoint("00000" + std::to_string(round));
  }
  EXPECT_EQ(Told().restarts(), 6u);
  EXPECT_EQ(Told().restarts_in_a_row(), 0u);
}

TEST_F(ScheduleRestartsTest, WhatEndsAsItShouldOrOnRequestStaysEnded) {
  images_.Add(kJob, "000001");
  for (auto end : {std::function<void()>([&] { Be(v1::CONDITION_EXITED, false, 0); }),
                   std::function<void()>([&] { Be(v1::CONDITION_EXITED, false, 3, 0, "cancel"); }),
                   std::function<void()>([&] { Be(v1::CONDITION_KILLED, false, 0, SIGKILL, "cancel"); }),
                   std::function<void()>([&] { Be(v1::CONDITION_KILLED, false, 0, SIGINT); }),
                   std::function<void()>([&] { Be(v1::CONDITION_CHECKPOINTED, false, 0, 0, "checkpoint"); }),
                   std::function<void()>([&] { Be(v1::CONDITION_MIGRATED, false); })}) {
    Be(v1::CONDITION_RUNNING, true);
    Set(Rules(20000, 3));
    end();
    Turn();
    EXPECT_EQ(Told().state(), "ended");
    EXPECT_EQ(Told().next_ms(), 0);
    Pass(minutes(10));
    EXPECT_EQ(count(), 0u);
  }
}

TEST_F(ScheduleRestartsTest, FailuresOfAllKindsAreRestarted) {
  images_.Add(kJob, "000001");
  size_t expected = 0;
  for (auto end : {std::function<void()>([&] { Be(v1::CONDITION_EXITED, false, 1); }),
                   std::function<void()>([&] { Be(v1::CONDITION_KILLED, false, 0, SIGSEGV); }),
                   std::function<void()>([&] { Be(v1::CONDITION_KILLED, false, 0, SIGTERM); })}) {
    Set(Rules(20000, 1));
    end();
    Turn();
    Wait();
    EXPECT_EQ(count(), ++expected);
    SucceedRestore();
  }
}

TEST_F(ScheduleRestartsTest, OfABrokenJobTheRestIsEndedFirst) {
  Set(Rules(20000, 3));
  images_.Add(kJob, "000001");
  Be(v1::CONDITION_BROKEN, true);
  Turn();
  Wait();
  ASSERT_EQ(LastVerb(), "cancel");
  EXPECT_EQ(operations_.submitted().back().request.actor.name, "restart");
  Be(v1::CONDITION_KILLED, false, 0, SIGTERM, "cancel");
  Succeed({{"ok", true}});
  ASSERT_EQ(LastVerb(), "restore");
  SucceedRestore();
  // Ours is not the user's: once it runs again a cancel is one.
  Be(v1::CONDITION_KILLED, false, 0, SIGTERM, "cancel");
  Turn();
  EXPECT_EQ(Told().state(), "ended");
}

TEST_F(ScheduleRestartsTest, ABrokenJobWhoseRestCannotBeEndedIsAskedAgainLater) {
  Set(Rules(20000, 3));
  images_.Add(kJob, "000001");
  Be(v1::CONDITION_BROKEN, true);
  Turn();
  Wait();
  Fail("UNAVAILABLE");
  EXPECT_EQ(count(), 1u);
  EXPECT_EQ(Wait(), seconds(1));
  EXPECT_EQ(count(), 2u);
  EXPECT_EQ(LastVerb(), "cancel");
}

TEST_F(ScheduleRestartsTest, AnImageThatCannotBeReadIsPassedOver) {
  Set(Rules(20000, 1));
  for (const char* id : {"000001", "000002", "000003"}) images_.Add(kJob, id);
  Kill();
  Turn();
  Wait();
  EXPECT_EQ(RestoredImage(), "000003");
  Fail("CORRUPT", "a chunk is damaged");
  EXPECT_EQ(RestoredImage(), "000002");
  Fail("NOT_FOUND");
  EXPECT_EQ(RestoredImage(), "000001");
  SucceedRestore();
  EXPECT_EQ(Told().restarts(), 1u);
}

TEST_F(ScheduleRestartsTest, WithoutAGoodImageItIsGivenUp) {
  Set(Rules(20000, 3));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Wait();
  Fail("CORRUPT", "a chunk is damaged");
  EXPECT_EQ(Told().state(), "given-up");
  EXPECT_THAT(Told().last_error(), HasSubstr("a chunk is damaged"));
  EXPECT_EQ(count(), 1u);
}

TEST_F(ScheduleRestartsTest, WithoutAnyImageItIsGivenUp) {
  Set(Rules(20000, 3));
  Kill();
  Turn();
  Wait();
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(Told().state(), "given-up");
  EXPECT_EQ(Told().last_error(), "there is no image to restart it from");
}

TEST_F(ScheduleRestartsTest, ARestartThatFailsIsTriedAgainWithinTheLimit) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  EXPECT_EQ(Wait(), seconds(1));
  Fail("RESOURCE_EXHAUSTED", "no device memory");
  EXPECT_EQ(Told().last_error(), "restore: no device memory");
  EXPECT_EQ(Wait(), seconds(2));
  Fail("RESOURCE_EXHAUSTED", "no device memory");
  EXPECT_EQ(Told().state(), "given-up");
  EXPECT_THAT(Told().last_error(), HasSubstr("no device memory"));
  EXPECT_EQ(count(), 2u);
}

TEST_F(ScheduleRestartsTest, ARestartThatSomebodyGivesUpStaysGivenUp) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Wait();
  operations_.End(v1::OPERATION_STATE_CANCELLED, {{"ok", false}, {"code", "CANCELLED"}}, now_.wall_ms);
  Turn();
  EXPECT_EQ(Told().state(), "given-up");
}

TEST_F(ScheduleRestartsTest, NobodyIsRestartedWhileSomebodyElseWorksOnIt) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  job_.set_operation("op-99");
  Kill();
  Turn();
  Pass(minutes(1));
  EXPECT_EQ(count(), 0u);
  EXPECT_FALSE(wait_.has_value());
  job_.set_operation("");
  Be(v1::CONDITION_RUNNING, true);
  Turn();
  EXPECT_EQ(Told().state(), "watching");
  EXPECT_EQ(Told().restarts(), 0u);
}

TEST_F(ScheduleRestartsTest, ACheckpointThatTheJobDiedInIsFollowedByARestart) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Wait();
  Kill();
  Turn();
  EXPECT_EQ(count(), 1u);
  Fail("PEER_DIED", "the task has ended");
  EXPECT_EQ(Wait(), seconds(1));
  EXPECT_EQ(LastVerb(), "restore");
}

TEST_F(ScheduleRestartsTest, ChangingTheRulesOfADeadJobBringsNothingBack) {
  Set(Rules(20000));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Set(Rules(20000, 5));
  Pass(minutes(5));
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(Told().state(), "ended");
}

}  // namespace
}  // namespace stasis

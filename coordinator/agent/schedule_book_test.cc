#include "coordinator/agent/schedule_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/agent/schedule_book_testing.h"

namespace stasis {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;

TEST_F(ScheduleBookTest, ChecksJobAndRules) {
  v1::Schedule schedule = Rules(20000);
  schedule.set_job("nobody");
  EXPECT_EQ(book_->Set(schedule, now_).status().code(), StatusCode::kNotFound);
  schedule.set_job("../etc");
  EXPECT_EQ(book_->Set(schedule, now_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(book_->Set(Rules(1), now_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
}

TEST_F(ScheduleBookTest, CheckpointsAtEachInterval) {
  Set(Rules(20000));
  EXPECT_EQ(Told().next_ms(), kStart + 20000);
  EXPECT_EQ(Told().state(), "watching");
  EXPECT_EQ(Wait(), seconds(20));
  ASSERT_EQ(count(), 1u);
  const OperationRequest& request = operations_.submitted().back().request;
  EXPECT_EQ(request.verb, "checkpoint");
  EXPECT_EQ(request.job, kJob);
  EXPECT_EQ(request.actor.name, "schedule");
  EXPECT_EQ(request.actor.role, Role::kItself);
  v1::CheckpointRequest message;
  ASSERT_TRUE(message.ParseFromString(request.request));
  EXPECT_EQ(message.job(), kJob);
  EXPECT_EQ(message.change().idempotency_key(), request.key);
  EXPECT_FALSE(wait_.has_value());  // until it has ended
  EXPECT_EQ(Told().next_ms(), 0);
  Pass(seconds(5));
  SucceedCheckpoint("000001", 250);
  EXPECT_EQ(Told().last_image(), "000001");
  EXPECT_DOUBLE_EQ(Told().measured_cost_ms(), 250);
  EXPECT_EQ(Told().suggested_interval_ms(), static_cast<uint64_t>(SuggestedIntervalMs(250, 3.6e6)));
  EXPECT_EQ(Wait(), seconds(15));
  EXPECT_EQ(count(), 2u);
}

TEST_F(ScheduleBookTest, ASecondScheduleReplacesTheFirst) {
  Set(Rules(20000));
  Pass(seconds(15));
  Set(Rules(30000));
  EXPECT_EQ(Wait(), seconds(30));
  EXPECT_EQ(book_->List("").size(), 1u);
  EXPECT_TRUE(woken_);
}

TEST_F(ScheduleBookTest, WithoutAnyRuleItIsRemoved) {
  Set(Rules(20000));
  Set(Rules(0));
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
  EXPECT_FALSE(wait_.has_value());
  Open();
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
}

TEST_F(ScheduleBookTest, WhatIsPausedWaitsForTheJobToRun) {
  Set(Rules(20000));
  Be(v1::CONDITION_PAUSED, true);
  Pass(minutes(5));
  EXPECT_EQ(count(), 0u);
  EXPECT_FALSE(wait_.has_value());
  Be(v1::CONDITION_RUNNING, true);
  Turn();
  EXPECT_EQ(LastVerb(), "checkpoint");
}

TEST_F(ScheduleBookTest, APausedScheduleDoesNothing) {
  v1::Schedule schedule = Rules(20000, 3);
  schedule.set_paused(true);
  Set(schedule);
  images_.Add(kJob, "000001");
  Pass(minutes(5));
  Kill();
  Pass(minutes(5));
  EXPECT_EQ(count(), 0u);
  EXPECT_FALSE(wait_.has_value());
}

TEST_F(ScheduleBookTest, AFailedCheckpointIsToldAndTriedAgain) {
  Set(Rules(20000));
  Wait();
  Fail("TIMEOUT", "it did not come to rest");
  EXPECT_EQ(Told().last_error(), "checkpoint: it did not come to rest");
  EXPECT_EQ(Wait(), seconds(1));
  EXPECT_EQ(count(), 2u);
  SucceedCheckpoint("000001");
  EXPECT_EQ(Told().last_error(), "");
  EXPECT_EQ(Wait(), seconds(20));
}

TEST_F(ScheduleBookTest, ACheckpointThatSomebodyGivesUpIsNotTriedAtOnce) {
  Set(Rules(20000));
  Wait();
  operations_.End(v1::OPERATION_STATE_CANCELLED, {{"ok", false}, {"code", "CANCELLED"}}, now_.wall_ms);
  Turn();
  EXPECT_EQ(Wait(), seconds(20));
}

TEST_F(ScheduleBookTest, SomebodyElsesCheckpointCountsToo) {
  Set(Rules(20000));
  Pass(seconds(15));
  v1::Operation operation;
  operation.set_id("op-77");
  operation.set_verb("checkpoint");
  operation.set_job(kJob);
  operation.set_state(v1::OPERATION_STATE_SUCCEEDED);
  operation.set_result_json(R"({"ok": true, "image": "000001", "standstill_ms": 40})");
  operations_.Tell(operation);
  Turn();
  EXPECT_EQ(Wait(), seconds(20));
  EXPECT_EQ(Told().last_image(), "");  // not the schedule's
  EXPECT_DOUBLE_EQ(Told().measured_cost_ms(), 40);
}

TEST_F(ScheduleBookTest, KeepsTheLastOfItsOwnImages) {
  v1::Schedule schedule = Rules(20000);
  schedule.set_keep_last(2);
  Set(schedule);
  images_.Add(kJob, "000001");  // the user's
  for (const char* id : {"000002", "000003", "000004", "000005"}) {
    Wait();
    SucceedCheckpoint(id);
  }
  EXPECT_THAT(*images_.List(kJob), ElementsAre("000001", "000004", "000005"));
  ASSERT_TRUE(images_.Remove(kJob, {"000004"}).ok());  // by somebody
  Wait();
  SucceedCheckpoint("000006");
  EXPECT_THAT(*images_.List(kJob), ElementsAre("000001", "000005", "000006"));
}

TEST_F(ScheduleBookTest, ARemovedJobHasNoSchedule) {
  Set(Rules(20000));
  registry_.Remove(kJob);
  Turn();
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
  Open();
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
}

TEST_F(ScheduleBookTest, AnotherJobOfThatNameHasNoSchedule) {
  Set(Rules(20000));
  job_.set_created_ms(now_.wall_ms);
  Be(v1::CONDITION_RUNNING, true);
  Turn();
  EXPECT_THAT(book_->List(""), testing::IsEmpty());
  EXPECT_FALSE(wait_.has_value());
}

TEST_F(ScheduleBookTest, TheNextAgentGoesOnWithTheInterval) {
  Set(Rules(20000, 5));
  Wait();
  SucceedCheckpoint("000001", 300);
  now_.monotonic += seconds(12);
  now_.wall_ms += 12000;
  Open();
  Turn();
  EXPECT_EQ(Told().last_image(), "000001");
  EXPECT_DOUBLE_EQ(Told().measured_cost_ms(), 300);
  EXPECT_EQ(Wait(), seconds(8));
  EXPECT_EQ(LastVerb(), "checkpoint");
}

TEST_F(ScheduleBookTest, TheNextAgentTakesWhatItsOperationHasCometo) {
  Set(Rules(20000));
  Wait();
  images_.Add(kJob, "000001");
  operations_.End(v1::OPERATION_STATE_SUCCEEDED, {{"ok", true}, {"image", "000001"}, {"standstill_ms", 5}},
                  now_.wall_ms, /*told=*/false);
  Open();
  Turn();
  EXPECT_EQ(Told().last_image(), "000001");
  EXPECT_EQ(count(), 1u);
  EXPECT_EQ(Wait(), seconds(20));
}

TEST_F(ScheduleBookTest, TheNextAgentWaitsForAnOperationThatGoesOn) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Wait();
  Open();
  Pass(minutes(1));
  EXPECT_EQ(count(), 1u);
  SucceedRestore();
  EXPECT_EQ(Told().restarts(), 1u);
}

TEST_F(ScheduleBookTest, WhatTheStoppingAgentGaveUpIsDoneByTheNext) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Wait();
  operations_.End(v1::OPERATION_STATE_CANCELLED, {{"ok", false}, {"code", "CANCELLED"}}, now_.wall_ms,
                  /*told=*/false);
  Open();
  Turn();
  EXPECT_EQ(Told().state(), "restarting");
  Wait();
  EXPECT_EQ(count(), 2u);
}

TEST_F(ScheduleBookTest, AJobThatFailedWhileNoAgentRanIsRestarted) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  book_.reset();
  Kill();
  Open();
  Turn();
  EXPECT_EQ(Told().state(), "restarting");
  Wait();
  EXPECT_EQ(LastVerb(), "restore");
}

TEST_F(ScheduleBookTest, WhatCannotBeStartedIsTriedAgain) {
  Set(Rules(20000));
  operations_.Refuse(Status(StatusCode::kResourceExhausted, "too many are queued"));
  Wait();
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(Told().last_error(), "too many are queued");
  operations_.Refuse(Status());
  EXPECT_EQ(Wait(), seconds(1));
  EXPECT_EQ(count(), 1u);
}

// The agent is killed right after it has asked for an operation, before it has written down which one it is.
TEST_F(ScheduleBookTest, AskingAgainAfterAKillIsAskingOnce) {
  Set(Rules(20000));
  Wait();
  ASSERT_EQ(count(), 1u);
  ScheduleTable table(*database_);
  Result<std::vector<ScheduleTable::Row>> rows = table.Load();
  ASSERT_TRUE(rows.ok());
  ASSERT_EQ(rows->size(), 1u);
  EXPECT_EQ(rows->at(0).state.operation, "op-1");
  rows->at(0).state.operation.clear();
  book_.reset();
  ASSERT_TRUE(table.Save(rows->at(0)).ok());
  Open();
  Turn();
  EXPECT_EQ(count(), 1u);
  SucceedCheckpoint("000001");
  EXPECT_EQ(Told().last_image(), "000001");
}

TEST_F(ScheduleBookTest, KeysAreNotUsedAgainByALaterScheduleOfTheSameJob) {
  Set(Rules(20000));
  Wait();
  std::string key = operations_.submitted().back().request.key;
  SucceedCheckpoint("000001");
  Set(Rules(0));
  Pass(seconds(1));
  Set(Rules(20000));
  Wait();
  ASSERT_EQ(count(), 2u);
  EXPECT_NE(operations_.submitted().back().request.key, key);
}

}  // namespace
}  // namespace stasis

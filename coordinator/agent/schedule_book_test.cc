#include "coordinator/agent/schedule_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/agent/schedule_testing.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/testing.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kStart = 1767225600000;  // 2026-01-01 00:00:00 UTC
constexpr char kJob[] = "train";

class ScheduleBookTest : public testing::Test {
 protected:
  ScheduleBookTest() {
    setenv("TZ", "UTC0", 1);
    tzset();
    now_ = {hours(10), kStart};
    job_.set_name(kJob);
    job_.set_created_ms(kStart - 1000);
    Open();
    Be(v1::CONDITION_RUNNING, true);
  }

  // The agent starts, perhaps again.
  void Open() {
    book_.reset();
    database_.reset();
    Result<std::unique_ptr<Database>> database = Database::Open(folder_.File("agent.db"), SchemaSteps());
    ASSERT_TRUE(database.ok()) << database.status().ToString();
    database_ = *std::move(database);
    ScheduleParts parts;
    parts.database = database_.get();
    parts.registry = &registry_;
    parts.operations = &operations_;
    parts.images = &images_;
    parts.background = [](const std::function<void()>& work) { work(); };
    parts.wake = [this] { woken_ = true; };
    parts.default_mtbf_ms = 3.6e6;
    Result<std::unique_ptr<ScheduleBook>> book = ScheduleBook::Open(std::move(parts), now_);
    ASSERT_TRUE(book.ok()) << book.status().ToString();
    book_ = *std::move(book);
  }

  v1::Schedule Rules(uint64_t interval_ms, uint32_t max_restarts = 0) {
    v1::Schedule schedule;
    schedule.set_job(kJob);
    schedule.set_interval_ms(interval_ms);
    schedule.set_max_restarts(max_restarts);
    return schedule;
  }
  void Set(const v1::Schedule& schedule) {
    Result<v1::Schedule> set = book_->Set(schedule, now_);
    ASSERT_TRUE(set.ok()) << set.status().ToString();
    Turn();
  }
  v1::Schedule Told() {
    std::vector<v1::Schedule> schedules = book_->List(kJob);
    return schedules.empty() ? v1::Schedule() : schedules[0];
  }

  void Be(v1::Condition condition, bool live, int code = 0, int signal = 0, const char* ended_by = "") {
    job_.set_condition(condition);
    job_.set_live(live);
    job_.set_exit_code(code);
    job_.set_signal(signal);
    job_.set_ended_by(ended_by);
    registry_.Put(job_);
  }
  void Kill() { Be(v1::CONDITION_KILLED, false, 0, SIGKILL); }
  void Turn() { wait_ = book_->Turn(now_); }
  void Pass(Duration time) {
    now_.monotonic += time;
    now_.wall_ms += std::chrono::duration_cast<milliseconds>(time).count();
    Turn();
  }
  // As long as the book says.
  Duration Wait() {
    EXPECT_TRUE(wait_.has_value());
    Duration waited = wait_.value_or(Duration::zero());
    Pass(waited);
    return waited;
  }

  size_t count() const { return operations_.submitted().size(); }
  std::string LastVerb() const { return count() == 0 ? "" : operations_.submitted().back().request.verb; }
  std::string RestoredImage() const {
    v1::RestoreRequest request;
    EXPECT_TRUE(request.ParseFromString(operations_.submitted().back().request.request));
    return request.image();
  }
  void Succeed(const Json& result) {
    operations_.End(v1::OPERATION_STATE_SUCCEEDED, result, now_.wall_ms);
    Turn();
  }
  void SucceedCheckpoint(const std::string& id, double standstill_ms = 100) {
    ASSERT_EQ(LastVerb(), "checkpoint");
    images_.Add(kJob, id);
    Succeed({{"ok", true}, {"image", id}, {"standstill_ms", standstill_ms}});
  }
  void SucceedRestore() {
    ASSERT_EQ(LastVerb(), "restore");
    Be(v1::CONDITION_RUNNING, true);
    Succeed({{"ok", true}});
  }
  void Fail(const char* code, const char* message = "it went wrong") {
    operations_.End(v1::OPERATION_STATE_FAILED, {{"ok", false}, {"code", code}, {"message", message}},
                    now_.wall_ms);
    Turn();
  }

  TempFolder folder_;
  Moment now_;
  v1::Job job_;
  FakeRegistry registry_;
  ScheduleOperations operations_;
  ScheduleImages images_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<ScheduleBook> book_;
  std::optional<Duration> wait_;
  bool woken_ = false;
};

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

TEST_F(ScheduleBookTest, RestartsWhatWasKilledFromTheNewestImage) {
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

TEST_F(ScheduleBookTest, BackoffDoublesUntilItIsGivenUp) {
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

TEST_F(ScheduleBookTest, AnImageInBetweenBeginsAnew) {
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

TEST_F(ScheduleBookTest, WhatEndsAsItShouldOrOnRequestStaysEnded) {
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

TEST_F(ScheduleBookTest, FailuresOfAllKindsAreRestarted) {
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

TEST_F(ScheduleBookTest, OfABrokenJobTheRestIsEndedFirst) {
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

TEST_F(ScheduleBookTest, ABrokenJobWhoseRestCannotBeEndedIsAskedAgainLater) {
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

TEST_F(ScheduleBookTest, AnImageThatCannotBeReadIsPassedOver) {
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

TEST_F(ScheduleBookTest, WithoutAGoodImageItIsGivenUp) {
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

TEST_F(ScheduleBookTest, WithoutAnyImageItIsGivenUp) {
  Set(Rules(20000, 3));
  Kill();
  Turn();
  Wait();
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(Told().state(), "given-up");
  EXPECT_EQ(Told().last_error(), "there is no image to restart it from");
}

TEST_F(ScheduleBookTest, ARestartThatFailsIsTriedAgainWithinTheLimit) {
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

TEST_F(ScheduleBookTest, ARestartThatSomebodyGivesUpStaysGivenUp) {
  Set(Rules(20000, 2));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Wait();
  operations_.End(v1::OPERATION_STATE_CANCELLED, {{"ok", false}, {"code", "CANCELLED"}}, now_.wall_ms);
  Turn();
  EXPECT_EQ(Told().state(), "given-up");
}

TEST_F(ScheduleBookTest, NobodyIsRestartedWhileSomebodyElseWorksOnIt) {
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

TEST_F(ScheduleBookTest, ACheckpointThatTheJobDiedInIsFollowedByARestart) {
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

TEST_F(ScheduleBookTest, ChangingTheRulesOfADeadJobBringsNothingBack) {
  Set(Rules(20000));
  images_.Add(kJob, "000001");
  Kill();
  Turn();
  Set(Rules(20000, 5));
  Pass(minutes(5));
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(Told().state(), "ended");
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

// A book of schedules over one job, whose operations end as the test says.
#ifndef COORDINATOR_AGENT_SCHEDULE_BOOK_TESTING_H_
#define COORDINATOR_AGENT_SCHEDULE_BOOK_TESTING_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/schedule_book.h"
#include "coordinator/agent/schedule_testing.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/testing.h"
#include "coordinator/node/testing.h"

namespace stasis {

inline constexpr int64_t kStart = 1767225600000;  // 2026-01-01 00:00:00 UTC
inline constexpr char kJob[] = "train";

class ScheduleBookTest : public testing::Test {
 protected:
  ScheduleBookTest() {
    setenv("TZ", "UTC0", 1);
    tzset();
    now_ = {std::chrono::hours(10), kStart};
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
    now_.wall_ms += std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
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

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_BOOK_TESTING_H_

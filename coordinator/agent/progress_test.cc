// Rates over what processes have answered, without processes.
#include <gtest/gtest.h>

#include "base/testing.h"
#include "coordinator/agent/progress_book.h"
#include "coordinator/agent/progress_window.h"
#include "coordinator/agent/testing.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

MonotonicTime At(int ms) { return MonotonicTime(milliseconds(ms)); }

TEST(ProgressWindow, TakesTwoAnswers) {
  ProgressWindow window;
  window.Add(At(1000), {0, 100});
  EXPECT_FALSE(window.RateOver(seconds(30)));
  window.Add(At(3000), {0, 150});
  std::optional<ProgressWindow::Rate> rate = window.RateOver(seconds(30));
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->per_second, 25);
  EXPECT_FALSE(rate->iterations);
  EXPECT_EQ(rate->over, seconds(2));
}

TEST(ProgressWindow, MovesOn) {
  ProgressWindow window;
  for (int second = 0; second <= 10; ++second)
    window.Add(At(1000 * second), {0, second < 5 ? 10u * static_cast<unsigned>(second) : 50u});
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(10))->per_second, 5);
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(5))->per_second, 0);
  // Longer ago than the window, and the best there is.
  window.Add(At(20000), {0, 150});
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(5))->per_second, 10);
}

TEST(ProgressWindow, IterationsWhereTheProgramTellsThem) {
  ProgressWindow window;
  window.Add(At(0), {0, 100});
  window.Add(At(1000), {4, 900});
  EXPECT_TRUE(window.RateOver(seconds(5))->iterations);
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(5))->per_second, 4);
}

TEST(ProgressWindow, OtherProcessesBeginAnew) {
  ProgressWindow window;
  window.Add(At(0), {0, 100});
  window.Add(At(1000), {0, 50});
  EXPECT_FALSE(window.RateOver(seconds(5)));
  window.Add(At(2000), {0, 60});
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(5))->per_second, 10);
}

TEST(ProgressWindow, AnswersAtOneMomentAreNoRate) {
  ProgressWindow window;
  window.Add(At(0), {0, 100});
  window.Add(At(5), {0, 200});
  EXPECT_FALSE(window.RateOver(seconds(5)));
  window.Add(At(1000), {0, 1100});
  EXPECT_DOUBLE_EQ(window.RateOver(seconds(5))->per_second, 1000);
}

TEST(ProgressWindow, OldAnswersGo) {
  ProgressWindow window;
  window.Add(At(0), {0, 0});
  window.Add(At(1000), {0, 1000});
  window.Add(MonotonicTime(minutes(30)), {0, 1000});
  EXPECT_DOUBLE_EQ(window.RateOver(minutes(10))->per_second, 0);
}

v1::Job MakeJob(const std::string& name, int ranks, v1::Condition condition) {
  v1::Job job;
  job.set_name(name);
  for (int i = 0; i < ranks; ++i) {
    v1::Rank* rank = job.add_ranks();
    rank->set_task(ranks == 1 ? name : name + "." + std::to_string(i));
    rank->set_rank(static_cast<uint32_t>(i));
    rank->set_condition(condition);
    rank->set_init_pid(1000 + i);
  }
  return job;
}

TEST(ProgressBook, TheMeanOfTheRanksThatTell) {
  FakeRegistry registry;
  ManualClock clock;
  registry.Put(MakeJob("ddp", 3, v1::CONDITION_RUNNING));
  registry.Put(MakeJob("held", 1, v1::CONDITION_PAUSED));
  std::map<std::string, TaskProgress> counted = {{"ddp.0", {0, 10}}, {"ddp.1", {0, 20}}};
  auto ask = [&](const v1::Rank& rank) -> Result<TaskProgress> {
    auto found = counted.find(rank.task());
    if (found != counted.end()) return found->second;
    return Status(StatusCode::kTimeout, rank.task() + " does not answer");
  };
  ProgressBook book(registry, ask, clock);
  Result<v1::ProgressResponse> first = book.Answer({});
  ASSERT_OK(first.status());
  ASSERT_EQ(first->jobs_size(), 1);
  EXPECT_EQ(first->jobs(0).over_ms(), 0u);
  clock.Advance(seconds(2));
  counted["ddp.0"].launches = 30;
  counted["ddp.1"].launches = 80;
  v1::ProgressRequest request;
  request.add_jobs("ddp");
  Result<v1::ProgressResponse> second = book.Answer(request);
  ASSERT_OK(second.status());
  const v1::JobProgress& job = second->jobs(0);
  EXPECT_DOUBLE_EQ(job.rate(), 20);
  EXPECT_EQ(job.unit(), "launches");
  EXPECT_EQ(job.over_ms(), 2000u);
  EXPECT_DOUBLE_EQ(job.ranks(1).rate(), 30);
  EXPECT_EQ(job.ranks(1).launches(), 80u);
  EXPECT_EQ(job.ranks(2).error(), "ddp.2 does not answer");
  v1::Job busy = MakeJob("ddp", 3, v1::CONDITION_RUNNING);
  busy.set_operation("op-000007");
  registry.Put(busy);
  Result<v1::ProgressResponse> third = book.Answer(request);
  ASSERT_OK(third.status());
  EXPECT_EQ(third->jobs(0).over_ms(), 0u);
  EXPECT_EQ(third->jobs(0).ranks(0).error(), "operation op-000007 works on it");
  request.add_jobs("none");
  EXPECT_EQ(book.Answer(request).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace stasis

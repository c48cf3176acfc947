#include "coordinator/node/job.h"

#include <gtest/gtest.h>

#include <csignal>

#include "cli/command_line.h"
#include "cli/job_follow.h"
#include "coordinator/node/job_start.h"
#include "coordinator/node/removal.h"
#include "coordinator/node/task_claim.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

RankFacts Rank(TaskCondition condition, int exit_code = 0, double time = 0) {
  RankFacts rank;
  rank.on_record = true;
  rank.view.condition = condition;
  rank.view.exit_code = exit_code;
  if (condition == TaskCondition::kKilled) rank.view.signal = SIGKILL;
  if (time > 0) rank.facts.exit = {{"time", time}};
  return rank;
}

constexpr TaskCondition kRunning = TaskCondition::kRunning, kPaused = TaskCondition::kPaused,
                        kExited = TaskCondition::kExited, kKilled = TaskCondition::kKilled,
                        kCheckpointed = TaskCondition::kCheckpointed;

TEST(JobView, RanksThatAreAllTheSame) {
  EXPECT_EQ(DeriveJobView({Rank(kRunning), Rank(kRunning)}).text, "running");
  EXPECT_TRUE(DeriveJobView({Rank(kPaused), Rank(kPaused)}).live);
  EXPECT_EQ(DeriveJobView({Rank(kExited), Rank(kExited)}).text, "exited (0)");
  JobView checkpointed = DeriveJobView({Rank(kCheckpointed), Rank(kCheckpointed)});
  EXPECT_EQ(checkpointed.name, "checkpointed");
  EXPECT_FALSE(checkpointed.live);
}

TEST(JobView, RanksThatHaveEndedWellAreCounted) {
  JobView view = DeriveJobView({Rank(kExited), Rank(kRunning), Rank(kRunning)});
  EXPECT_EQ(view.kind, JobCondition::kSame);
  EXPECT_EQ(view.text, "running (2 of 3)");
  EXPECT_EQ(view.name, "running");
}

TEST(JobView, DifferentStates) {
  JobView view = DeriveJobView({Rank(kPaused), Rank(kRunning), Rank(kPaused)});
  EXPECT_EQ(view.kind, JobCondition::kMixed);
  EXPECT_EQ(view.name, "mixed");
  EXPECT_EQ(view.text, "2 paused, 1 running");
  EXPECT_EQ(DeriveJobView({Rank(kCheckpointed), Rank(kExited)}).name, "mixed");
}

TEST(JobView, AFailedRankBreaksWhatStillRuns) {
  JobView view = DeriveJobView({Rank(kRunning), Rank(kExited, 3)});
  EXPECT_EQ(view.kind, JobCondition::kBroken);
  EXPECT_EQ(view.failed_rank, 1);
  EXPECT_EQ(view.text, "broken (rank 1)");
  EXPECT_EQ(DeriveJobView({Rank(kRunning), RankFacts()}).text, "broken: 1 missing, 1 running");
}

TEST(JobView, TheFirstInTimeThatFailedTellsHowItEnded) {
  JobView view = DeriveJobView({Rank(kKilled, 0, 20), Rank(kExited, 7, 10), Rank(kExited, 0, 5)});
  EXPECT_EQ(view.failed_rank, 1);
  EXPECT_EQ(view.exit_code, 7);
  EXPECT_EQ(view.text, "exited (7)");
  EXPECT_EQ(DeriveJobView({Rank(kExited, 0, 5), Rank(kKilled, 0, 20)}).text, "killed (9)");
}

TEST(RankLines, OnlyWholeLines) {
  RankLines lines(12);
  EXPECT_EQ(lines.Take("one\ntw"), "[12] one\n");
  EXPECT_EQ(lines.Take(""), "");
  EXPECT_EQ(lines.Take("o\n\nthree"), "[12] two\n[12] \n");
  EXPECT_EQ(lines.Finish(), "[12] three\n");
  EXPECT_EQ(lines.Finish(), "");
}

TEST(RankLines, AnEndlessLineIsBroken) {
  RankLines lines(0);
  std::string out = lines.Take(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(out.size(), (1u << 20) + 1 + 4 + 1);
  EXPECT_EQ(lines.Finish(), "");
}

class Claims : public testing::Test {
 protected:
  Status Task(const std::string& name) {
    Result<TaskClaim> claim = TaskClaim::Make(folders_, name);
    if (claim.ok()) claim->Keep();
    return claim.status();
  }
  Status Job(const std::string& name, int ranks) {
    Result<JobClaim> claim = JobClaim::Make(folders_, name, ranks);
    if (claim.ok()) claim->Keep();
    return claim.status();
  }
  TempFolder folder_;
  Folders folders_{folder_.path() + "/state", folder_.path() + "/run"};
};

TEST_F(Claims, TasksAndJobsShareTheirNames) {
  EXPECT_TRUE(Job("j", 2).ok());
  EXPECT_TRUE(Task("t").ok());
  EXPECT_EQ(Job("j", 2).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Job("t", 2).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Task("j").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Task("j.1").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Task("j.7").code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(Task("j.x").ok());
  EXPECT_TRUE(Task("i.7").ok());
  EXPECT_EQ(Job("i", 8).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(Job("k", 7).ok());
}

TEST_F(Claims, NothingIsLeftOfOneThatIsNotKept) {
  EXPECT_TRUE(JobClaim::Make(folders_, "j", 3).ok());
  EXPECT_TRUE(Task("j.2").ok());
  // The last rank's name is taken.
  EXPECT_FALSE(JobClaim::Make(folders_, "j", 3).ok());
  EXPECT_EQ(ListTasks(folders_), std::vector<std::string>{"j.2"});
  EXPECT_TRUE(Task("j").ok());
}

TEST_F(Claims, WhatIsLeftOfAJobWithoutARecordIsRemoved) {
  ASSERT_TRUE(Job("j", 1).ok());
  std::string remedy;
  EXPECT_EQ(RemoveByName("j", false, folders_, &remedy).status().ToString(), Status().ToString());
  EXPECT_EQ(RemoveByName("j", false, folders_, &remedy).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(RemoveByName("j.0", false, folders_, &remedy).status().ToString(), Status().ToString());
  EXPECT_TRUE(Job("j", 1).ok());
}

TEST(RunJob, EnvironmentOfARank) {
  JobRecord record;
  record.name = "j";
  record.master_port = 4711;
  record.nodes.resize(2);
  record.nodes[0].address = "10.0.0.1";
  record.nodes[0].ranks = 2;
  record.nodes[1].ranks = 3;
  EXPECT_EQ(RankEnvironment(record, 3),
            (std::vector<std::string>{"RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=5", "LOCAL_WORLD_SIZE=3",
                                      "GROUP_RANK=1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=4711"}));
}

TEST(RunJob, PortsAreFree) {
  Result<int> port = FindFreePort();
  ASSERT_TRUE(port.ok());
  EXPECT_GT(*port, 1023);
}

TEST(RankTask, IsRefusedByName) {
  TaskPaths paths({"/s", "/r"}, "j.1");
  Json task = {{"job", "j"}, {"rank", 1}, {"ranks", 2}};
  Status refused = RefuseRank(paths, task, "pause");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("rank 1 of the job j"), std::string::npos);
  EXPECT_EQ(RankRemedy(task, "pause"), "`stasis pause j` does it");
  EXPECT_TRUE(RefuseRank(paths, {{"name", "t"}}, "pause").ok());
}

std::string Outcome(const std::vector<std::string>& arguments) {
  CommandLine line;
  return line.Parse(arguments).text;
}

TEST(CommandLineOfJobs, Run) {
  CommandLine line;
  EXPECT_FALSE(
      line.Parse({"run", "--ranks", "4", "--master-port", "29500", "--grace", "1s", "--", "x"}).done);
  EXPECT_EQ(line.options().ranks, 4);
  EXPECT_EQ(line.options().master_port, 29500);
  EXPECT_EQ(*line.options().grace, std::chrono::seconds(1));
  EXPECT_NE(Outcome({"run", "--master-port", "1", "--", "x"}).find("--ranks"), std::string::npos);
  EXPECT_NE(Outcome({"run", "--grace", "1s", "--", "x"}).find("--ranks"), std::string::npos);
  EXPECT_NE(Outcome({"run", "--ranks", "0", "--", "x"}).find("--ranks"), std::string::npos);
  EXPECT_NE(Outcome({"run", "--nodes", "f", "--gpus", "0", "--", "x"}).find("--nodes"), std::string::npos);
}

}  // namespace
}  // namespace stasis

// What an agent makes of a migration that an agent before it has led, without a target.
#include "coordinator/agent/migration_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/files.h"
#include "base/testing.h"
#include "coordinator/agent/operation_testing.h"
#include "coordinator/agent/testing.h"
#include "coordinator/moved_mark.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// A target at which the job runs.
class RunsThere final : public PeerLink {
 public:
  Result<v1::Outcome> AskOutcome(const std::string&, Duration) override {
    v1::Outcome outcome;
    outcome.set_kind(v1::OUTCOME_KIND_RUNS);
    return outcome;
  }
  Status Settle(const std::string&) override { return Status(); }

  Result<v1::HelloReply> Hello(const v1::HelloRequest&) override { return Unasked(); }
  Result<v1::OfferReply> Offer(const v1::OfferRequest&) override { return Unasked(); }
  Result<std::vector<bool>> Missing(const std::string&, std::span<const Hash128>) override {
    return Unasked();
  }
  Status StillAtIt(const std::string&) override { return Unasked(); }
  Status Put(const std::string&, std::string) override { return Unasked(); }
  Status PutManifest(const std::string&, uint32_t, std::span<const std::byte>) override { return Unasked(); }
  Result<v1::Outcome> HandOver(const v1::HandOverRequest&, Duration) override { return Unasked(); }
  Result<v1::KeepReply> Keep(const v1::KeepRequest&, Duration) override { return Unasked(); }
  Result<v1::Outcome> LetGo(const v1::LetGoRequest&) override { return Unasked(); }

 private:
  static Status Unasked() { return Status(StatusCode::kInternal, "nobody is to ask for that"); }
};

// A task that has been handed over, and a process of it that is here.
class HandedOverTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.site.folders = {folder_ / "state", folder_ / "run"};
    options_.registry = &registry_;
    options_.connect = [](const std::string&) -> Result<std::unique_ptr<PeerLink>> {
      return Status(StatusCode::kUnavailable, "the target does not answer");
    };
    options_.reclaim = [this](const Reclaim& reclaim) {
      reclaims_.push_back(reclaim);
      return std::exchange(reclaim_answer_, Status());
    };
    process_ = fork();
    if (process_ == 0) {
      for (;;) pause();
    }
    ASSERT_GT(process_, 1);
    const TaskPaths paths(options_.site.folders, "train");
    ASSERT_OK(MakeFolders(paths.folder));
    const Result<ProcStat> stat = ReadProcStat(process_);
    ASSERT_OK(stat.status());
    ASSERT_OK(WriteJson(paths.File("task.json"), {{"version", 1}, {"name", "train"}}));
    ASSERT_OK(
        WriteJson(paths.File("process.json"),
                  {{"init_pid", process_}, {"init_start_time", stat->start_time}, {"boot_id", BootId()}}));
    task_folder_ = paths.folder;
    registry_.Put("train", v1::CONDITION_PAUSED);
  }
  void TearDown() override {
    if (process_ <= 1) return;
    kill(process_, SIGKILL);
    (void)waitpid(process_, nullptr, 0);
  }
  // `order`: what overrules it.
  Json Recover(Json memory = {{"stage", "gone"}}, const std::string& order = "") {
    v1::MigrateRequest request;
    request.set_job("train");
    request.set_node("there:7443");
    FakeContext context("train", request.SerializeAsString());
    memory["token"] = "t";
    memory["target"] = "there";
    EXPECT_TRUE(context.Remember(memory).ok());
    context.Overrule(order);
    Json result = MigrationRun(options_, context, request).Recover();
    remembered_ = context.remembered();
    return result;
  }

  TempFolder folder_;
  FakeRegistry registry_;
  MigrationOptions options_;
  std::string task_folder_;
  Json remembered_;
  std::vector<Reclaim> reclaims_;
  Status reclaim_answer_;  // of the first attempt
  pid_t process_ = 0;
};

TEST_F(HandedOverTest, WhatIsStillPausedHereEnds) {
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  const Json result = Recover();
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_TRUE(HasEnded(process_));
  EXPECT_EQ(registry_.Find("train")->moved_to(), "there");
}

// As after a restore of what was handed over, where the target is gone for good.
TEST_F(HandedOverTest, WhatWasTakenBackMeanwhileLives) {
  (void)Recover();
  EXPECT_FALSE(HasEnded(process_));
  EXPECT_EQ(registry_.Find("train")->moved_to(), "");
}

// The target says nothing, and is gone for all that anybody knows.
TEST_F(HandedOverTest, WhoTakesItBackDecides) {
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  reclaim_answer_ = Status(StatusCode::kUnavailable, "the disk is full");
  const Json result = Recover({{"stage", "giving"}}, "restore");
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["left"], "lost") << result.dump(2);
  // The copy that is paused here makes way for what is restored from its image.
  EXPECT_TRUE(HasEnded(process_));
  EXPECT_EQ(MovedTo(task_folder_), "");
  EXPECT_EQ(registry_.Find("train")->moved_to(), "");
  // And the target is to let go of it: tried until that was written down.
  ASSERT_EQ(reclaims_.size(), 2u);
  EXPECT_EQ(reclaims_[1].token, "t");
  EXPECT_EQ(reclaims_[1].job, "train");
  EXPECT_EQ(reclaims_[1].address, "there:7443");
  EXPECT_EQ(reclaims_[1].node, "there");
  EXPECT_EQ(TextField(remembered_, "stage"), "taken-back");
}

TEST_F(HandedOverTest, WhoCancelsItFindsItPaused) {
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  const Json result = Recover({{"stage", "giving"}}, "cancel");
  EXPECT_EQ(result["left"], "paused") << result.dump(2);
  EXPECT_FALSE(HasEnded(process_));
  EXPECT_EQ(MovedTo(task_folder_), "");
  EXPECT_EQ(registry_.Find("train")->moved_to(), "");
  EXPECT_EQ(reclaims_.size(), 1u);
}

// The order would be carried out beside the life there.
TEST_F(HandedOverTest, AnOrderThatWaitsDecidesAlsoWhereTheTargetIsHeard) {
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  options_.connect = [](const std::string&) {
    return Result<std::unique_ptr<PeerLink>>(std::make_unique<RunsThere>());
  };
  const Json result = Recover({{"stage", "giving"}}, "restore");
  EXPECT_EQ(result["left"], "lost") << result.dump(2);
  EXPECT_TRUE(HasEnded(process_));
  EXPECT_EQ(reclaims_.size(), 1u);
  EXPECT_EQ(TextField(remembered_, "stage"), "taken-back");
}

// Want of a descriptor, say: what is owed is no less for that.
TEST_F(HandedOverTest, WhatIsOwedIsWrittenDownWhateverIsHere) {
  ASSERT_OK(WriteFileAtomically(task_folder_ + "/task.json", "not what it was"));
  EXPECT_EQ(Recover({{"stage", "taken-back"}, {"order", "restore"}})["left"], "in-doubt");
  EXPECT_EQ(reclaims_.size(), 1u);
}

// By an agent that was killed before the target's part was written down; who has ordered it waits still, or
// not any more.
TEST_F(HandedOverTest, ThereIsNoWayBackFromIt) {
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  options_.connect = [](const std::string&) -> Result<std::unique_ptr<PeerLink>> {
    ADD_FAILURE() << "what the target says does not matter any more";
    return Status(StatusCode::kUnavailable, "the target does not answer");
  };
  EXPECT_EQ(Recover({{"stage", "taken-back"}, {"order", "cancel"}})["left"], "paused");
  EXPECT_FALSE(HasEnded(process_));
  ASSERT_OK(MarkMoved(task_folder_, "there"));
  EXPECT_EQ(Recover({{"stage", "taken-back"}, {"order", "restore"}})["left"], "lost");
  EXPECT_TRUE(HasEnded(process_));
  EXPECT_GE(reclaims_.size(), 2u);
}

}  // namespace
}  // namespace stasis

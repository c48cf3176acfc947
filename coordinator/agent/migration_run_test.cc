// What an agent makes of a migration that an agent before it has led, without a target.
#include "coordinator/agent/migration_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/testing.h"
#include "coordinator/agent/operation_testing.h"
#include "coordinator/agent/testing.h"
#include "coordinator/moved_mark.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// A task that has been handed over, and a process of it that is here.
class HandedOverTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.site.folders = {folder_ / "state", folder_ / "run"};
    options_.registry = &registry_;
    options_.connect = [](const std::string&) -> Result<std::unique_ptr<PeerLink>> {
      return Status(StatusCode::kUnavailable, "the target does not answer");
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
  Json Recover() {
    v1::MigrateRequest request;
    request.set_job("train");
    request.set_node("there:7443");
    FakeContext context("train", request.SerializeAsString());
    EXPECT_TRUE(context.Remember({{"stage", "gone"}, {"token", "t"}, {"target", "there"}}).ok());
    return MigrationRun(options_, context, request).Recover();
  }

  TempFolder folder_;
  FakeRegistry registry_;
  MigrationOptions options_;
  std::string task_folder_;
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

}  // namespace
}  // namespace stasis

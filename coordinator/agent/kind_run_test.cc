#include "coordinator/agent/kind_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/no_descriptors.h"
#include "base/process.h"
#include "coordinator/node/init_protocol.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

constexpr char kToken[] = "op-000001-1";

class Child {
 public:
  explicit Child(std::vector<std::string> command) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  }
  ~Child() { End(); }
  pid_t pid() const { return pid_; }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

class StandOfStartTest : public testing::Test {
 protected:
  StandOfStartTest() : paths_({folder_.File("state"), folder_.File("run")}, "task") {
    std::filesystem::create_directories(paths_.folder);
  }
  void WriteTask(const std::string& operation) {
    ASSERT_TRUE(WriteJson(paths_.File("task.json"), {{"version", 1}, {"operation", operation}}).ok());
  }
  void WriteProcess(pid_t init, pid_t program) {
    auto identity = IdentifyProcess(init);
    ASSERT_TRUE(identity.ok());
    ASSERT_TRUE(WriteJson(paths_.File("process.json"), {{"version", 1},
                                                        {"init_pid", init},
                                                        {"init_start_time", identity->start_time},
                                                        {"boot_id", identity->boot_id},
                                                        {"pid", program}})
                    .ok());
  }
  StartStand Stand() {
    auto stand = StandOfStart(paths_, kToken);
    EXPECT_TRUE(stand.ok()) << stand.status().ToString();
    return stand.ok() ? *stand : StartStand::kForeign;
  }

  TempFolder folder_;
  TaskPaths paths_;
};

TEST_F(StandOfStartTest, AFolderOrARecordIsNothing) {
  EXPECT_EQ(Stand(), StartStand::kNothing);
  WriteTask(kToken);
  EXPECT_EQ(Stand(), StartStand::kNothing);
}

TEST_F(StandOfStartTest, WhatSomebodyElseStartedIsForeign) {
  WriteTask("");
  EXPECT_EQ(Stand(), StartStand::kForeign);
  WriteTask("op-000001-2");
  EXPECT_EQ(Stand(), StartStand::kForeign);
}

TEST_F(StandOfStartTest, AProgramThatRunsHasStarted) {
  Child program({"/bin/sleep", "600"});
  WriteTask(kToken);
  WriteProcess(getpid(), program.pid());
  EXPECT_EQ(Stand(), StartStand::kStarted);
}

// To begin it anew would take its folder away.
TEST_F(StandOfStartTest, WhatCannotBeLookedAtIsNotNothing) {
  WriteTask(kToken);
  WriteProcess(getpid(), getpid());
  Status told;
  {
    NoDescriptors none;
    told = StandOfStart(paths_, kToken).status();
  }
  EXPECT_EQ(told.code(), StatusCode::kResourceExhausted) << told.ToString();
}

TEST_F(StandOfStartTest, AProgramThatHasEndedHadStartedUnlessItIsSaidThatItHadNot) {
  WriteTask(kToken);
  {
    Child init({"/bin/sleep", "600"});
    WriteProcess(init.pid(), init.pid());
  }
  EXPECT_EQ(Stand(), StartStand::kStarted);
  WriteText(paths_.File("exit.json") + kUnstartedSuffix, "");
  EXPECT_EQ(Stand(), StartStand::kNothing);
}

TEST_F(StandOfStartTest, OneThatWaitsIsWaitedFor) {
  Child init({"/bin/sleep", "600"}), program({"/bin/sleep", "600"});
  WriteTask(kToken);
  WriteProcess(init.pid(), program.pid());
  WriteText(paths_.File("exit.json") + kUnstartedSuffix, "");
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    program.End();
    init.End();
  });
  EXPECT_EQ(Stand(), StartStand::kNothing);
  ends.join();
}

}  // namespace
}  // namespace stasis

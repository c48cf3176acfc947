#include "coordinator/node/task.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string_view>

#include "base/no_descriptors.h"
#include "base/unix_socket.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

TaskFacts Facts(bool alive, Json status = Json(), Json exit = Json(), bool ghost = false) {
  TaskFacts facts;
  facts.task = {{"name", "t"}};
  facts.process = {{"init_pid", 1}};
  facts.status = std::move(status);
  facts.exit = std::move(exit);
  facts.alive = alive;
  facts.ghost_listens = ghost;
  return facts;
}

TaskCondition ConditionOf(const TaskFacts& facts) { return DeriveCondition(facts).condition; }

TEST(DeriveCondition, WithoutAProcess) {
  TaskFacts facts = Facts(false);
  facts.process = Json();
  EXPECT_EQ(ConditionOf(facts), TaskCondition::kCreated);
}

TEST(DeriveCondition, Alive) {
  EXPECT_EQ(ConditionOf(Facts(true)), TaskCondition::kRunning);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", "running"}}, Json(), true)), TaskCondition::kRunning);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", "paused"}}, Json(), true)), TaskCondition::kPaused);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", "checkpointing"}}, Json(), true)),
            TaskCondition::kCheckpointing);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", "restoring"}}, Json(), true)), TaskCondition::kRestoring);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", "in-doubt"}}, Json(), true)), TaskCondition::kInDoubt);
  EXPECT_EQ(ConditionOf(Facts(true, {{"state", 7}}, Json(), true)), TaskCondition::kRunning);
}

TEST(ReadTaskFacts, WhatCannotBeReadIsNoTaskThatIsDead) {
  TempFolder folder;
  const TaskPaths paths({folder.File("state"), folder.File("run")}, "t");
  std::filesystem::create_directories(paths.folder);
  ASSERT_TRUE(WriteJson(paths.File("task.json"), {{"version", 1}, {"name", "t"}}).ok());
  Status told;
  {
    NoDescriptors none;
    told = ReadTaskFacts(paths).status();
  }
  EXPECT_EQ(told.code(), StatusCode::kResourceExhausted) << told.ToString();
}

TEST(DeriveCondition, NobodyIsBelievedWhoIsGone) {
  for (const char* state : {"paused", "checkpointing", "restoring", "in-doubt"}) {
    EXPECT_EQ(ConditionOf(Facts(true, {{"state", state}}, Json(), false)), TaskCondition::kStranded) << state;
  }
  // The claim of a ghost about a task that is dead.
  EXPECT_EQ(ConditionOf(Facts(false, {{"state", "paused"}}, Json(), true)), TaskCondition::kKilled);
}

TEST(DeriveCondition, Ended) {
  TaskView exited = DeriveCondition(Facts(false, Json(), {{"exit_code", 7}}));
  EXPECT_EQ(exited.condition, TaskCondition::kExited);
  EXPECT_EQ(exited.exit_code, 7);
  TaskView killed = DeriveCondition(Facts(false, Json(), {{"signal", SIGTERM}}));
  EXPECT_EQ(killed.condition, TaskCondition::kKilled);
  EXPECT_EQ(killed.signal, SIGTERM);
  TaskView lost = DeriveCondition(Facts(false));
  EXPECT_EQ(lost.condition, TaskCondition::kKilled);
  EXPECT_EQ(lost.signal, SIGKILL);
}

TEST(DeriveCondition, StoppedByACheckpoint) {
  Json status = {{"state", "ended"}, {"ended_by", "checkpoint"}, {"last_image", "000002"}};
  TaskView view = DeriveCondition(Facts(false, status));
  EXPECT_EQ(view.condition, TaskCondition::kCheckpointed);
  EXPECT_EQ(view.last_image, "000002");
  status["ended_by"] = "cancel";
  EXPECT_EQ(ConditionOf(Facts(false, status)), TaskCondition::kKilled);
  // It was faster than the checkpoint.
  status["ended_by"] = "checkpoint";
  EXPECT_EQ(ConditionOf(Facts(false, status, {{"exit_code", 0}})), TaskCondition::kExited);
}

TEST(DeriveCondition, RestoringBeforeTheProcessIsBack) {
  EXPECT_EQ(ConditionOf(Facts(false, {{"state", "restoring"}}, Json(), true)), TaskCondition::kRestoring);
  EXPECT_EQ(ConditionOf(Facts(false, {{"state", "restoring"}}, Json(), false)), TaskCondition::kKilled);
}

class TaskFiles : public testing::Test {
 protected:
  TaskFiles() : paths_({folder_.File("state"), folder_.File("run")}, "t") {
    EXPECT_TRUE(MakeFolders(paths_.folder).ok());
    EXPECT_TRUE(MakeFolders(paths_.ctl).ok());
  }
  void WriteProcess(const ProcessIdentity& identity) {
    ASSERT_TRUE(WriteJson(paths_.File("process.json"), {{"init_pid", identity.pid},
                                                        {"init_start_time", identity.start_time},
                                                        {"boot_id", identity.boot_id}})
                    .ok());
  }
  TempFolder folder_;
  TaskPaths paths_;
};

TEST_F(TaskFiles, NoTask) { EXPECT_EQ(ReadTaskFacts(paths_).status().code(), StatusCode::kNotFound); }

TEST_F(TaskFiles, DamagedRecordIsSaidAndNotGuessed) {
  WriteText(paths_.File("task.json"), "{\"name\": ");
  EXPECT_EQ(ReadTaskFacts(paths_).status().code(), StatusCode::kCorrupt);
  WriteText(paths_.File("task.json"), "{}");
  WriteText(paths_.File("exit.json"), "[1]");
  EXPECT_EQ(ReadTaskFacts(paths_).status().code(), StatusCode::kCorrupt);
}

TEST_F(TaskFiles, WhatHelpsIsSaidOfEachDamagedRecord) {
  EXPECT_EQ(RemedyOfDamage("t", ReadTaskFacts(paths_).status()), "");  // there is none
  // Those that are read first come last: all others are good by then.
  for (const char* file : {"exit.json", "status.json", "process.json", "task.json"}) {
    WriteText(paths_.File("task.json"), "{}");
    WriteText(paths_.File(file), "{\"state\": ");
    const Status damaged = ReadTaskFacts(paths_).status();
    EXPECT_EQ(damaged.code(), StatusCode::kCorrupt);
    EXPECT_NE(damaged.message().find(paths_.File(file)), std::string_view::npos) << damaged.ToString();
    EXPECT_NE(RemedyOfDamage("t", damaged), "") << file;
    // As it says.
    std::filesystem::remove(paths_.File(file));
    EXPECT_NE(ReadTaskFacts(paths_).status().code(), StatusCode::kCorrupt);
  }
}

TEST_F(TaskFiles, AReusedPidIsNotTheTask) {
  WriteText(paths_.File("task.json"), "{}");
  ProcessIdentity self = *IdentifyProcess(getpid());
  WriteProcess(self);
  EXPECT_TRUE(ReadTaskFacts(paths_)->alive);
  ProcessIdentity other = self;
  other.start_time++;
  WriteProcess(other);
  EXPECT_FALSE(ReadTaskFacts(paths_)->alive);
  other = self;
  other.boot_id = "00000000-0000-0000-0000-000000000000";
  WriteProcess(other);
  EXPECT_FALSE(ReadTaskFacts(paths_)->alive);
}

TEST_F(TaskFiles, AZombieHasEnded) {
  WriteText(paths_.File("task.json"), "{}");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  pid_t child = fork();
  if (child == 0) {
    char byte;
    close(ends[1]);
    (void)!read(ends[0], &byte, 1);
    _exit(0);
  }
  ProcessIdentity identity = *IdentifyProcess(child);
  WriteProcess(identity);
  EXPECT_TRUE(ReadTaskFacts(paths_)->alive);
  EXPECT_TRUE(OpenPidFd(identity).ok());
  write_end.Reset();
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(ReadTaskFacts(paths_)->alive);
  EXPECT_EQ(OpenPidFd(identity).status().code(), StatusCode::kNotFound);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(ReadTaskFacts(paths_)->alive);
}

TEST_F(TaskFiles, OnlyTheGhostOfTheStatusListens) {
  WriteText(paths_.File("task.json"), "{}");
  WriteProcess(*IdentifyProcess(getpid()));
  Result<UnixListener> listener = UnixListener::Listen(paths_.ghost_socket);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  ASSERT_TRUE(WriteJson(paths_.File("status.json"), {{"state", "paused"}, {"ghost_pid", getpid()}}).ok());
  EXPECT_EQ(ConditionOf(*ReadTaskFacts(paths_)), TaskCondition::kPaused);
  ASSERT_TRUE(WriteJson(paths_.File("status.json"), {{"state", "paused"}, {"ghost_pid", getpid() + 1}}).ok());
  EXPECT_EQ(ConditionOf(*ReadTaskFacts(paths_)), TaskCondition::kStranded);
}

TEST_F(TaskFiles, ControlSockets) {
  EXPECT_FALSE(HasControlSocket(paths_));
  WriteText(paths_.ctl + "/2.sock.lock", "");
  EXPECT_FALSE(HasControlSocket(paths_));
  WriteText(paths_.ctl + "/2.sock", "");
  EXPECT_TRUE(HasControlSocket(paths_));
}

TEST(ProcessStat, AnyCommandName) {
  std::string tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
  for (const char* command : {"sh", "a b", ") S 1 2 (x)", ""}) {
    Result<ProcessStat> stat = ParseProcessStat("17 (" + std::string(command) + ")" + tail);
    ASSERT_TRUE(stat.ok()) << command;
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->start_time, 4711u);
  }
  for (const char* bad : {"", "17 (sh)", "17 (sh) ", "17 (sh) S 1 2", "17 sh S 1"}) {
    EXPECT_EQ(ParseProcessStat(bad).status().code(), StatusCode::kCorrupt) << bad;
  }
}

TEST(TaskNames, AreFolderNames) {
  for (const char* good : {"a", "A-1_b.c", "0"}) EXPECT_TRUE(CheckTaskName(good).ok()) << good;
  for (const char* bad : {"", ".", "..", "-a", ".a", "a/b", "a b", "ä", "a\n"}) {
    EXPECT_FALSE(CheckTaskName(bad).ok()) << bad;
  }
  EXPECT_TRUE(CheckTaskName(std::string(48, 'a')).ok());
  EXPECT_FALSE(CheckTaskName(std::string(49, 'a')).ok());
}

}  // namespace
}  // namespace stasis

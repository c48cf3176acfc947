#include "ghost/proc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/no_descriptors.h"
#include "base/testing.h"
#include "ghost/child.h"
#include "ghost/restored.h"
#include "ghost/task_files.h"

namespace stasis {
namespace {

TEST(Proc, TheTreeOfAProcess) {
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const Result<std::vector<pid_t>> tree = ProcessTree(getpid());
  ASSERT_OK(tree.status());
  EXPECT_EQ(tree->front(), getpid());
  EXPECT_THAT(*tree, testing::Contains(child));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ProcessTree(child).status().code(), StatusCode::kNotFound);
  Result<std::vector<ProcFd>> fds = FdsOf(child);
  ASSERT_OK(fds.status());
  EXPECT_TRUE(fds->empty());
  Result<std::vector<ProcMap>> maps = MapsOf(child);
  ASSERT_OK(maps.status());
  EXPECT_TRUE(maps->empty());
  ASSERT_OK(WaitProcess(child, Deadline::Never()));
}

// Nobody is told dead, ended, or gone for want of a descriptor.
TEST(Proc, WhatCannotBeLookedAtHasNotEnded) {
  TaskProcess self;
  self.init_pid = getpid();
  self.init_start_time = ReadProcStat(getpid())->start_time;
  self.boot_id = BootId();
  std::vector<Status> told;
  bool ended = true, alive = false;
  {
    NoDescriptors none;
    told = {ReadProcStat(getpid()).status(),
            ProcessTree(getpid()).status(),
            AllProcesses().status(),
            OpenPidFd(getpid()).status(),
            FdsOf(getpid()).status(),
            MapsOf(getpid()).status(),
            WaitProcess(getpid(), Deadline::Never()),
            FindRestored("/images", "/run").status(),
            EndCriu("/images", Deadline::Never()),
            AwaitCriuOfOthers("/images", Deadline::Never())};
    ended = HasEnded(getpid());
    alive = IsAlive(self);
  }
  for (size_t i = 0; i < told.size(); ++i)
    EXPECT_EQ(told[i].code(), StatusCode::kResourceExhausted) << i << ": " << told[i].ToString();
  EXPECT_FALSE(ended);
  EXPECT_TRUE(alive);
}

}  // namespace
}  // namespace stasis

#include "ghost/fault.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace stasis {
namespace {

// A process whose first thread waits while another one reaches the point, and tells of it when it is past.
[[noreturn]] void ReachThePointInASecondThread(int past) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::thread second([past] {
    bool ok = SetFault("attach-after:stop").ok() && Fault(FaultPoint::kAttachAfter).ok();
    (void)!write(past, ok ? "y" : "n", 1);
  });
  second.join();
  _exit(0);
}

TEST(FaultTest, AStopIsWhereThePointIs) {
  for (int round = 0; round < 50; ++round) {
    int past[2];
    ASSERT_EQ(pipe(past), 0);
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) ReachThePointInASecondThread(past[1]);
    close(past[1]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
    EXPECT_TRUE(WIFSTOPPED(status));
    pollfd told = {past[0], POLLIN, 0};
    EXPECT_EQ(poll(&told, 1, 0), 0) << "it went on past the point in round " << round;
    kill(child, SIGCONT);
    char byte = 0;
    EXPECT_EQ(read(past[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    close(past[0]);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
  }
}

TEST(FaultTest, OnlyItsOwnPointFailsAndOnce) {
  ASSERT_TRUE(SetFault("thaw-after:fail").ok());
  EXPECT_TRUE(Fault(FaultPoint::kThawBefore).ok());
  EXPECT_EQ(Fault(FaultPoint::kThawAfter).code(), StatusCode::kInternal);
  EXPECT_TRUE(Fault(FaultPoint::kThawAfter).ok());
}

TEST(FaultTest, WhatIsNoPointIsRefused) {
  for (const char* text : {"nowhere", "thaw-after:", "thaw-after:hang", ":kill"})
    EXPECT_EQ(SetFault(text).code(), StatusCode::kInvalidArgument) << text;
  EXPECT_TRUE(SetFault("").ok());
}

}  // namespace
}  // namespace stasis

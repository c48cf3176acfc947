#include "base/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/no_descriptors.h"
#include "base/testing.h"

namespace stasis {
namespace {

class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      for (;;) pause();
    }
  }
  ~Child() {
    Kill();
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // A zombie from then on.
  void Kill() {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  const pid_t pid_;
};

TEST(Process, LivesUntilItHasEnded) {
  Child child;
  const Result<ProcessIdentity> identity = IdentifyProcess(child.pid());
  ASSERT_OK(identity.status());
  EXPECT_TRUE(*CheckAlive(*identity));
  ProcessIdentity other = *identity;
  ++other.start_time;
  EXPECT_FALSE(*CheckAlive(other));
  EXPECT_EQ(OpenPidFd(other).status().code(), StatusCode::kNotFound);
  other = *identity;
  other.boot_id = "of another boot";
  EXPECT_FALSE(*CheckAlive(other));
  const Result<Fd> end = OpenPidFd(*identity);
  ASSERT_OK(end.status());
  child.Kill();
  pollfd wait{end->get(), POLLIN, 0};
  EXPECT_EQ(poll(&wait, 1, -1), 1);
  EXPECT_FALSE(*CheckAlive(*identity));
  EXPECT_FALSE(IsAlive(*identity));
  EXPECT_EQ(OpenPidFd(*identity).status().code(), StatusCode::kNotFound);
}

TEST(Process, OneThatNeverWasHasEnded) {
  EXPECT_FALSE(*CheckAlive(ProcessIdentity()));
  EXPECT_EQ(IdentifyProcess(1 << 30).status().code(), StatusCode::kNotFound);
}

// That nothing can be read of a process does not say that it died.
TEST(Process, WhatCannotBeLookedAtHasNotEnded) {
  const Result<ProcessIdentity> self = IdentifyProcess(getpid());
  ASSERT_OK(self.status());
  Status checked, opened, identified;
  bool alive = false;
  {
    NoDescriptors none;
    checked = CheckAlive(*self).status();
    alive = IsAlive(*self);
    opened = OpenPidFd(*self).status();
    identified = IdentifyProcess(getpid()).status();
  }
  for (const Status& status : {checked, opened, identified})
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_TRUE(alive);
}

}  // namespace
}  // namespace stasis

#include "coordinator/ghost_children.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace stasis {
namespace {

pid_t Child() {
  pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  return pid;
}

bool Readable(int fd, int timeout_ms) {
  pollfd wait{fd, POLLIN, 0};
  return poll(&wait, 1, timeout_ms) == 1;
}

TEST(GhostChildrenTest, ReapsThoseThatHaveEndedAndNoOther) {
  GhostChildren children;
  pid_t first = Child(), second = Child(), stranger = Child();
  children.Add(first);
  children.Add(second);
  children.Reap();
  EXPECT_EQ(children.size(), 2u);
  EXPECT_FALSE(Readable(children.fd(), 0));

  kill(stranger, SIGKILL);
  kill(first, SIGKILL);
  ASSERT_TRUE(Readable(children.fd(), 10000));
  children.Reap();
  EXPECT_EQ(children.size(), 1u);
  EXPECT_FALSE(Readable(children.fd(), 0));
  EXPECT_EQ(waitpid(first, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  EXPECT_EQ(waitpid(stranger, nullptr, 0), stranger) << "is for whoever has started it";

  kill(second, SIGKILL);
  ASSERT_TRUE(Readable(children.fd(), 10000));
  children.Reap();
  EXPECT_EQ(children.size(), 0u);
}

TEST(GhostChildrenTest, OneThatHasEndedBeforeItWasAddedIsReaped) {
  GhostChildren children;
  pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  children.Add(child);
  ASSERT_TRUE(Readable(children.fd(), 10000));
  children.Reap();
  EXPECT_EQ(children.size(), 0u);
}

}  // namespace
}  // namespace stasis

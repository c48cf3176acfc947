#include "base/quiet_thread.h"

#include <gtest/gtest.h>

#include <csignal>

namespace stasis {
namespace {

bool Blocks(const sigset_t& mask) {
  return sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGCHLD) == 1 &&
         sigismember(&mask, SIGUSR1) == 1;
}

TEST(QuietThread, TakesNoSignalsAndWhoStartsItStillDoes) {
  sigset_t before, inside, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigemptyset(&inside);
  StartQuietThread([&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_TRUE(Blocks(inside));
  EXPECT_EQ(Blocks(after), Blocks(before));
  EXPECT_FALSE(Blocks(after));
}

}  // namespace
}  // namespace stasis

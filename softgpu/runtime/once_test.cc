#include "softgpu/runtime/once.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <thread>
#include <vector>

namespace softgpu::runtime {
namespace {

TEST(OnceTest, RunsUntilItSucceedsAndNoMore) {
  Once once;
  int runs = 0;
  EXPECT_EQ(once.Run([&] { return ++runs, cudaErrorMemoryAllocation; }), cudaErrorMemoryAllocation);
  EXPECT_FALSE(once.done());
  EXPECT_EQ(once.Run([&] { return ++runs, cudaSuccess; }), cudaSuccess);
  EXPECT_EQ(once.Run([&] { return ++runs, cudaErrorUnknown; }), cudaSuccess);
  EXPECT_EQ(runs, 2);
}

TEST(OnceTest, OthersWaitForTheRunner) {
  Once once;
  std::latch running(1);
  std::latch proceed(1);
  std::atomic<int> runs{0};
  std::thread runner([&] {
    once.Run([&] {
      running.count_down();
      proceed.wait();
      ++runs;
      return cudaSuccess;
    });
  });
  running.wait();
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back([&] {
      EXPECT_EQ(once.Run([&] { return ++runs, cudaErrorUnknown; }), cudaSuccess);
      EXPECT_EQ(runs, 1);
    });
  }
  proceed.count_down();
  runner.join();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(runs, 1);
}

// The child has no thread that would ever finish the run it inherits.
TEST(OnceTest, AChildForkedDuringARunStartsOver) {
  Once once;
  std::latch running(1);
  std::latch proceed(1);
  std::thread runner([&] {
    once.Run([&] {
      running.count_down();
      proceed.wait();
      return cudaSuccess;
    });
  });
  running.wait();
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(once.Run([] { return cudaErrorInitializationError; }) == cudaErrorInitializationError ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  proceed.count_down();
  runner.join();
}

}  // namespace
}  // namespace softgpu::runtime

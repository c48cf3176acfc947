// Device printf: order, bounds, and when it is shown.
#include <cstdio>

#include "softgpu/driver/memory_testing.h"
#include "softgpu/driver/print_fifo.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "1", "--memory", "256MiB"};

namespace {

std::string Shown(PrintFifo& fifo) {
  testing::internal::CaptureStdout();
  fifo.Show();
  std::fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(PrintTest, LaunchesAreShownInTheirOrder) {
  PrintFifo fifo(1024);
  auto first = fifo.Open(), second = fifo.Open();
  fifo.Append(*second, "c");
  fifo.Append(*first, "a");
  fifo.Append(*first, "b");
  fifo.Close(*first);
  EXPECT_EQ(Shown(fifo), "abc");
  EXPECT_EQ(Shown(fifo), "");
  fifo.Append(*second, "d");
  fifo.Close(*second);
  EXPECT_EQ(Shown(fifo), "d");
}

TEST(PrintTest, TheOldestIsLostWhenItIsFull) {
  PrintFifo fifo(6);
  auto first = fifo.Open(), second = fifo.Open();
  fifo.Append(*first, "aa");
  fifo.Append(*first, "bb");
  fifo.Append(*second, "cc");
  fifo.Append(*second, "dd");
  EXPECT_EQ(Shown(fifo), "bbccdd");
  fifo.SetCapacity(2);
  fifo.Append(*first, "ee");
  fifo.Append(*first, "ff");
  EXPECT_EQ(Shown(fifo), "ff");
}

}  // namespace
}  // namespace softgpu

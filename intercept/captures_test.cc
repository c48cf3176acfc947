#include "intercept/captures.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace stasis {
namespace {

TEST(Captures, AreWaitedFor) {
  EXPECT_TRUE(WaitForCaptures(Deadline::After(Duration::zero())));
  CaptureBegan();
  CaptureBegan();
  EXPECT_EQ(CapturesInProgress(), 2u);
  EXPECT_FALSE(WaitForCaptures(Deadline::After(std::chrono::milliseconds(1))));
  CaptureEnded();
  std::thread last(CaptureEnded);
  EXPECT_TRUE(WaitForCaptures(Deadline::Never()));
  last.join();
  EXPECT_EQ(CapturesInProgress(), 0u);
}

}  // namespace
}  // namespace stasis

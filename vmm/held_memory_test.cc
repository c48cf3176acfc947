#include "vmm/held_memory.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <thread>

#include "vmm/environment.h"

namespace stasis::vmm {
namespace {

class HeldMemoryTest : public testing::Test {
 protected:
  HeldMemoryTest() : ask_(eventfd(0, EFD_CLOEXEC)), given_(eventfd(0, EFD_CLOEXEC)) {
    held_.Hold({{1, 4096}}, ask_.Duplicate(), given_.Duplicate());
  }
  ~HeldMemoryTest() override { held_.Forget(); }
  // Waits for the request.
  void AwaitAsk() {
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(ask_.get(), &count), 0);
  }

  HeldMemory& held_ = HeldMemory::Get();
  Fd ask_, given_;
};

TEST_F(HeldMemoryTest, CountsAsFreeUntilItIsGivenBack) {
  EXPECT_EQ(held_.Bytes(1), 4096u);
  EXPECT_EQ(held_.Bytes(0), 0u);
  ASSERT_EQ(eventfd_write(given_.get(), 1), 0);
  EXPECT_EQ(held_.Bytes(1), 0u);
}

TEST_F(HeldMemoryTest, EveryoneWhoAsksWaitsUntilItIsGivenBack) {
  std::thread ghost([this] {
    AwaitAsk();
    ASSERT_EQ(eventfd_write(given_.get(), 1), 0);
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([this] { EXPECT_TRUE(held_.TakeBack(1, Deadline::Never())); });
  for (std::thread& thread : threads) thread.join();
  ghost.join();
  EXPECT_TRUE(held_.TakeBack(1, Deadline::Never())) << "and is not asked for in vain later";
}

TEST_F(HeldMemoryTest, WhereNothingIsHeldNobodyWaits) {
  EXPECT_FALSE(held_.TakeBack(0, Deadline::Never()));
  held_.Forget();
  EXPECT_FALSE(held_.TakeBack(1, Deadline::Never()));
  EXPECT_EQ(held_.Bytes(1), 0u);
}

TEST_F(HeldMemoryTest, TheWaitEndsWithItsTime) {
  EXPECT_FALSE(held_.TakeBack(1, Deadline::After(std::chrono::milliseconds(1))));
  AwaitAsk();
}

TEST_F(HeldMemoryTest, ForgettingLetsGoOfThoseWhoWait) {
  std::thread waiter([this] { EXPECT_TRUE(held_.TakeBack(1, Deadline::Never())); });
  AwaitAsk();
  held_.Forget();
  waiter.join();
}

TEST_F(HeldMemoryTest, WhatADeadGhostHeldIsWaitedForWithoutAnAnswer) {
  EXPECT_FALSE(held_.AwaitAbandoned(1)) << "its ghost lives";
  std::thread waiter([this] { EXPECT_TRUE(held_.TakeBack(1, Deadline::Never())); });
  AwaitAsk();
  held_.Abandon();
  waiter.join();
  EXPECT_FALSE(held_.TakeBack(1, Deadline::Never()));
  EXPECT_TRUE(held_.AwaitAbandoned(1));
  EXPECT_FALSE(held_.AwaitAbandoned(0));
  EXPECT_EQ(held_.Bytes(1), 0u);
  held_.Abandon();  // nothing is held any more
  EXPECT_TRUE(held_.AwaitAbandoned(1));
}

TEST_F(HeldMemoryTest, WhatWasGivenBackIsNotAbandoned) {
  ASSERT_EQ(eventfd_write(given_.get(), 1), 0);
  held_.Abandon();
  EXPECT_FALSE(held_.AwaitAbandoned(1));
}

TEST_F(HeldMemoryTest, NobodyWaitsDuringACapture) {
  static constexpr Environment kCapturing = {
      .real_context = nullptr, .visible_context = nullptr, .captures_in_progress = [] { return 1u; }};
  SetEnvironment(&kCapturing);
  EXPECT_FALSE(held_.TakeBack(1, Deadline::Never()));
  SetEnvironment(nullptr);
}

}  // namespace
}  // namespace stasis::vmm

#include "intercept/thread_ends.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "intercept/futex.h"
#include "intercept/gate.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;

// A flag to wait for.
class Event {
 public:
  void Set() {
    set_.store(1);
    FutexWakeAll(set_);
  }
  bool Wait(Duration limit = std::chrono::seconds(30)) {
    const Deadline deadline = Deadline::After(limit);
    while (set_.load() == 0 && !deadline.Expired()) FutexWait(set_, 0, deadline);
    return set_.load() != 0;
  }

 private:
  std::atomic<uint32_t> set_{0};
};

// A key as the driver has one: made after ours, with a destructor that takes its time.
class SlowDriver {
 public:
  SlowDriver() {
    { const GateScope gate(Fn::cuInit); }
    EXPECT_EQ(pthread_key_create(&key_, End), 0);
  }
  ~SlowDriver() { EXPECT_EQ(pthread_key_delete(key_), 0); }

  // As a program's thread does.
  void Call() {
    const GateScope gate(Fn::cuCtxSynchronize);
    pthread_setspecific(key_, this);
  }

  Event begun, may_end;
  std::atomic<bool> ended{false};

 private:
  static void End(void* value) {
    auto* driver = static_cast<SlowDriver*>(value);
    driver->begun.Set();
    driver->may_end.Wait();
    driver->ended = true;
  }

  pthread_key_t key_{};
};

TEST(ThreadEnds, AreOverBeforeTheDriverIsClosed) {
  SlowDriver driver;
  std::thread thread([&] { driver.Call(); });
  ASSERT_TRUE(driver.begun.Wait());
  std::atomic<bool> was_over{false};
  std::thread closer([&] {
    const ThreadEndHold hold;
    was_over = driver.ended.load();
  });
  std::this_thread::sleep_for(milliseconds(50));
  driver.may_end.Set();
  closer.join();
  EXPECT_TRUE(was_over);
  thread.join();
}

TEST(ThreadEnds, WaitWhileTheDriverIsBeingClosed) {
  SlowDriver driver;
  driver.may_end.Set();
  std::optional<ThreadEndHold> hold;
  hold.emplace();
  std::thread thread([&] { driver.Call(); });
  EXPECT_FALSE(driver.begun.Wait(milliseconds(50)));
  hold.reset();
  thread.join();
  EXPECT_TRUE(driver.ended);
}

pthread_key_t late_key;

void CallLate(void* value) {
  static_cast<Event*>(value)->Set();
  const GateScope gate(Fn::cuMemFree_v2);
}

// Such a thread waits at the gate, for as long as the pause lasts.
TEST(ThreadEnds, DoNotWaitForDestructorsThatCallCuda) {
  RegisterGateBarrier();
  { const GateScope gate(Fn::cuInit); }
  ASSERT_EQ(pthread_key_create(&late_key, CallLate), 0);
  Event called, may_end, late;
  std::thread thread([&] {
    { const GateScope gate(Fn::cuInit); }
    pthread_setspecific(late_key, &late);
    called.Set();
    may_end.Wait();
  });
  ASSERT_TRUE(called.Wait());
  std::vector<TaskBlocker> blockers;
  ASSERT_TRUE(CloseGate(Deadline::After(std::chrono::seconds(30)), &blockers).ok());
  may_end.Set();
  ASSERT_TRUE(late.Wait());
  const MonotonicTime before = Clock::Real().Now();
  { const ThreadEndHold hold; }
  EXPECT_LT(Clock::Real().Now() - before, std::chrono::seconds(2)) << "as for one that does not end";
  OpenGate();
  thread.join();
  EXPECT_EQ(pthread_key_delete(late_key), 0);
}

TEST(ThreadEnds, LeaveNothingBehind) {
  for (int i = 0; i < 100; ++i) std::thread([] { const GateScope gate(Fn::cuInit); }).join();
  const MonotonicTime before = Clock::Real().Now();
  { const ThreadEndHold hold; }
  EXPECT_LT(Clock::Real().Now() - before, std::chrono::seconds(2)) << "as for one that does not end";
}

}  // namespace
}  // namespace stasis

#include "intercept/libraries/library_gate.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "intercept/futex.h"

namespace stasis::libraries {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LibraryFn kGemm = LibraryFn::cublasSgemm_v2;
const int g_handle = 0;

// A flag to wait for.
class Event {
 public:
  void Set() {
    set_.store(1, std::memory_order_release);
    FutexWakeAll(set_);
  }
  bool Wait(Duration limit = seconds(30)) {
    const Deadline deadline = Deadline::After(limit);
    while (set_.load(std::memory_order_acquire) == 0) {
      if (deadline.Expired()) return false;
      FutexWait(set_, 0, deadline);
    }
    return true;
  }

 private:
  std::atomic<uint32_t> set_{0};
};

Status Await(Duration limit = seconds(30), std::vector<TaskBlocker>* blockers = nullptr) {
  std::vector<TaskBlocker> unused;
  return AwaitLibraryCalls(Deadline::After(limit), blockers != nullptr ? blockers : &unused);
}

Status CloseDriver(Duration limit = seconds(30)) {
  std::vector<TaskBlocker> blockers;
  return CloseGate(Deadline::After(limit), &blockers);
}

// Waits until that many calls are held.
std::vector<HeldCall> AwaitHeld(size_t count) {
  const Deadline deadline = Deadline::After(seconds(30));
  for (;;) {
    const uint32_t events = LibraryGateEvents();
    std::vector<HeldCall> held = HeldCalls();
    if (held.size() >= count || deadline.Expired()) return held;
    AwaitLibraryGate(events, deadline);
  }
}

class LibraryGate : public testing::Test {
 protected:
  void SetUp() override { RegisterGateBarrier(); }
  void TearDown() override {
    OpenLibraryGate();
    OpenGate();
  }
};

// Threads that call without end, each touching plain memory that the pauser changes while nobody is inside.
TEST_F(LibraryGate, KeepsEveryThreadOutWhileClosed) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> torn{0};
  uint64_t first = 0, second = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        const LibraryScope scope(kGemm, nullptr);
        const GateScope inner(Fn::cuLaunchKernel);
        if (first != second) torn.fetch_add(1);
      }
    });
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(ShutLibraryGate().ok());
    ASSERT_TRUE(Await().ok());
    ASSERT_TRUE(CloseDriver().ok());
    first = ++second;
    OpenGate();
    OpenLibraryGate();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0u);
}

TEST_F(LibraryGate, LetsCallsInsideComeToTheirEndWithTheDriversGateOpen) {
  Event inside, go_on;
  std::thread thread([&] {
    const LibraryScope scope(kGemm, nullptr);
    inside.Set();
    go_on.Wait();
    const GateScope driver(Fn::cuLaunchKernel);
    std::thread([] { const GateScope helper(Fn::cuMemAlloc_v2); }).join();
  });
  ASSERT_TRUE(inside.Wait());
  ASSERT_TRUE(ShutLibraryGate().ok());
  go_on.Set();
  EXPECT_TRUE(Await().ok());
  EXPECT_TRUE(CloseDriver().ok());
  thread.join();
}

// At a low point of the memory the driver's gate is shut first.
TEST_F(LibraryGate, DriverCallsOfALibraryPassAShutDriversGate) {
  Event inside, go_on, plain_called;
  std::thread library([&] {
    const LibraryScope scope(kGemm, nullptr);
    inside.Set();
    go_on.Wait();
    const GateScope driver(Fn::cuLaunchKernel);
  });
  ASSERT_TRUE(inside.Wait());
  ShutGate();
  std::thread plain([&] {
    const GateScope driver(Fn::cuLaunchKernel);
    plain_called.Set();
  });
  go_on.Set();
  ASSERT_TRUE(ShutLibraryGate().ok());
  EXPECT_TRUE(Await().ok());
  EXPECT_TRUE(CloseDriver().ok());
  EXPECT_FALSE(plain_called.Wait(milliseconds(20)));
  OpenGate();
  EXPECT_TRUE(plain_called.Wait());
  library.join();
  plain.join();
}

TEST_F(LibraryGate, NamesTheCallThatDoesNotReturn) {
  Event inside, leave;
  std::thread thread([&] {
    const LibraryScope scope(kGemm, nullptr);
    inside.Set();
    leave.Wait();
  });
  ASSERT_TRUE(inside.Wait());
  ASSERT_TRUE(ShutLibraryGate().ok());
  std::vector<TaskBlocker> blockers;
  EXPECT_EQ(Await(milliseconds(20), &blockers).code(), StatusCode::kTimeout);
  ASSERT_EQ(blockers.size(), 1u);
  EXPECT_EQ(blockers[0].call, "cublasSgemm_v2");
  leave.Set();
  EXPECT_TRUE(Await().ok());
  thread.join();
}

TEST_F(LibraryGate, ListsTheCallsThatItHolds) {
  ASSERT_TRUE(ShutLibraryGate().ok());
  std::atomic<pid_t> tid{0};
  std::thread thread([&] {
    tid = gettid();
    const LibraryScope scope(LibraryFn::ncclAllReduce, &g_handle);
  });
  const std::vector<HeldCall> held = AwaitHeld(1);
  ASSERT_EQ(held.size(), 1u);
  EXPECT_EQ(held[0].tid, tid);
  EXPECT_EQ(held[0].function, LibraryFn::ncclAllReduce);
  EXPECT_EQ(held[0].handle, &g_handle);
  EXPECT_TRUE(Await().ok());  // it is not inside
  OpenLibraryGate();
  thread.join();
  EXPECT_TRUE(HeldCalls().empty());
}

TEST_F(LibraryGate, AdmitsOneHeldCallAndHoldsTheNextOfItsThread) {
  ASSERT_TRUE(ShutLibraryGate().ok());
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      for (int call = 0; call < 2; ++call) {
        const LibraryScope scope(LibraryFn::ncclAllReduce, &g_handle);
        passed.fetch_add(1);
      }
    });
  const std::vector<HeldCall> held = AwaitHeld(2);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_TRUE(AdmitHeldCall(held[0].id));
  const std::vector<HeldCall> then = AwaitHeld(2);
  ASSERT_EQ(then.size(), 2u);
  EXPECT_EQ(then[0].id, held[1].id);
  EXPECT_EQ(then[1].tid, held[0].tid);
  EXPECT_FALSE(AdmitHeldCall(held[0].id));
  EXPECT_TRUE(Await().ok());
  EXPECT_EQ(passed, 1);
  OpenLibraryGate();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(passed, 4);
}

// An admitted call counts before its thread has come so far as to say that it is inside.
TEST_F(LibraryGate, AnAdmittedCallIsWaitedFor) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(ShutLibraryGate().ok());
    std::atomic<bool> called{false};
    std::thread thread([&] {
      const LibraryScope scope(LibraryFn::ncclAllReduce, &g_handle);
      called = true;
    });
    const std::vector<HeldCall> held = AwaitHeld(1);
    ASSERT_EQ(held.size(), 1u);
    ASSERT_TRUE(AdmitHeldCall(held[0].id));
    ASSERT_TRUE(Await().ok());
    EXPECT_TRUE(called);
    OpenLibraryGate();
    thread.join();
  }
}

TEST_F(LibraryGate, CallsOfALibraryInALibraryArePartOfTheOuterOne) {
  const LibraryScope outer(kGemm, nullptr);
  EXPECT_FALSE(outer.nested());
  ASSERT_TRUE(ShutLibraryGate().ok());
  const LibraryScope inner(LibraryFn::cublasLtMatmul, nullptr);  // does not wait for the gate
  EXPECT_TRUE(inner.nested());
  EXPECT_EQ(LibraryCallsInside().size(), 1u);
}

TEST_F(LibraryGate, TheControlThreadMayWorkBehindTheClosedGates) {
  ASSERT_TRUE(ShutLibraryGate().ok());
  ASSERT_TRUE(Await().ok());
  ASSERT_TRUE(CloseDriver().ok());
  const uint32_t threads = GateThreadCount();
  std::atomic<bool> plain_called{false};
  std::thread plain;
  std::thread control([&] {
    const LibraryWork work;
    plain = std::thread([&] {
      const GateScope scope(Fn::cuMemAlloc_v2);
      plain_called = true;
    });
    const LibraryScope call(LibraryFn::cublasCreate_v2, nullptr);
    EXPECT_TRUE(call.nested());
    const GateScope driver(Fn::cuMemAlloc_v2);
    EXPECT_TRUE(CurrentThreadObjects().context_stack.empty());
  });
  control.join();
  EXPECT_LE(GateThreadCount(), threads + 1);  // the plain thread may have got to the gate
  EXPECT_TRUE(CloseDriver().ok());
  EXPECT_FALSE(plain_called);
  OpenGate();
  plain.join();
  EXPECT_TRUE(plain_called);
}

TEST_F(LibraryGate, KeepsErrno) {
  std::thread thread([] {
    errno = 1234;
    { const LibraryScope scope(kGemm, nullptr); }  // the first call of a thread does most
    EXPECT_EQ(errno, 1234);
  });
  thread.join();
}

TEST_F(LibraryGate, ChildOfAPausedProcessIsNotPaused) {
  { const LibraryScope scope(kGemm, nullptr); }  // from now on forks are handled
  ASSERT_TRUE(ShutLibraryGate().ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    { const LibraryScope scope(kGemm, nullptr); }
    _exit(LibraryGateIsClosed() || !HeldCalls().empty() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace stasis::libraries

#include "intercept/low_point.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "intercept/captures.h"
#include "intercept/gate.h"
#include "vmm/active_memory.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using vmm::ActiveMemory;

constexpr uint64_t kBase = 1 << 20, kSize = 1 << 20, kBlock = kSize / 4;

// A program with one allocation, which has come to its low point once and holds a block more now.
class LowPointTest : public testing::Test {
 protected:
  LowPointTest() {
    RegisterGateBarrier();
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    ours_.Reset(ends[0]);
    ghosts_.Reset(ends[1]);
    ActiveMemory::Get().AllocationMade(kBase, kSize, true);
    ActiveMemory::Get().NoteAlloc(kBase, kBlock, true);
    // As many as are remembered, and the one before the first.
    for (size_t i = 0; i <= vmm::MemoryCycle::kLatestCycles; ++i) {
      Rise();
      Fall();
      ActiveMemory::Get().NoteIteration();
    }
    Rise();
  }
  ~LowPointTest() override {
    ActiveMemory::Get().AllocationGone(kBase);
    Undo();
  }
  static void Rise() { ActiveMemory::Get().NoteAlloc(kBase + kBlock, kBlock, true); }
  static void Fall() { ActiveMemory::Get().NoteFree(kBase + kBlock); }
  static void Undo() {
    ActiveMemory::Get().Thaw();
    OpenGate();
  }
  Result<bool> Wait(Duration time) { return WaitForLowPoint(ours_.get(), Deadline::After(time)); }

  Fd ours_, ghosts_;
};

TEST_F(LowPointTest, TheThreadThatComesThereShutsTheGate) {
  std::atomic<bool> shut_at_once{false};
  std::thread program([&] {
    // The control thread may not wait yet: then the next round is the one.
    while (!GateIsClosed()) {
      Fall();
      shut_at_once = GateIsClosed();
      if (!shut_at_once) Rise();
    }
  });
  const Result<bool> reached = Wait(minutes(1));
  program.join();
  ASSERT_TRUE(reached.ok()) << reached.status().ToString();
  EXPECT_TRUE(*reached);
  EXPECT_TRUE(GateIsClosed());
  std::vector<TaskBlocker> blockers;
  EXPECT_TRUE(CloseGate(Deadline::After(minutes(1)), &blockers).ok());
}

TEST_F(LowPointTest, AProgramThatIsThereIsStoppedAtOnce) {
  Fall();
  const Result<bool> reached = Wait(minutes(1));
  ASSERT_TRUE(reached.ok());
  EXPECT_TRUE(*reached);
  EXPECT_TRUE(GateIsClosed());
}

TEST_F(LowPointTest, TheTimeEndsTheWait) {
  const Result<bool> reached = Wait(milliseconds(1));
  ASSERT_TRUE(reached.ok());
  EXPECT_FALSE(*reached);
  EXPECT_FALSE(GateIsClosed());
  Fall();
  EXPECT_FALSE(GateIsClosed()) << "nobody waits any more";
}

TEST_F(LowPointTest, TheEndOfTheConnectionEndsTheWait) {
  ghosts_.Reset();
  EXPECT_EQ(Wait(minutes(1)).status().code(), StatusCode::kCancelled);
}

TEST_F(LowPointTest, AnotherRequestEndsTheWait) {
  ASSERT_EQ(send(ghosts_.get(), "x", 1, 0), 1);
  EXPECT_EQ(Wait(minutes(1)).status().code(), StatusCode::kCancelled);
}

TEST_F(LowPointTest, ALowPointInACaptureIsPassedBy) {
  CaptureBegan();
  Fall();
  const Result<bool> in_capture = Wait(milliseconds(1));
  CaptureEnded();
  ASSERT_TRUE(in_capture.ok());
  EXPECT_FALSE(*in_capture);
  EXPECT_FALSE(GateIsClosed());
}

}  // namespace
}  // namespace stasis

#include "vmm/active_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace stasis::vmm {
namespace {

struct Counter {
  int calls = 0;
  bool answer = true;
  static bool Call(void* counter) {
    auto* self = static_cast<Counter*>(counter);
    ++self->calls;
    return self->answer;
  }
};

// One object a process: every test leaves it without memory. Its cycles stay, so the order of the tests
// counts and they are one.
TEST(ActiveMemoryTest, AWatchEndsAtTheLowPointAndNotBefore) {
  ActiveMemory& memory = ActiveMemory::Get();
  memory.AllocationMade(0x10000, 0x10000, true);
  memory.NoteAlloc(0x10000, 0x1000, true);

  Counter first;
  memory.Watch(&Counter::Call, &first);
  memory.NoteAlloc(0x11000, 0x1000, true);
  memory.NoteFree(0x11000);
  EXPECT_EQ(first.calls, 0) << "no cycle has been seen";
  memory.NoteIteration();
  EXPECT_EQ(first.calls, 1) << "the first boundary has to do";
  memory.StopWatching();
  memory.Thaw();

  memory.NoteAlloc(0x11000, 0x8000, true);
  memory.NoteFree(0x11000);
  memory.NoteAlloc(0x11000, 0x100, true);
  memory.NoteIteration();
  ASSERT_TRUE(memory.Learn());
  EXPECT_EQ(memory.Learn()->low, 0x1000u);
  EXPECT_EQ(memory.Learn()->high, 0x9000u);

  Counter second;
  memory.NoteAlloc(0x12000, 0x8000, true);
  memory.Watch(&Counter::Call, &second);
  memory.NoteFree(0x11000);
  memory.NoteIteration();
  EXPECT_EQ(second.calls, 0);
  second.answer = false;
  memory.NoteFree(0x12000);
  EXPECT_EQ(second.calls, 1) << "and it could not be stopped there";
  second.answer = true;
  memory.NoteAlloc(0x11000, 0x100, true);
  EXPECT_EQ(second.calls, 2) << "within the tolerance";
  memory.NoteFree(0x11000);
  EXPECT_EQ(second.calls, 2);
  memory.StopWatching();
  memory.Thaw();

  Counter third;
  memory.Watch(&Counter::Call, &third);
  EXPECT_EQ(third.calls, 1) << "it is low already";
  memory.StopWatching();

  memory.NoteAlloc(0x12000, 0x200, true);
  EXPECT_EQ(memory.Ranges(), (std::vector<TaskRange>{{0x10000, 0x1000}})) << "frozen since";
  memory.Thaw();
  EXPECT_EQ(memory.Ranges(), (std::vector<TaskRange>{{0x10000, 0x1000}, {0x12000, 0x200}}));
  memory.NoteFree(0x12000);

  TaskStatus status;
  memory.NoteFree(0x999);
  memory.FillStatus(&status);
  EXPECT_EQ(status.active_bytes, 0x1000u);
  EXPECT_EQ(status.iterations, 3u);
  EXPECT_EQ(status.ignored_notes, 1u);
  EXPECT_EQ(status.low_bytes, memory.Learn()->low);
  memory.AllocationGone(0x10000);
  EXPECT_EQ(memory.bytes(), 0u);
}

TEST(ActiveMemoryTest, NotesComeFromManyThreads) {
  ActiveMemory& memory = ActiveMemory::Get();
  constexpr uint64_t kSize = 1 << 20;
  constexpr int kThreads = 4;
  memory.AllocationMade(kSize, kThreads * kSize, true);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&memory, i] {
      const uint64_t base = kSize * static_cast<uint64_t>(i + 1);
      for (uint64_t turn = 0; turn < 2000; ++turn) {
        memory.NoteAlloc(base + turn % 7 * 512, 512, true);
        memory.NoteFree(base + turn % 7 * 512);
        if (turn % 100 == 0) memory.NoteIteration();
      }
      memory.NoteAlloc(base, 512, true);
    });
  }
  Counter counter;
  memory.Watch(&Counter::Call, &counter);
  memory.StopWatching();
  memory.Thaw();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory.bytes(), 512u * kThreads);
  EXPECT_EQ(memory.Ranges().size(), static_cast<size_t>(kThreads));
  memory.AllocationGone(kSize);
}

}  // namespace
}  // namespace stasis::vmm

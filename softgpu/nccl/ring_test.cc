#include "softgpu/nccl/ring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "softgpu/nccl/clique.h"
#include "softgpu/nccl/inbox.h"

namespace softgpu::nccl {
namespace {

struct SmallRing {
  static constexpr size_t kCapacity = 64;
  RingState state{};
  std::byte data[kCapacity];
  Ring ring{&state, data, kCapacity};
};

TEST(Ring, TakesWhatFitsAndGivesWhatIsThere) {
  SmallRing small;
  std::vector<char> in(100), out(100);
  std::iota(in.begin(), in.end(), 0);
  EXPECT_EQ(small.ring.Read(out.data(), 1), 0u);
  EXPECT_EQ(small.ring.Write(in.data(), 100), 64u);
  EXPECT_EQ(small.ring.Writable(), 0u);
  EXPECT_EQ(small.ring.Read(out.data(), 40), 40u);
  // Over the end.
  EXPECT_EQ(small.ring.Write(in.data() + 64, 36), 36u);
  EXPECT_EQ(small.ring.Read(out.data() + 40, 100), 60u);
  EXPECT_EQ(in, out);
  EXPECT_TRUE(small.ring.Sane());
}

TEST(Ring, PositionsThatMakeNoSenseMoveNothing) {
  SmallRing small;
  char byte = 0;
  small.state.written = 65;
  EXPECT_FALSE(small.ring.Sane());
  EXPECT_EQ(small.ring.Read(&byte, 1), 0u);
  EXPECT_EQ(small.ring.Write(&byte, 1), 0u);
  small.state.written = 0;
  small.state.read = 1;
  EXPECT_FALSE(small.ring.Sane());
  EXPECT_EQ(small.ring.Read(&byte, 1), 0u);
  EXPECT_EQ(small.ring.Write(&byte, 1), 0u);
}

TEST(Ring, TwoThreadsAndTheirBells) {
  auto inbox = Inbox::Create(2);
  ASSERT_TRUE(inbox.ok());
  auto reader_view = Inbox::Open((*inbox)->fd(), 2);
  ASSERT_TRUE(reader_view.ok()) << reader_view.status().ToString();
  Bell bell{};  // of the writer
  constexpr uint32_t kNumbers = 200'000;
  std::thread writer([&] {
    Ring ring = (*inbox)->RingFrom(1, kMessages);
    for (uint32_t number = 0; number < kNumbers;) {
      const uint32_t seen = bell.Count();
      if (ring.Writable() < sizeof number) {
        bell.Wait(seen);
        continue;
      }
      ring.Write(&number, sizeof number);
      number++;
      (*inbox)->bell()->Ring();
    }
  });
  Ring ring = (*reader_view)->RingFrom(1, kMessages);
  for (uint32_t expected = 0; expected < kNumbers;) {
    const uint32_t seen = (*reader_view)->bell()->Count();
    if (ring.Readable() < sizeof expected) {
      (*reader_view)->bell()->Wait(seen);
      continue;
    }
    uint32_t number = 0;
    ring.Read(&number, sizeof number);
    ASSERT_EQ(number, expected++);
    bell.Ring();
  }
  writer.join();
}

TEST(Inbox, OnlyOneOfTheRightSizeThatKeepsItIsOpened) {
  auto inbox = Inbox::Create(3);
  ASSERT_TRUE(inbox.ok());
  EXPECT_FALSE(Inbox::Open((*inbox)->fd(), 2).ok());
  EXPECT_NE(ftruncate((*inbox)->fd(), 0), 0);
  stasis::Fd unsealed(memfd_create("test", MFD_CLOEXEC));
  const off_t size = lseek((*inbox)->fd(), 0, SEEK_END);
  ASSERT_EQ(ftruncate(unsealed.get(), size), 0);
  EXPECT_FALSE(Inbox::Open(unsealed.get(), 3).ok());
  EXPECT_FALSE(Inbox::Open(-1, 3).ok());
}

TEST(Clique, IsTheSameForItsRanksAndGoesWithTheLast) {
  auto first = Clique::Of(7), second = Clique::Of(7);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, Clique::Of(8));
  EXPECT_EQ(*first->InboxOf(0, 2), *second->InboxOf(0, 2));
  EXPECT_NE(*first->InboxOf(0, 2), *second->InboxOf(1, 2));
  first->Fail(1);
  first->Fail(0);
  EXPECT_EQ(second->failed(), 1);
  first.reset();
  second.reset();
  EXPECT_EQ(Clique::Of(7)->failed(), -1);
}

}  // namespace
}  // namespace softgpu::nccl

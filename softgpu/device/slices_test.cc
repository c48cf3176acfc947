#include "softgpu/device/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace softgpu {
namespace {

using stasis::MonotonicTime;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Notice = SliceScheduler::Notice;

Notice Granted(ClientId client, uint32_t device, uint32_t serial) {
  return {client, device, serial, Notice::Kind::kGranted};
}
Notice Revoke(ClientId client, uint32_t device, uint32_t serial) {
  return {client, device, serial, Notice::Kind::kRevoke};
}

class SlicesTest : public ::testing::Test {
 protected:
  static MonotonicTime At(int ms) { return std::chrono::seconds(100) + milliseconds(ms); }
  SliceScheduler slices_{2, milliseconds(5)};
};

TEST_F(SlicesTest, FreeDeviceIsGrantedAtOnceAndKept) {
  EXPECT_THAT(slices_.Request(1, 0, 7, At(0)), ElementsAre(Granted(1, 0, 7)));
  EXPECT_THAT(slices_.Request(1, 0, 8, At(1)), IsEmpty()) << "it has the device already";
  EXPECT_EQ(slices_.NextTick(), MonotonicTime::max()) << "nobody waits";
  EXPECT_THAT(slices_.Tick(At(10000)), IsEmpty());
  EXPECT_THAT(slices_.Request(2, 1, 1, At(2)), ElementsAre(Granted(2, 1, 1)));
}

TEST_F(SlicesTest, HolderIsAskedOnceWhenItsSliceIsOver) {
  (void)slices_.Request(1, 0, 1, At(0));
  EXPECT_THAT(slices_.Request(2, 0, 2, At(1)), IsEmpty());
  EXPECT_EQ(slices_.NextTick(), At(5));
  EXPECT_THAT(slices_.Tick(At(4)), IsEmpty());
  EXPECT_THAT(slices_.Tick(At(5)), ElementsAre(Revoke(1, 0, 1)));
  EXPECT_EQ(slices_.NextTick(), MonotonicTime::max());
  EXPECT_THAT(slices_.Tick(At(1000)), IsEmpty());
  EXPECT_THAT(slices_.Release(1, 0, At(1001)), ElementsAre(Granted(2, 0, 2)));
}

TEST_F(SlicesTest, LongHolderIsAskedAtOnce) {
  (void)slices_.Request(1, 0, 1, At(0));
  (void)slices_.Request(2, 0, 1, At(50));
  EXPECT_LE(slices_.NextTick(), At(50));
  EXPECT_THAT(slices_.Tick(At(50)), ElementsAre(Revoke(1, 0, 1)));
}

TEST_F(SlicesTest, QueueIsFirstInFirstOut) {
  (void)slices_.Request(1, 0, 1, At(0));
  (void)slices_.Request(2, 0, 1, At(0));
  (void)slices_.Request(3, 0, 1, At(0));
  EXPECT_THAT(slices_.Release(1, 0, At(5)), ElementsAre(Granted(2, 0, 1)));
  (void)slices_.Request(1, 0, 2, At(5));
  EXPECT_EQ(slices_.NextTick(), At(10)) << "the new holder gets a whole slice";
  EXPECT_THAT(slices_.Release(2, 0, At(10)), ElementsAre(Granted(3, 0, 1)));
  EXPECT_THAT(slices_.Release(3, 0, At(15)), ElementsAre(Granted(1, 0, 2)));
}

TEST_F(SlicesTest, ReleaseWithdrawsAWaitingRequest) {
  (void)slices_.Request(1, 0, 1, At(0));
  (void)slices_.Request(2, 0, 1, At(0));
  EXPECT_THAT(slices_.Release(2, 0, At(1)), IsEmpty());
  EXPECT_EQ(slices_.NextTick(), MonotonicTime::max());
  EXPECT_THAT(slices_.Release(1, 0, At(2)), IsEmpty());
  EXPECT_THAT(slices_.Release(1, 0, At(2)), IsEmpty()) << "twice is harmless";
}

TEST_F(SlicesTest, DeathOfTheHolderFreesAllItsDevices) {
  (void)slices_.Request(1, 0, 1, At(0));
  (void)slices_.Request(1, 1, 1, At(0));
  (void)slices_.Request(2, 0, 5, At(0));
  (void)slices_.Request(3, 1, 6, At(0));
  EXPECT_THAT(slices_.Remove(1, At(1)), ElementsAre(Granted(2, 0, 5), Granted(3, 1, 6)));
}

TEST_F(SlicesTest, LostDeviceForgetsEverybody) {
  (void)slices_.Request(1, 0, 1, At(0));
  (void)slices_.Request(2, 0, 1, At(0));
  EXPECT_THAT(slices_.Clear(0), ElementsAre(1, 2));
  EXPECT_EQ(slices_.NextTick(), MonotonicTime::max());
  EXPECT_THAT(slices_.Request(3, 0, 1, At(1)), ElementsAre(Granted(3, 0, 1)));
}

}  // namespace
}  // namespace softgpu

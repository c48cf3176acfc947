// Two devices at work for one another: kernels on both, copies between them, events across them, contexts
// that come and go, all at the same time.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "256MiB"};

namespace {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

constexpr int kDevices = 2;

// What one device has of the work.
struct Side {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent done = nullptr;
  CUdeviceptr word = 0;
  std::unique_ptr<TestKernel> store, load;
};

class Pair {
 public:
  Pair() {
    for (int i = 0; i < kDevices; i++) Make(i);
    for (int i = 0; i < kDevices; i++) {
      EXPECT_OK(cuCtxSetCurrent(sides_[i].context));
      EXPECT_OK(cuCtxEnablePeerAccess(sides_[1 - i].context, 0));
    }
  }

  Side& side(int i) { return sides_[i]; }

  // The word of one device goes to the other one and comes back, each step behind the one before on the other
  // device.
  void Exchange(uint32_t value) {
    Side &near = sides_[value % 2], &far = sides_[1 - value % 2];
    OK(cuCtxSetCurrent(near.context));
    OK(near.store->Launch({near.word, value}, near.stream));
    OK(cuEventRecord(near.done, near.stream));
    OK(cuCtxSetCurrent(far.context));
    OK(cuStreamWaitEvent(far.stream, near.done, 0));
    OK(cuMemcpyPeerAsync(far.word, far.context, near.word, near.context, 4, far.stream));
    OK(far.load->Launch({near.word, far.word + 4}, far.stream));
    OK(cuEventRecord(far.done, far.stream));
    OK(cuCtxSetCurrent(near.context));
    OK(cuStreamWaitEvent(near.stream, far.done, 0));
    OK(near.load->Launch({far.word, near.word + 4}, near.stream));
    uint32_t back = 0, there = 0;
    OK(cuMemcpyDtoHAsync(&back, near.word + 4, 4, near.stream));
    OK(cuStreamSynchronize(near.stream));
    OK(cuMemcpyDtoH(&there, far.word + 4, 4));
    EXPECT_EQ(back, value);
    EXPECT_EQ(there, value);
  }

  // Each context goes as soon as its work is done, with work behind it that crosses over.
  void End() {
    for (Side& side : sides_) {
      OK(cuCtxSetCurrent(side.context));
      OK(side.store->Launch({side.word, 1}, side.stream));
      OK(cuEventRecord(side.done, side.stream));
    }
    for (int i = 0; i < kDevices; i++) {
      OK(cuCtxSetCurrent(sides_[i].context));
      OK(cuStreamWaitEvent(sides_[i].stream, sides_[1 - i].done, 0));
      OK(sides_[i].load->Launch({sides_[1 - i].word, sides_[i].word + 4}, sides_[i].stream));
    }
    // One device's memory has to stay until the other has read it.
    for (Side& side : sides_) {
      OK(cuCtxSetCurrent(side.context));
      OK(cuCtxSynchronize());
      side.store.reset();
      side.load.reset();
    }
    for (int i = 0; i < kDevices; i++) OK(cuDevicePrimaryCtxReset(i));
  }

 private:
  void Make(int i) {
    Side& side = sides_[i];
    side.context = UseDevice(i);
    EXPECT_OK(cuStreamCreate(&side.stream, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(cuEventCreate(&side.done, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuMemAlloc(&side.word, 4096));
    side.store = std::make_unique<TestKernel>(kTestPtx, "store");
    side.load = std::make_unique<TestKernel>(kTestPtx, "load");
  }

  Side sides_[kDevices];
};

TEST(PeerTest, WorkGoesBackAndForth) {
  for (int round = 0; round < 10; round++) {
    Pair pair;
    for (uint32_t value = 1; value <= 20; value++) pair.Exchange(value);
    pair.End();
  }
}

// As a program does that does not wait for one device before it uses the other.
TEST(PeerTest, BothComputeWhileAccessComesAndGoes) {
  for (int round = 0; round < 10; round++) {
    Pair pair;
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      Side& side = pair.side(1);
      EXPECT_OK(cuCtxSetCurrent(side.context));
      while (!stop) {
        for (uint64_t i = 0; i < 8; i++) EXPECT_OK(side.store->Launch({side.word + 64 * i, i}, side.stream));
        EXPECT_OK(cuStreamSynchronize(side.stream));
      }
    });
    Side& side = pair.side(0);
    EXPECT_OK(cuCtxSetCurrent(side.context));
    for (uint64_t i = 0; i < 30; i++) {
      EXPECT_OK(cuCtxDisablePeerAccess(pair.side(1).context));
      EXPECT_OK(side.store->Launch({side.word + 8, i}, side.stream));
      CUdeviceptr block;
      EXPECT_OK(cuMemAlloc(&block, i % 3 == 0 ? 4 << 20 : 4096));
      EXPECT_OK(cuCtxEnablePeerAccess(pair.side(1).context, 0));
      EXPECT_OK(side.store->Launch({pair.side(1).word + 2048, i}, side.stream));
      EXPECT_OK(cuMemcpyPeerAsync(block, side.context, pair.side(1).word + 2048, pair.side(1).context, 4,
                                  side.stream));
      uint32_t value = 0;
      EXPECT_OK(cuMemcpyDtoHAsync(&value, block, 4, side.stream));
      EXPECT_OK(cuStreamSynchronize(side.stream));
      EXPECT_EQ(value, i);
      EXPECT_OK(cuMemFree(block));
    }
    stop = true;
    busy.join();
    pair.End();
  }
}

}  // namespace
}  // namespace softgpu

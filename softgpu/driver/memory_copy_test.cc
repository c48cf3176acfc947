// Copies and sets: what they move, what they refuse, and when they return.
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

// 1 GB/s to the device and 0.5 GB/s back, so that a copy of some megabytes takes milliseconds.
const std::vector<std::string> kDaemonOptions = {"--gpus",     "2", "--memory",   "256MiB",
                                                 "--h2d-gbps", "1", "--d2h-gbps", "0.5"};

namespace {

using Clock = std::chrono::steady_clock;
double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class Copy : public testing::Test {
 protected:
  void SetUp() override {
    context_ = UseDevice(0);
    ASSERT_EQ(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&flag_, 64, 0), CUDA_SUCCESS);
    memset(flag_, 0, 64);
  }
  void TearDown() override { EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS); }
  CUdeviceptr Alloc(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  // Work that keeps `stream` busy until Release().
  void Block(CUstream stream) {
    ASSERT_EQ(spin_.Launch({reinterpret_cast<uint64_t>(flag_)}, stream), CUDA_SUCCESS);
  }
  void Release() { __atomic_store_n(static_cast<uint32_t*>(flag_), 1, __ATOMIC_SEQ_CST); }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  void* flag_ = nullptr;
  struct Kernels {
    TestKernel* kernel = nullptr;
    ~Kernels() { delete kernel; }
    CUresult Launch(std::vector<uint64_t> parameters, CUstream stream) {
      if (kernel == nullptr) kernel = new TestKernel(kTestPtx, "spin");
      return kernel->Launch(std::move(parameters), stream);
    }
  } spin_;
};

TEST_F(Copy, EveryDirectionMovesTheBytes) {
  std::vector<uint8_t> in(100000), out(100000);
  std::iota(in.begin(), in.end(), 0);
  CUdeviceptr a = Alloc(in.size()), b = Alloc(in.size());
  EXPECT_EQ(cuMemcpyHtoD(a, in.data(), in.size()), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoD(b + 1, a, in.size() - 1), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoH(out.data(), b + 1, in.size() - 1), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(in.data(), out.data(), in.size() - 1), 0);
  memset(out.data(), 0, out.size());
  auto host = [](std::vector<uint8_t>& v) { return reinterpret_cast<CUdeviceptr>(v.data()); };
  EXPECT_EQ(cuMemcpy(b, host(in), in.size()), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpy(host(out), b, in.size()), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
  std::vector<uint8_t> third(in.size());
  EXPECT_EQ(cuMemcpyAsync(host(third), host(in), in.size(), stream_), CUDA_SUCCESS);
  EXPECT_EQ(in, third) << "host to host is synchronous";
}

TEST_F(Copy, RangesAreChecked) {
  char host[64] = {};
  CUdeviceptr a = Alloc(100), large = Alloc(4 << 20);
  EXPECT_EQ(cuMemcpyHtoD(a + 90, host, 11), CUDA_ERROR_INVALID_VALUE) << "over the end";
  EXPECT_EQ(cuMemcpyHtoD(a, host, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyHtoD(0x1000, host, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyDtoH(nullptr, a, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(host), host, 4), CUDA_ERROR_INVALID_VALUE)
      << "pageable memory is no device memory";
  EXPECT_EQ(cuMemcpyDtoD(large, a, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(large), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpy(large, a, 4), CUDA_ERROR_INVALID_VALUE) << "freed: not taken for host memory";
  EXPECT_EQ(cuMemcpyHtoDAsync(large, host, 4, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8(a, 0, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32(a + 2, 0, 1), CUDA_ERROR_INVALID_VALUE) << "misaligned";
  EXPECT_EQ(cuMemsetD16(a + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpyHtoDAsync(a, host, 4, reinterpret_cast<CUstream>(0x1234560)), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Copy, SetsOfEveryWidth) {
  CUdeviceptr a = Alloc(1024);
  std::vector<uint8_t> out(1024);
  EXPECT_EQ(cuMemsetD8(a, 0xee, 1024), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD16(a + 2, 0x1234, 3), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD32Async(a + 16, 0xa1b2c3d4, 2, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD2D8(a + 100, 50, 0x55, 3, 4), CUDA_SUCCESS);
  EXPECT_EQ(cuMemsetD2D32(a + 512, 64, 0x01020304, 2, 2), CUDA_SUCCESS);
  EXPECT_EQ(cuMemcpyDtoH(out.data(), a, 1024), CUDA_SUCCESS);
  std::vector<uint8_t> want(1024, 0xee);
  for (int i = 0; i < 3; ++i) want[2 + 2 * i] = 0x34, want[3 + 2 * i] = 0x12;
  for (int i = 0; i < 8; ++i) want[16 + i] = static_cast<uint8_t>(0xa1b2c3d4u >> (8 * (i % 4)));
  for (int row = 0; row < 4; ++row) memset(&want[100 + 50 * row], 0x55, 3);
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < 8; ++i) want[512 + 64 * row + i] = static_cast<uint8_t>(0x01020304u >> (8 * (i % 4)));
  }
  EXPECT_EQ(out, want);
}

// Random boxes between host memory, device memory and arrays, against a copy by hand.
TEST_F(Copy, BoxesAgreeWithCopiesByHand) {
  std::mt19937 random(99);
  constexpr size_t kWidth = 40, kRows = 9, kSlices = 5, kPitch = 48, kHeight = 11;
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = kWidth;
  desc.Height = kRows;
  desc.Depth = kSlices;
  desc.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  desc.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_EQ(cuArray3DCreate(&array, &desc), CUDA_SUCCESS);
  std::vector<uint8_t> host(kPitch * kHeight * kSlices), plain(host.size());
  CUdeviceptr device = Alloc(host.size());
  std::vector<uint8_t> in_array(kWidth * kRows * kSlices, 0);
  ASSERT_EQ(cuMemcpyHtoD(device, plain.data(), plain.size()), CUDA_SUCCESS);
  CUDA_MEMCPY3D all{};
  all.srcMemoryType = CU_MEMORYTYPE_HOST;
  all.srcHost = in_array.data();
  all.srcPitch = kWidth;
  all.srcHeight = kRows;
  all.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  all.dstArray = array;
  all.WidthInBytes = kWidth;
  all.Height = kRows;
  all.Depth = kSlices;
  ASSERT_EQ(cuMemcpy3D(&all), CUDA_SUCCESS);
  auto pick = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  for (int round = 0; round < 60; ++round) {
    for (uint8_t& byte : host) byte = static_cast<uint8_t>(random());
    CUDA_MEMCPY3D in{};
    in.srcMemoryType = CU_MEMORYTYPE_HOST;
    in.srcHost = host.data();
    in.srcPitch = kPitch;
    in.srcHeight = kHeight;
    in.srcXInBytes = in.dstXInBytes = pick(kWidth);
    in.srcY = in.dstY = pick(kRows);
    in.srcZ = in.dstZ = pick(kSlices);
    in.WidthInBytes = pick(kWidth - in.srcXInBytes) + 1;
    in.Height = pick(kRows - in.srcY) + 1;
    in.Depth = pick(kSlices - in.srcZ) + 1;
    in.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    in.dstArray = array;
    ASSERT_EQ(cuMemcpy3D(&in), CUDA_SUCCESS);
    CUDA_MEMCPY3D on = in;
    on.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    on.srcArray = array;
    on.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    on.dstDevice = device;
    on.dstPitch = kPitch;
    on.dstHeight = kHeight;
    ASSERT_EQ(cuMemcpy3DAsync(&on, nullptr), CUDA_SUCCESS);
    for (size_t z = in.srcZ; z < in.srcZ + in.Depth; ++z) {
      for (size_t y = in.srcY; y < in.srcY + in.Height; ++y) {
        size_t at = (z * kHeight + y) * kPitch + in.srcXInBytes;
        memcpy(&plain[at], &host[at], in.WidthInBytes);
        memcpy(&in_array[(z * kRows + y) * kWidth + in.srcXInBytes], &host[at], in.WidthInBytes);
      }
    }
  }
  std::vector<uint8_t> got(plain.size());
  ASSERT_EQ(cuMemcpyDtoH(got.data(), device, got.size()), CUDA_SUCCESS);
  EXPECT_EQ(got, plain);
  std::vector<uint8_t> row(kWidth);
  ASSERT_EQ(cuMemcpyAtoH(row.data(), array, 3, kWidth - 3), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(row.data(), &in_array[3], kWidth - 3), 0);
}

TEST_F(Copy, BoxArgumentsAreChecked) {
  CUdeviceptr device = Alloc(4096);
  char host[256];
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = 16;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = 1024;
  copy.WidthInBytes = 16;
  copy.Height = 4;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
  copy.srcPitch = 15;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "rows would overlap";
  copy.srcPitch = 16;
  copy.dstY = 1;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_VALUE) << "a row too far";
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = reinterpret_cast<CUarray>(0x5550);
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_ERROR_INVALID_HANDLE);
  copy.WidthInBytes = 0;
  EXPECT_EQ(cuMemcpy2D(&copy), CUDA_SUCCESS);
}

TEST_F(Copy, PageableSourcesAreReadBeforeTheCallReturns) {
  CUdeviceptr a = Alloc(4096);
  std::vector<uint32_t> in(1024, 1), out(1024, 0);
  Block(stream_);
  ASSERT_EQ(cuMemcpyHtoDAsync(a, in.data(), 4096, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY) << "the copy itself waits for its turn";
  std::fill(in.begin(), in.end(), 2);
  Release();
  ASSERT_EQ(cuMemcpyDtoHAsync(out.data(), a, 4096, stream_), CUDA_SUCCESS);
  EXPECT_EQ(out, std::vector<uint32_t>(1024, 1)) << "a copy to pageable memory has ended when it returns";
}

TEST_F(Copy, PinnedCopiesAreReadWhenTheirTurnComes) {
  CUdeviceptr a = Alloc(4096);
  void* pinned = nullptr;
  ASSERT_EQ(cuMemAllocHost(&pinned, 4096), CUDA_SUCCESS);
  uint32_t* words = static_cast<uint32_t*>(pinned);
  words[0] = 1;
  Block(stream_);
  ASSERT_EQ(cuMemcpyHtoDAsync(a, pinned, 4096, stream_), CUDA_SUCCESS);
  words[0] = 2;
  ASSERT_EQ(cuMemcpyDtoHAsync(words + 1, a, 4, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream_), CUDA_ERROR_NOT_READY) << "both calls returned before";
  Release();
  ASSERT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(words[1], 2u);
}

TEST_F(Copy, DeviceToDeviceAndSetsDoNotWaitForTheHost) {
  CUdeviceptr a = Alloc(64), b = Alloc(64);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  Block(blocking);
  ASSERT_EQ(cuMemsetD8(a, 7, 64), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyDtoD(b, a, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY)
      << "behind the blocking stream, as the legacy stream is";
  Release();
  uint8_t out[64];
  ASSERT_EQ(cuMemcpyDtoH(out, b, 64), CUDA_SUCCESS);
  EXPECT_EQ(out[63], 7);
}

TEST_F(Copy, SyncMemopsMakeThemWait) {
  CUdeviceptr a = Alloc(64);
  unsigned on = 1;
  ASSERT_EQ(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a), CUDA_SUCCESS);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  Block(blocking);
  std::thread release([this] { Release(); });
  ASSERT_EQ(cuMemsetD8(a, 7, 64), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_SUCCESS);
  release.join();
}

TEST_F(Copy, BandwidthLimitsHold) {
  constexpr size_t kBytes = 20 << 20;
  CUdeviceptr a = Alloc(kBytes), b = Alloc(kBytes);
  std::vector<char> host(kBytes, 1);
  Clock::time_point begin = Clock::now();
  ASSERT_EQ(cuMemcpyHtoD(a, host.data(), kBytes), CUDA_SUCCESS);
  EXPECT_GE(MillisecondsSince(begin), kBytes / 1e6) << "1 GB/s";
  begin = Clock::now();
  ASSERT_EQ(cuMemcpyDtoH(host.data(), a, kBytes), CUDA_SUCCESS);
  EXPECT_GE(MillisecondsSince(begin), kBytes / 0.5e6) << "0.5 GB/s";
  ASSERT_EQ(cuMemcpyDtoD(b, a, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(Copy, PeerCopiesAreOrderedAmongBothContexts) {
  CUdeviceptr a = Alloc(4096);
  CUcontext other = UseDevice(1);
  CUdeviceptr b = Alloc(4096);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
  CUstream blocking = nullptr;
  ASSERT_EQ(cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
  Block(blocking);
  ASSERT_EQ(cuMemsetD32(a, 5, 1024), CUDA_SUCCESS);
  ASSERT_EQ(cuMemcpyPeer(b, other, a, context_, 4096), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "later work of the other context waits, too";
  Release();
  uint32_t out[1024];
  ASSERT_EQ(cuMemcpyDtoH(out, b, 4096), CUDA_SUCCESS);
  EXPECT_EQ(out[1023], 5u);
  EXPECT_EQ(cuMemcpyPeer(b, reinterpret_cast<CUcontext>(0x10), a, context_, 4), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
}

// A box of texels goes into an array, on into another one, and out to memory with room between its rows.
TEST_F(Copy, BatchesMoveBoxesOfPointersAndArrays) {
  const CUDA_ARRAY3D_DESCRIPTOR desc = {8, 4, 2, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
  CUarray one = nullptr, two = nullptr;
  ASSERT_EQ(cuArray3DCreate(&one, &desc), CUDA_SUCCESS);
  ASSERT_EQ(cuArray3DCreate(&two, &desc), CUDA_SUCCESS);
  std::vector<uint32_t> in(4 * 3 * 2), out(6 * 4 * 2);
  std::iota(in.begin(), in.end(), 1);
  const auto pointer = [](void* address, size_t row, size_t height) {
    CUmemcpy3DOperand operand{};
    operand.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = reinterpret_cast<CUdeviceptr>(address);
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = height;
    return operand;
  };
  const auto array = [](CUarray handle, CUoffset3D offset) {
    CUmemcpy3DOperand operand{};
    operand.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    operand.op.array.array = handle;
    operand.op.array.offset = offset;
    return operand;
  };
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.extent = {4, 3, 2};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  const auto copy = [&](CUmemcpy3DOperand dst, CUmemcpy3DOperand src) {
    op.src = src;
    op.dst = dst;
    return cuMemcpy3DBatchAsync(1, &op, 0, stream_);
  };
  EXPECT_EQ(copy(array(one, {1, 1, 0}), pointer(in.data(), 0, 0)), CUDA_SUCCESS);
  EXPECT_EQ(copy(array(two, {4, 0, 0}), array(one, {1, 1, 0})), CUDA_SUCCESS);
  EXPECT_EQ(copy(pointer(out.data(), 6, 4), array(two, {4, 0, 0})), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(out[i / 12 * 24 + i % 12 / 4 * 6 + i % 4], in[i]) << i;
  EXPECT_EQ(copy(array(one, {5, 0, 0}), pointer(in.data(), 0, 0)), CUDA_ERROR_INVALID_VALUE) << "too wide";
  EXPECT_EQ(copy(array(one, {0, 0, 0}), pointer(in.data(), 3, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &op, 0, nullptr), CUDA_ERROR_INVALID_VALUE) << "the default stream";
  op.extent.depth = 0;
  EXPECT_EQ(cuMemcpy3DBatchAsync(1, &op, 0, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuArrayDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(two), CUDA_SUCCESS);
}

}  // namespace
}  // namespace softgpu

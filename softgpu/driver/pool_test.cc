// Memory pools and stream-ordered allocation.
#include <cstring>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "64MiB"};

namespace {

class Pool : public testing::Test {
 protected:
  void SetUp() override {
    UseDevice(0);
    ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&a_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&b_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(cuMemHostAlloc(&flag_, 64, 0), CUDA_SUCCESS);
    memset(flag_, 0, 64);
    spin_ = std::make_unique<TestKernel>(kTestPtx, "spin");
  }
  void TearDown() override {
    spin_.reset();
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  }
  uint64_t Number(CUmemPool_attribute attribute, CUmemoryPool pool = nullptr) {
    cuuint64_t value = 0;
    EXPECT_EQ(cuMemPoolGetAttribute(pool == nullptr ? pool_ : pool, attribute, &value), CUDA_SUCCESS);
    return value;
  }
  uint64_t Reserved() { return Number(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }
  uint64_t Used() { return Number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  void SetThreshold(cuuint64_t bytes) {
    EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
  }
  CUdeviceptr Alloc(size_t bytes, CUstream stream) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAllocAsync(&address, bytes, stream), CUDA_SUCCESS);
    return address;
  }
  void Block(CUstream stream) {
    ASSERT_EQ(spin_->Launch({reinterpret_cast<uint64_t>(flag_)}, stream), CUDA_SUCCESS);
  }
  void Release() { __atomic_store_n(static_cast<uint32_t*>(flag_), 1, __ATOMIC_SEQ_CST); }

  CUmemoryPool pool_ = nullptr;
  CUstream a_ = nullptr, b_ = nullptr;
  void* flag_ = nullptr;
  std::unique_ptr<TestKernel> spin_;
};

TEST_F(Pool, MemoryIsUsableInStreamOrderAndReturnedAtSynchronisation) {
  CUdeviceptr address = Alloc(1000, a_);
  EXPECT_EQ(cuMemsetD8Async(address, 3, 1000, a_), CUDA_SUCCESS);
  uint8_t out[1000];
  EXPECT_EQ(cuMemcpyDtoHAsync(out, address, 1000, a_), CUDA_SUCCESS);
  EXPECT_EQ(out[999], 3);
  CUmemoryPool owner = nullptr;
  EXPECT_EQ(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address), CUDA_SUCCESS);
  EXPECT_EQ(owner, pool_);
  EXPECT_EQ(Used(), 1024u);
  EXPECT_EQ(Reserved(), 2u << 20);
  EXPECT_EQ(cuMemFreeAsync(address, a_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, a_), CUDA_ERROR_INVALID_VALUE) << "freed twice";
  EXPECT_EQ(cuMemcpyDtoHAsync(out, address, 4, a_), CUDA_ERROR_INVALID_VALUE) << "no longer the program's";
  EXPECT_EQ(cuStreamSynchronize(a_), CUDA_SUCCESS);
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(Reserved(), 0u) << "the threshold is zero";
  EXPECT_EQ(Number(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2u << 20);
  cuuint64_t zero = 0, one = 1;
  EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero), CUDA_SUCCESS);
  EXPECT_EQ(Number(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 0u);
}

TEST_F(Pool, FreedMemoryIsReusedInItsStreamAtOnceAndElsewhereAfterTheFree) {
  SetThreshold(UINT64_MAX);
  Block(a_);
  CUdeviceptr first = Alloc(3 << 20, a_);
  ASSERT_EQ(cuMemFreeAsync(first, a_), CUDA_SUCCESS);
  CUdeviceptr other = Alloc(3 << 20, b_);
  EXPECT_NE(other, first) << "the free has not been carried out";
  CUdeviceptr same = Alloc(3 << 20, a_);
  EXPECT_EQ(same, first) << "the same stream may use it in order";
  ASSERT_EQ(cuMemFreeAsync(same, a_), CUDA_SUCCESS);
  Release();
  ASSERT_EQ(cuStreamSynchronize(a_), CUDA_SUCCESS);
  EXPECT_EQ(Alloc(3 << 20, b_), first) << "now it is anybody's";
  SetThreshold(0);
}

TEST_F(Pool, ThresholdTrimAndCapacity) {
  SetThreshold(UINT64_MAX);
  CUdeviceptr big = Alloc(40 << 20, a_);
  ASSERT_EQ(cuMemFreeAsync(big, a_), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamSynchronize(a_), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 40u << 20);
  EXPECT_EQ(FreeBytes(), 24u << 20) << "kept memory is not the device's";
  EXPECT_EQ(cuMemPoolTrimTo(pool_, 100 << 20), CUDA_SUCCESS);
  EXPECT_EQ(Reserved(), 40u << 20);
  CUdeviceptr plain = 0;
  EXPECT_EQ(cuMemAlloc(&plain, 30 << 20), CUDA_SUCCESS) << "kept memory is given up before others starve";
  EXPECT_EQ(Reserved(), 0u);
  CUdeviceptr none = 0;
  EXPECT_EQ(cuMemAllocAsync(&none, 40 << 20, a_), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemFreeAsync(plain, a_), CUDA_SUCCESS) << "plain memory may be freed in stream order";
  EXPECT_EQ(cuMemAllocAsync(&none, 40 << 20, a_), CUDA_SUCCESS) << "whose free counts";
  EXPECT_EQ(cuMemFree(none), CUDA_SUCCESS) << "and the reverse";
  SetThreshold(0);
}

TEST_F(Pool, PoolsOfTheProgram) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  props.maxSize = 4 << 20;
  CUmemoryPool pool = nullptr, current = nullptr;
  ASSERT_EQ(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE) << "another device's";
  ASSERT_EQ(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, pool);
  CUdeviceptr address = Alloc(4 << 20, a_), more = 0;
  EXPECT_EQ(cuMemAllocAsync(&more, 1, a_), CUDA_ERROR_OUT_OF_MEMORY) << "its own limit";
  EXPECT_EQ(cuMemAllocFromPoolAsync(&more, 1, pool_, a_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool_), CUDA_ERROR_INVALID_VALUE) << "the default pool stays";
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, pool_);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD8Async(address, 1, 4 << 20, a_), CUDA_SUCCESS) << "its memory lives on";
  EXPECT_EQ(cuMemFreeAsync(address, a_), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(more, a_), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), 64u << 20);
}

TEST_F(Pool, AccessOfOtherDevicesIsGrantedByPool) {
  CUdeviceptr address = Alloc(64, a_);
  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemLocation mine{CU_MEM_LOCATION_TYPE_DEVICE, 0}, other{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(cuMemPoolGetAccess(&flags, pool_, &mine), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(cuMemPoolGetAccess(&flags, pool_, &other), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  CUmemAccessDesc desc{mine, CU_MEM_ACCESS_FLAGS_PROT_NONE};
  EXPECT_EQ(cuMemPoolSetAccess(pool_, &desc, 1), CUDA_ERROR_INVALID_VALUE) << "the owner keeps its access";
  desc = {other, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(cuMemPoolSetAccess(pool_, &desc, 1), CUDA_SUCCESS);
  CUcontext first = nullptr;
  ASSERT_EQ(cuCtxGetCurrent(&first), CUDA_SUCCESS);
  UseDevice(1);
  {
    TestKernel store(kTestPtx, "store");
    ASSERT_EQ(store.Launch({address, 9}), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(first), CUDA_SUCCESS);
  desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_EQ(cuMemPoolSetAccess(pool_, &desc, 1), CUDA_SUCCESS);
}

}  // namespace
}  // namespace softgpu

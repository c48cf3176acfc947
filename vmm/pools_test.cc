// Stream-ordered allocation on the software device's driver.
#include "vmm/pools.h"

#include <condition_variable>
#include <mutex>

#include "vmm/host_memory.h"
#include "vmm/pause.h"
#include "vmm/pointer_query.h"
#include "vmm/testing.h"

namespace stasis::vmm {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Holds a stream up until it is opened.
class Barrier {
 public:
  explicit Barrier(CUstream stream) { EXPECT_CUDA_OK(Driver().cuLaunchHostFunc(stream, &Wait, this)); }
  ~Barrier() { Open(); }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  static void CUDA_CB Wait(void* self) {
    Barrier& barrier = *static_cast<Barrier*>(self);
    std::unique_lock lock(barrier.mutex_);
    barrier.changed_.wait(lock, [&] { return barrier.open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class PoolsTest : public testing::Test {
 protected:
  PoolsTest() : node_({"--gpus", "2", "--memory", "64MiB"}) {
    context_ = OpenOn(0);
    EXPECT_CUDA_OK(Driver().cuStreamCreate(&first_, CU_STREAM_NON_BLOCKING));
    EXPECT_CUDA_OK(Driver().cuStreamCreate(&second_, CU_STREAM_NON_BLOCKING));
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    EXPECT_CUDA_OK(Pools::Get().Create(&pool_, &props));
  }
  ~PoolsTest() override {
    EXPECT_CUDA_OK(Driver().cuCtxSynchronize());
    if (pool_ != nullptr) {
      EXPECT_CUDA_OK(Pools::Get().Destroy(pool_));
    }
    Memory::Get().ContextGone(context_);
    EXPECT_TRUE(Extents().empty());
    CloseAll(2);
  }
  static StreamPlace At(CUstream stream) {
    StreamPlace place;
    EXPECT_CUDA_OK(FindStream(stream, &place));
    return place;
  }
  CUdeviceptr Allocate(uint64_t bytes, CUstream stream) {
    CUdeviceptr address = 0;
    EXPECT_CUDA_OK(Pools::Get().Allocate(&address, bytes, pool_, At(stream)));
    return address;
  }
  static void Free(CUdeviceptr address, CUstream stream) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(Pools::Get().FreeAsync(address, At(stream), &result));
    EXPECT_CUDA_OK(result);
  }
  static uint64_t Ask(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_CUDA_OK(Pools::Get().GetAttribute(pool, attribute, &value));
    return value;
  }
  static std::vector<uint64_t> AskAll(CUmemoryPool pool) {
    std::vector<uint64_t> answers;
    for (int one = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; one <= CU_MEMPOOL_ATTR_USED_MEM_HIGH;
         ++one)
      answers.push_back(Ask(pool, static_cast<CUmemPool_attribute>(one)));
    return answers;
  }
  uint64_t Used() { return Ask(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
  static void Pause() {
    Settle();
    EXPECT_STATUS_OK(CheckReleasable(TaskStrategy::kReconstruct));
    const Exported exported = ExportAll();
    EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
    ImportAll(exported);
    EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  }

  TestNode node_;
  CUcontext context_ = nullptr;
  CUstream first_ = nullptr, second_ = nullptr;
  CUmemoryPool pool_ = nullptr;
};

TEST_F(PoolsTest, AFreedBlockIsForItsStreamAtOnceAndForOthersWhenTheFreeIsPassed) {
  const CUdeviceptr block = Allocate(4 * kMiB, first_);
  Barrier barrier(first_);
  Free(block, first_);
  const CUdeviceptr other = Allocate(4 * kMiB, second_);
  EXPECT_NE(other, block);
  EXPECT_EQ(Allocate(4 * kMiB, first_), block);
  Free(block, first_);
  barrier.Open();
  EXPECT_CUDA_OK(Driver().cuStreamSynchronize(first_));
  EXPECT_EQ(Allocate(4 * kMiB, second_), block);
  EXPECT_EQ(Used(), 8 * kMiB);
}

TEST_F(PoolsTest, WhenMemoryIsShortAStreamWaitsForTheFreeOfAnother) {
  const CUdeviceptr block = Allocate(40 * kMiB, first_);
  Barrier barrier(first_);
  Free(block, first_);
  EXPECT_EQ(Allocate(40 * kMiB, second_), block);
  EXPECT_EQ(Driver().cuStreamQuery(second_), CUDA_ERROR_NOT_READY);
  barrier.Open();
  EXPECT_CUDA_OK(Driver().cuStreamSynchronize(second_));
}

TEST_F(PoolsTest, PlainMemoryIsFreedInStreamOrder) {
  CUdeviceptr plain = 0;
  EXPECT_CUDA_OK(Memory::Get().Allocate(&plain, 40 * kMiB));
  {
    Barrier barrier(first_);
    Free(plain, first_);
    EXPECT_FALSE(Memory::Get().Find(plain));
    Memory::Get().SettleDeferredFrees();
    EXPECT_EQ(Extents().size(), 1u);
    barrier.Open();
    EXPECT_CUDA_OK(Driver().cuStreamSynchronize(first_));
  }
  Memory::Get().SettleDeferredFrees();
  EXPECT_TRUE(Extents().empty());
}

TEST_F(PoolsTest, MemoryOfADestroyedPoolLivesUntilItIsFreed) {
  const CUdeviceptr block = Allocate(4 * kMiB, first_);
  EXPECT_CUDA_OK(Pools::Get().Destroy(pool_));
  pool_ = nullptr;
  FillDevice(block, 4 * kMiB, 7);
  EXPECT_EQ(ReadDevice(block, 1), std::vector<unsigned char>(1, 7));
  EXPECT_CUDA_OK(Memory::Get().Free(block));
  EXPECT_TRUE(Extents().empty());
}

TEST_F(PoolsTest, APauseForgetsWhatIsFreeAndKeepsWhatIsNot) {
  const CUdeviceptr kept = Allocate(4 * kMiB, first_), freed = Allocate(4 * kMiB, first_);
  FillDevice(kept, 4 * kMiB, 8);
  Free(freed, first_);
  EXPECT_CUDA_OK(Driver().cuCtxSynchronize());
  Pause();
  EXPECT_EQ(Extents().size(), 1u);
  EXPECT_EQ(ReadDevice(kept, 4 * kMiB), std::vector<unsigned char>(4 * kMiB, 8));
  Free(kept, first_);
}

TEST_F(PoolsTest, AHundredPausesChangeNothingThatAPoolSaysOfItself) {
  int none = 0;
  cuuint64_t threshold = 6 * kMiB;
  EXPECT_CUDA_OK(Pools::Get().SetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &none));
  EXPECT_CUDA_OK(Pools::Get().SetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &none));
  EXPECT_CUDA_OK(Pools::Get().SetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  const CUdeviceptr kept = Allocate(4 * kMiB, first_), freed = Allocate(8 * kMiB, first_);
  Free(freed, first_);
  EXPECT_CUDA_OK(Driver().cuCtxSynchronize());
  const std::vector<uint64_t> before = AskAll(pool_);
  EXPECT_EQ(Ask(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 12 * kMiB);
  for (int i = 0; i < 100; ++i) Pause();
  EXPECT_EQ(AskAll(pool_), before);
  EXPECT_EQ(Extents().size(), 1u);
  Free(kept, first_);
}

TEST_F(PoolsTest, TheDriversNewPoolIsToldWhatTheOldOneWas) {
  CUmemoryPool by_default = nullptr;
  EXPECT_CUDA_OK(Pools::Get().GetDefault(&by_default, 0));
  int none = 0;
  cuuint64_t threshold = 6 * kMiB;
  const CUmemAccessDesc peer = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  for (CUmemoryPool pool : {pool_, by_default}) {
    EXPECT_CUDA_OK(Pools::Get().SetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &none));
    EXPECT_CUDA_OK(Pools::Get().SetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    EXPECT_CUDA_OK(Pools::Get().SetAccess(pool, &peer, 1));
  }
  EXPECT_CUDA_OK(Pools::Get().SetCurrent(0, pool_));
  Pause();
  for (CUmemoryPool pool : {pool_, by_default}) {
    const CUmemoryPool real = Pools::Get().ToReal(pool);
    EXPECT_EQ(Pools::Get().ToVisible(real), pool);
    int reuse = -1;
    cuuint64_t keeps = 0;
    EXPECT_CUDA_OK(Driver().cuMemPoolGetAttribute(real, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse));
    EXPECT_CUDA_OK(Driver().cuMemPoolGetAttribute(real, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps));
    EXPECT_EQ(reuse, 0);
    EXPECT_EQ(keeps, threshold);
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUmemLocation location = peer.location;
    EXPECT_CUDA_OK(Driver().cuMemPoolGetAccess(&flags, real, &location));
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  }
  CUmemoryPool current = nullptr;
  EXPECT_CUDA_OK(Driver().cuDeviceGetMemPool(&current, 0));
  EXPECT_EQ(current, Pools::Get().ToReal(pool_));
  EXPECT_CUDA_OK(Pools::Get().GetCurrent(&current, 0));
  EXPECT_EQ(current, pool_);
}

TEST_F(PoolsTest, PinnedMemoryIsRegisteredAgainWithItsFlags) {
  void* pinned = nullptr;
  bool carried = false;
  const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED;
  ASSERT_CUDA_OK(HostMemory::Get().Allocate(&pinned, 100000, flags, &carried));
  EXPECT_TRUE(carried);
  unsigned seen = 0, on = 1;
  EXPECT_CUDA_OK(
      PointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reinterpret_cast<CUdeviceptr>(pinned) + 5));
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  EXPECT_NE(Driver().cuMemHostGetFlags(&seen, pinned), CUDA_SUCCESS);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_CUDA_OK(HostMemory::Get().GetFlags(&seen, pinned));
  EXPECT_EQ(seen, flags);
  on = 0;
  EXPECT_CUDA_OK(Driver().cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                                reinterpret_cast<CUdeviceptr>(pinned)));
  EXPECT_EQ(on, 1u);
  EXPECT_CUDA_OK(HostMemory::Get().Free(pinned));
  EXPECT_EQ(HostMemory::Get().bytes(), 0u);
}

}  // namespace
}  // namespace stasis::vmm

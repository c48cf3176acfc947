// Plain device memory on the software device's driver.
#include "vmm/memory.h"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <thread>

#include "vmm/active_memory.h"
#include "vmm/hold.h"
#include "vmm/pause.h"
#include "vmm/pointer_query.h"
#include "vmm/testing.h"

namespace stasis::vmm {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() : node_({"--gpus", "2", "--memory", "1GiB"}) { context_ = OpenOn(0); }
  ~MemoryTest() override {
    for (CUcontext context : {context_, other_}) {
      if (context != nullptr) Memory::Get().ContextGone(context);
    }
    EXPECT_TRUE(Extents().empty());
    CloseAll(2);
  }

  CUdeviceptr Allocate(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CUDA_OK(Memory::Get().Allocate(&address, bytes));
    return address;
  }
  static uint64_t ExtentBytes() {
    uint64_t bytes = 0;
    for (const TaskExtent& extent : Extents()) bytes += extent.size;
    return bytes;
  }
  // Everything is let go of and the driver is unloaded; then another one takes it up again.
  void DropDriverAndComeBack(const Exported& exported) {
    EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
    CloseAll(2);
    context_of_driver_ = OpenOn(0);
    static constexpr Environment kRebuilt = {.real_context = &RealOf, .visible_context = &VisibleOf};
    SetEnvironment(&kRebuilt);
    ImportAll(exported);
    EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  }

  static CUcontext RealOf(CUcontext visible) { return visible == context_ ? context_of_driver_ : visible; }
  static CUcontext VisibleOf(CUcontext real) { return real == context_of_driver_ ? context_ : real; }
  void SetUp() override { context_of_driver_ = context_; }
  void TearDown() override { SetEnvironment(nullptr); }

  TestNode node_;
  static CUcontext context_, context_of_driver_;
  CUcontext other_ = nullptr;
};
CUcontext MemoryTest::context_ = nullptr;
CUcontext MemoryTest::context_of_driver_ = nullptr;

TEST_F(MemoryTest, AllocationsHoldDataAndGoBackToTheDriver) {
  const size_t before = DriverFreeBytes();
  const CUdeviceptr small = Allocate(100), large = Allocate(10 * kMiB);
  EXPECT_EQ(small % 512, 0u);
  EXPECT_EQ(large % 512, 0u);
  FillDevice(small, 100, 1);
  FillDevice(large, 10 * kMiB, 2);
  EXPECT_EQ(ReadDevice(small, 100), std::vector<unsigned char>(100, 1));
  EXPECT_LE(before - DriverFreeBytes(), 12 * kMiB);
  EXPECT_CUDA_OK(Memory::Get().Free(large));
  EXPECT_CUDA_OK(Memory::Get().Free(small));
  EXPECT_LE(before - DriverFreeBytes(), kPage);
  Memory::Get().Reclaim(0);
  EXPECT_EQ(before, DriverFreeBytes());
}

TEST_F(MemoryTest, ActiveAreTheBytesOfAllocationsCutAtExtents) {
  const CUdeviceptr small = Allocate(100), packed = Allocate(5 * kMiB + 7), pages = Allocate(4 * kMiB);
  uint64_t bytes = 0;
  const auto ranges = ActiveRanges();
  ASSERT_TRUE(ranges.ok()) << ranges.status().ToString();
  for (const TaskRange& range : *ranges) {
    bytes += range.size;
    const bool inside = std::ranges::any_of(Extents(), [&range](const TaskExtent& extent) {
      return extent.address <= range.address && range.address + range.size <= extent.address + extent.size;
    });
    EXPECT_TRUE(inside) << range.address;
  }
  EXPECT_EQ(bytes, 100 + 5 * kMiB + 7 + 4 * kMiB);
  EXPECT_GT(ranges->size(), 3u) << "one lies across two extents";
  ActiveMemory::Get().NoteAlloc(packed + 512, kMiB, true);
  EXPECT_CUDA_OK(Memory::Get().Free(small));
  EXPECT_CUDA_OK(Memory::Get().Free(pages));
  EXPECT_EQ(ActiveRanges()->at(0), (TaskRange{packed + 512, kMiB}));
  EXPECT_CUDA_OK(Memory::Get().Free(packed));
  EXPECT_TRUE(ActiveRanges()->empty());
  EXPECT_EQ(ActiveMemory::Get().bytes(), 0u);
}

TEST_F(MemoryTest, ErrorsAreTheDriversOwn) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Memory::Get().Allocate(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Memory::Get().Allocate(nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Memory::Get().Allocate(&address, 4096 * kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Memory::Get().Allocate(&address, ~0ull), CUDA_ERROR_OUT_OF_MEMORY);
  const CUdeviceptr live = Allocate(1000);
  EXPECT_EQ(Memory::Get().Free(live + 512), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Memory::Get().Free(0), Driver().cuMemFree_v2(0));
  EXPECT_CUDA_OK(Memory::Get().Free(live));
  EXPECT_EQ(Memory::Get().Free(live), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr plain = 0;  // what the driver made without us is its own to free
  EXPECT_CUDA_OK(Driver().cuMemAlloc_v2(&plain, 100));
  EXPECT_CUDA_OK(Memory::Get().Free(plain));
  std::thread([] {
    CUdeviceptr none = 0;
    EXPECT_EQ(Memory::Get().Allocate(&none, 100), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(Memory::Get().Free(100), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
}

TEST_F(MemoryTest, PackedAllocationsWasteLessThanThreePercent) {
  for (const uint64_t bytes : {2 * kMiB + kMiB / 10, 3 * kMiB, 300 * 1024ul, kMiB}) {
    uint64_t asked = 0;
    std::vector<CUdeviceptr> live;
    for (; asked + bytes < 300 * kMiB; asked += bytes) live.push_back(Allocate(bytes));
    EXPECT_LE(ExtentBytes(), asked + asked * 3 / 100 + kPage) << "allocations of " << bytes;
    for (CUdeviceptr address : live) EXPECT_CUDA_OK(Memory::Get().Free(address));
    EXPECT_LE(ExtentBytes(), kPage);
  }
}

TEST_F(MemoryTest, WholePagesShareWithNobody) {
  const CUdeviceptr odd = Allocate(3 * kMiB), whole = Allocate(4 * kMiB), another = Allocate(3 * kMiB);
  EXPECT_EQ(whole % kPage, 0u);
  EXPECT_CUDA_OK(Memory::Get().Free(whole));
  EXPECT_LE(ExtentBytes(), 6 * kMiB);
  EXPECT_EQ(another, odd + 3 * kMiB);
}

TEST_F(MemoryTest, ManySmallAllocationsAreFewExtents) {
  std::vector<CUdeviceptr> live;
  for (int i = 0; i < 20000; ++i) live.push_back(Allocate(5000));
  EXPECT_LE(Extents().size(), 60u);
  const size_t descriptors = OpenDescriptors();
  const Exported exported = ExportAll();
  EXPECT_EQ(OpenDescriptors(), descriptors + exported.fds.size());
}

// The model keeps what each allocation was filled with.
TEST_F(MemoryTest, AgreesWithModelOverRandomCalls) {
  struct Live {
    CUdeviceptr address;
    uint64_t size;
    unsigned char value;
  };
  std::mt19937_64 random(4711);
  std::vector<Live> model;
  uint64_t total = 0;
  for (int step = 0; step < 3000; ++step) {
    if (model.empty() || (random() % 5 < 3 && total < 400 * kMiB)) {
      const uint64_t size = 1 + random() % (1ull << (4 + random() % 20));
      const Live live{Allocate(size), size, static_cast<unsigned char>(random())};
      FillDevice(live.address, size, live.value);
      for (const Live& other : model)
        ASSERT_TRUE(live.address + size <= other.address || other.address + other.size <= live.address);
      model.push_back(live);
      total += size;
    } else {
      std::swap(model[random() % model.size()], model.back());
      const Live live = model.back();
      model.pop_back();
      total -= live.size;
      ASSERT_EQ(ReadDevice(live.address, live.size), std::vector<unsigned char>(live.size, live.value));
      ASSERT_CUDA_OK(Memory::Get().Free(live.address));
    }
    if (step % 1000 == 999) DropDriverAndComeBack(ExportAll());
  }
  for (const Live& live : model) {
    const std::optional<Block> found = Memory::Get().Find(live.address + live.size - 1);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->base, live.address);
    EXPECT_EQ(found->size, live.size);
    ASSERT_EQ(ReadDevice(live.address, live.size), std::vector<unsigned char>(live.size, live.value));
  }
}

TEST_F(MemoryTest, ContentsComeBackFromTheSameDescriptors) {
  const CUdeviceptr small = Allocate(100), large = Allocate(5 * kMiB);
  FillDevice(small, 100, 3);
  FillDevice(large, 5 * kMiB, 4);
  const size_t descriptors = OpenDescriptors();
  {
    const Exported exported = ExportAll();
    DropDriverAndComeBack(exported);
    DropDriverAndComeBack(exported);
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(ReadDevice(small, 100), std::vector<unsigned char>(100, 3));
  EXPECT_EQ(ReadDevice(large, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 4));
  EXPECT_CUDA_OK(Memory::Get().Free(large));
  EXPECT_CUDA_OK(Memory::Get().Free(small));
}

// What the driver does about work on the memory, whatever the program is told.
bool DriverSynchronizes(CUdeviceptr address) {
  unsigned on = 99;
  EXPECT_CUDA_OK(Driver().cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
  return on == 1;
}

void SetSyncMemops(CUdeviceptr address, unsigned on) {
  EXPECT_CUDA_OK(PointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
}

TEST_F(MemoryTest, TheDriverIsToldAgainWhereWorkIsSynchronous) {
  const CUdeviceptr small = Allocate(1000), neighbour = Allocate(1000), large = Allocate(9 * kMiB);
  const CUdeviceptr other = Allocate(9 * kMiB);
  SetSyncMemops(small + 10, 1);
  SetSyncMemops(neighbour, 1);
  SetSyncMemops(neighbour, 0);
  SetSyncMemops(large + 5 * kMiB, 1);
  SetSyncMemops(other, 1);
  SetSyncMemops(other, 0);
  for (const TaskStrategy strategy : {TaskStrategy::kReconstruct, TaskStrategy::kDriverCheckpoint}) {
    EXPECT_TRUE(DriverSynchronizes(small));
    for (uint64_t at = 0; at < 9 * kMiB; at += kMiB) EXPECT_TRUE(DriverSynchronizes(large + at)) << at;
    EXPECT_FALSE(DriverSynchronizes(other + 4 * kMiB));
    const Exported exported = ExportAll();
    EXPECT_STATUS_OK(Release(strategy));
    ImportAll(exported);
    EXPECT_STATUS_OK(Reattach(strategy));
  }
  EXPECT_TRUE(DriverSynchronizes(small));
  for (uint64_t at = 0; at < 9 * kMiB; at += kMiB) EXPECT_TRUE(DriverSynchronizes(large + at)) << at;
  EXPECT_FALSE(DriverSynchronizes(other + 4 * kMiB));
  unsigned on = 99;
  EXPECT_CUDA_OK(PointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, neighbour));
  EXPECT_EQ(on, 0u);
}

TEST_F(MemoryTest, DriverCheckpointKeepsReservations) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  FillDevice(address, 5 * kMiB, 4);
  const Exported exported = ExportAll();
  EXPECT_STATUS_OK(Release(TaskStrategy::kDriverCheckpoint));
  EXPECT_EQ(Reattach(TaskStrategy::kDriverCheckpoint).code(), StatusCode::kFailedPrecondition);
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kDriverCheckpoint));
  EXPECT_EQ(ReadDevice(address, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 4));
}

TEST_F(MemoryTest, NothingMovesIntoTheAddressesOfReleasedMemory) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  const Exported exported = ExportAll();
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  void* const wanted = reinterpret_cast<void*>(address);
  void* const got = mmap(wanted, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(got, wanted);
  munmap(got, kPage);
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
}

// Somebody who maps a page into the last range that was given up, as soon as it is given up.
struct Thief {
  static void Steal(CUdeviceptr address) {
    page_ = mmap(reinterpret_cast<void*>(address), kPage, PROT_READ,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT_EQ(page_, reinterpret_cast<void*>(address));
  }
  static void Leave() { EXPECT_EQ(munmap(page_, kPage), 0); }
  static CUresult AddressFree(CUdeviceptr address, size_t size) {
    const CUresult result = address_free_(address, size);
    Steal(address);
    return result;
  }
  static CUresult AddressReserve(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint,
                                 unsigned long long flags) {
    Steal(hint);
    return address_reserve_(out, size, alignment, hint, flags);
  }
  static CUresult AddressReserveAndLeave(CUdeviceptr* out, size_t size, size_t alignment, CUdeviceptr hint,
                                         unsigned long long flags) {
    const CUresult result = AddressReserve(out, size, alignment, hint, flags);
    Leave();
    return result;
  }
  static inline void* page_ = nullptr;
  static inline decltype(&cuMemAddressFree) address_free_ = nullptr;
  static inline decltype(&cuMemAddressReserve) address_reserve_ = nullptr;
};

TEST_F(MemoryTest, AnAddressStolenAtReleaseIsAnErrorThatNamesTheThief) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  FillDevice(address, 5 * kMiB, 9);
  const Exported exported = ExportAll();
  Thief::address_free_ = std::exchange(internal::g_driver.cuMemAddressFree, &Thief::AddressFree);
  const Status released = Release(TaskStrategy::kReconstruct);
  internal::g_driver.cuMemAddressFree = Thief::address_free_;
  EXPECT_EQ(released.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(released.message(), testing::ContainsRegex("there is [0-9a-f]+-[0-9a-f]+ r--p"));
  // The thief's page is his: nothing of ours unmaps it.
  EXPECT_EQ(ImportExtent(exported.extents[0], exported.fds[0].Duplicate()).code(),
            StatusCode::kAlreadyExists);
  const uint64_t page = RoundDown(address, kPage);
  EXPECT_TRUE(MappedAddresses().Contains({page, page + kPage}));
  Thief::Leave();
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_EQ(ReadDevice(address, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 9));
}

TEST_F(MemoryTest, AnAddressStolenAtImportIsAnErrorThatNamesTheThief) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  FillDevice(address, 5 * kMiB, 9);
  const Exported exported = ExportAll();
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  Thief::address_reserve_ = std::exchange(internal::g_driver.cuMemAddressReserve, &Thief::AddressReserve);
  const Status imported = ImportExtent(exported.extents[0], exported.fds[0].Duplicate());
  internal::g_driver.cuMemAddressReserve = Thief::address_reserve_;
  EXPECT_EQ(imported.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(imported.message(), testing::ContainsRegex("there is [0-9a-f]+-[0-9a-f]+ r--p"));
  Thief::Leave();
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_EQ(ReadDevice(address, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 9));
}

// A mapping may be in the way and gone before anybody can look who it was.
TEST_F(MemoryTest, AThiefWhoHasGoneIsNotTakenForARefusalOfTheDriver) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  FillDevice(address, 5 * kMiB, 9);
  const Exported exported = ExportAll();
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  Thief::address_reserve_ =
      std::exchange(internal::g_driver.cuMemAddressReserve, &Thief::AddressReserveAndLeave);
  const Status imported = ImportExtent(exported.extents[0], exported.fds[0].Duplicate());
  internal::g_driver.cuMemAddressReserve = Thief::address_reserve_;
  EXPECT_EQ(imported.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(imported.message(), testing::HasSubstr("whoever was there has gone"));
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_EQ(ReadDevice(address, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 9));
}

TEST_F(MemoryTest, FailuresOfTheDriverLeaveEverythingIntact) {
  const CUdeviceptr first = Allocate(3 * kMiB);
  FillDevice(first, 3 * kMiB, 5);
  for (int good = 0; good < 3; ++good) {
    TestNode::Fault("oom-after=" + std::to_string(good));
    std::vector<CUdeviceptr> live;
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS) {
      CUdeviceptr address = 0;
      result = Memory::Get().Allocate(&address, 5 * kMiB);
      if (result == CUDA_SUCCESS) live.push_back(address);
    }
    EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    TestNode::Fault("none");
    for (CUdeviceptr address : live) EXPECT_CUDA_OK(Memory::Get().Free(address));
    EXPECT_LE(ExtentBytes(), 6 * kMiB);
    EXPECT_EQ(ReadDevice(first, 3 * kMiB), std::vector<unsigned char>(3 * kMiB, 5));
  }
}

TEST_F(MemoryTest, AFailedImportCanBeTriedAgain) {
  const CUdeviceptr address = Allocate(5 * kMiB);
  FillDevice(address, 5 * kMiB, 6);
  const Exported exported = ExportAll();
  ASSERT_EQ(exported.extents.size(), 2u);
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  EXPECT_STATUS_OK(ImportExtent(exported.extents[0], exported.fds[0].Duplicate()));
  EXPECT_FALSE(ImportExtent(exported.extents[0], exported.fds[0].Duplicate()).ok());
  EXPECT_FALSE(ImportExtent(exported.extents[1], Fd()).ok());
  TaskExtent wrong = exported.extents[1];
  wrong.size += kPage;
  EXPECT_EQ(ImportExtent(wrong, exported.fds[1].Duplicate()).code(), StatusCode::kNotFound);
  EXPECT_EQ(Reattach(TaskStrategy::kReconstruct).code(), StatusCode::kFailedPrecondition);
  DropDriverAndComeBack(exported);
  EXPECT_EQ(ReadDevice(address, 5 * kMiB), std::vector<unsigned char>(5 * kMiB, 6));
}

TEST_F(MemoryTest, PeersReachMemoryOfBeforeAndAfterAndAcrossAPause) {
  other_ = OpenOn(1);
  EXPECT_CUDA_OK(Driver().cuCtxSetCurrent(context_));
  const CUdeviceptr before = Allocate(kMiB);
  const auto rights = [](CUdeviceptr address) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = 1;
    unsigned long long flags = 0;
    EXPECT_CUDA_OK(Driver().cuMemGetAccess(&flags, &location, RoundDown(address, kPage)));
    return flags;
  };
  EXPECT_EQ(rights(before), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_CUDA_OK(Memory::Get().EnablePeer(other_, 1, context_));
  EXPECT_EQ(rights(before), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const CUdeviceptr after = Allocate(4 * kMiB);
  EXPECT_EQ(rights(after), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  const Exported exported = ExportAll();
  EXPECT_STATUS_OK(Release(TaskStrategy::kReconstruct));
  ImportAll(exported);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_EQ(rights(before), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  Memory::Get().DisablePeer(other_, context_);
  EXPECT_EQ(rights(before), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(rights(after), CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(MemoryTest, ThreadsAllocateAndFreeAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      ASSERT_CUDA_OK(Driver().cuCtxSetCurrent(context_));
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<std::pair<CUdeviceptr, size_t>> live;
      for (int i = 0; i < 300; ++i) {
        if (live.size() < 10 && random() % 2 == 0) {
          const size_t size = 1 + random() % (3 * kMiB);
          CUdeviceptr address = 0;
          ASSERT_CUDA_OK(Memory::Get().Allocate(&address, size));
          FillDevice(address, size, static_cast<unsigned char>(t));
          live.emplace_back(address, size);
        } else if (!live.empty()) {
          const auto [address, size] = live.back();
          live.pop_back();
          ASSERT_EQ(ReadDevice(address, size),
                    std::vector<unsigned char>(size, static_cast<unsigned char>(t)));
          ASSERT_CUDA_OK(Memory::Get().Free(address));
        }
      }
      for (const auto& [address, size] : live) ASSERT_CUDA_OK(Memory::Get().Free(address));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ExtentBytes(), kPage);
}

// Exactly one of many threads that free the same address succeeds.
TEST_F(MemoryTest, OneFreeOfManyWins) {
  for (int round = 0; round < 20; ++round) {
    const CUdeviceptr address = Allocate(kMiB);
    std::atomic<int> won{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        ASSERT_CUDA_OK(Driver().cuCtxSetCurrent(context_));
        won += Memory::Get().Free(address) == CUDA_SUCCESS;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(won, 1);
  }
}

}  // namespace
}  // namespace stasis::vmm

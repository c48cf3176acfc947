// The program's own virtual memory on the software device's driver.
#include "vmm/virtual_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "vmm/hold.h"
#include "vmm/memory.h"
#include "vmm/pause.h"
#include "vmm/pointer_query.h"
#include "vmm/testing.h"

namespace stasis::vmm {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kUnit = 2 * kMiB;

class VirtualMemoryTest : public testing::Test {
 protected:
  VirtualMemoryTest() : node_({"--gpus", "2", "--memory", "1GiB"}) { OpenOn(0); }
  ~VirtualMemoryTest() override {
    EXPECT_TRUE(Extents().empty());
    CloseAll(2);
  }

  static CUmemAllocationProp OnDevice(int device) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    return prop;
  }
  static CUmemGenericAllocationHandle Create(uint64_t size, const CUmemAllocationProp& prop = OnDevice(0)) {
    CUmemGenericAllocationHandle handle = 0;
    bool carried = false;
    EXPECT_CUDA_OK(own().Create(&handle, size, &prop, 0, &carried));
    EXPECT_TRUE(carried);
    return handle;
  }
  static CUdeviceptr Reserve(uint64_t size) {
    CUdeviceptr address = 0;
    EXPECT_CUDA_OK(own().Reserve(&address, size, 0, 0, 0));
    return address;
  }
  static void Allow(CUdeviceptr address, uint64_t size,
                    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
                    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    CUmemAccessDesc access{};
    access.location = location;
    access.flags = flags;
    bool exact = false;
    EXPECT_CUDA_OK(own().SetAccess(address, size, &access, 1, &exact));
    EXPECT_TRUE(exact);
  }
  static void MapAt(CUdeviceptr address, uint64_t size, CUmemGenericAllocationHandle handle) {
    EXPECT_CUDA_OK(own().Map(address, size, 0, handle, 0));
    Allow(address, size);
  }
  static bool HoldsValue(CUdeviceptr address, uint64_t size, unsigned char value) {
    return ReadDevice(address, size) == std::vector<unsigned char>(size, value);
  }
  static unsigned long long Rights(CUdeviceptr address, int device) {
    unsigned long long flags = ~0ull;
    const CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    EXPECT_CUDA_OK(own().GetAccess(&flags, &location, address));
    return flags;
  }
  // What a pause does, up to a new driver, and back.
  static void PauseAndResume(TaskStrategy strategy = TaskStrategy::kReconstruct) {
    Settle();
    const Exported exported = ExportAll();
    EXPECT_STATUS_OK(vmm::Release(strategy));
    if (strategy == TaskStrategy::kReconstruct) {
      CloseAll(2);
      OpenOn(0);
    }
    ImportAll(exported);
    EXPECT_STATUS_OK(Reattach(strategy));
  }
  static VirtualMemory& own() { return VirtualMemory::Get(); }

  TestNode node_;
};

// PyTorch's expandable segments: a large range, filled unit by unit and emptied from its end.
TEST_F(VirtualMemoryTest, ARangeThatGrowsAndShrinksComesBackAsItWas) {
  const CUdeviceptr base = Reserve(256 * kMiB);
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < 4; ++i) {
    handles.push_back(Create(20 * kMiB));
    MapAt(base + i * 20 * kMiB, 20 * kMiB, handles.back());
    FillDevice(base + i * 20 * kMiB, 20 * kMiB, static_cast<unsigned char>(i + 1));
  }
  EXPECT_CUDA_OK(own().Unmap(base + 60 * kMiB, 20 * kMiB));
  EXPECT_CUDA_OK(own().Release(handles[3]));
  EXPECT_CUDA_OK(own().Unmap(base + 20 * kMiB, 20 * kMiB));  // a hole; the handle goes elsewhere
  MapAt(base + 100 * kMiB, 20 * kMiB, handles[1]);
  for (const TaskStrategy strategy : {TaskStrategy::kReconstruct, TaskStrategy::kDriverCheckpoint}) {
    PauseAndResume(strategy);
    EXPECT_TRUE(HoldsValue(base, 20 * kMiB, 1));
    EXPECT_TRUE(HoldsValue(base + 40 * kMiB, 20 * kMiB, 3));
    EXPECT_TRUE(HoldsValue(base + 100 * kMiB, 20 * kMiB, 2));
  }
  // It goes on growing where the hole is.
  const CUmemGenericAllocationHandle more = Create(20 * kMiB);
  MapAt(base + 20 * kMiB, 20 * kMiB, more);
  EXPECT_CUDA_OK(own().Unmap(base, 60 * kMiB));
  EXPECT_CUDA_OK(own().Unmap(base + 100 * kMiB, 20 * kMiB));
  for (const CUmemGenericAllocationHandle handle : {handles[0], handles[1], handles[2], more})
    EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Unreserve(base, 256 * kMiB));
}

TEST_F(VirtualMemoryTest, OneHandleAtTwoAddressesIsOneExtent) {
  const CUdeviceptr a = Reserve(kUnit), b = Reserve(2 * kUnit);
  const CUmemGenericAllocationHandle handle = Create(kUnit);
  MapAt(a, kUnit, handle);
  MapAt(b + kUnit, kUnit, handle);
  FillDevice(a, kUnit, 5);
  Settle();
  EXPECT_EQ(Extents().size(), 1u);
  PauseAndResume();
  EXPECT_TRUE(HoldsValue(b + kUnit, kUnit, 5));
  FillDevice(b + kUnit, kUnit, 6);
  EXPECT_TRUE(HoldsValue(a, kUnit, 6));
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Unmap(a, kUnit));
  EXPECT_EQ(Extents().size(), 1u);
  EXPECT_CUDA_OK(own().Unmap(b + kUnit, kUnit));
  EXPECT_TRUE(Extents().empty());
  EXPECT_CUDA_OK(own().Unreserve(a, kUnit));
  EXPECT_CUDA_OK(own().Unreserve(b, 2 * kUnit));
}

TEST_F(VirtualMemoryTest, MemoryThatIsMappedNowhereOrInPartKeepsItsContents) {
  const CUdeviceptr base = Reserve(8 * kUnit);
  const CUmemGenericAllocationHandle idle = Create(2 * kUnit), part = Create(3 * kUnit);
  MapAt(base, 2 * kUnit, idle);
  FillDevice(base, 2 * kUnit, 7);
  EXPECT_CUDA_OK(own().Unmap(base, 2 * kUnit));
  MapAt(base + 4 * kUnit, 3 * kUnit, part);
  FillDevice(base + 4 * kUnit, 3 * kUnit, 8);
  EXPECT_CUDA_OK(own().Unmap(base + 4 * kUnit, 3 * kUnit));
  MapAt(base, kUnit, part);
  MapAt(base + kUnit, kUnit, part);  // an alias of the same part
  Settle();
  for (const TaskExtent& extent : Extents()) EXPECT_GE(extent.address, kTaskUnmappedBase);
  PauseAndResume();
  EXPECT_TRUE(HoldsValue(base, 2 * kUnit, 8));
  EXPECT_CUDA_OK(own().Unmap(base, 2 * kUnit));
  MapAt(base, 2 * kUnit, idle);
  MapAt(base + 2 * kUnit, 3 * kUnit, part);
  EXPECT_TRUE(HoldsValue(base, 2 * kUnit, 7));
  EXPECT_TRUE(HoldsValue(base + 2 * kUnit, 3 * kUnit, 8));
  EXPECT_CUDA_OK(own().Unmap(base, 5 * kUnit));
  EXPECT_CUDA_OK(own().Release(idle));
  EXPECT_CUDA_OK(own().Release(part));
  EXPECT_CUDA_OK(own().Unreserve(base, 8 * kUnit));
}

TEST_F(VirtualMemoryTest, AHandleReleasedWhileMappedIsNoneAndCanBeRetained) {
  const CUdeviceptr base = Reserve(kUnit);
  const CUmemGenericAllocationHandle handle = Create(kUnit);
  MapAt(base, kUnit, handle);
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_EQ(own().Release(handle), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp prop{};
  EXPECT_EQ(own().GetProperties(&prop, handle), CUDA_ERROR_INVALID_VALUE);
  PauseAndResume();
  CUmemGenericAllocationHandle again = 0;
  EXPECT_CUDA_OK(own().Retain(&again, reinterpret_cast<void*>(base + 4096)));
  EXPECT_EQ(again, handle);
  EXPECT_CUDA_OK(own().GetProperties(&prop, handle));
  EXPECT_CUDA_OK(own().Unmap(base, kUnit));
  EXPECT_EQ(Extents().size(), 1u);
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_EQ(own().Retain(&again, reinterpret_cast<void*>(base)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA_OK(own().Unreserve(base, kUnit));
}

TEST_F(VirtualMemoryTest, HandlesStayWhatTheyWereAndNewOnesAreNoneOfThem) {
  std::vector<CUmemGenericAllocationHandle> known;
  for (int i = 0; i < 8; ++i) known.push_back(Create(kUnit));
  PauseAndResume();
  for (int i = 0; i < 32; ++i) {
    const CUmemGenericAllocationHandle handle = Create(kUnit);
    EXPECT_EQ(std::count(known.begin(), known.end(), handle), 0);
    known.push_back(handle);
  }
  for (const CUmemGenericAllocationHandle handle : known) {
    CUmemAllocationProp prop{};
    EXPECT_CUDA_OK(own().GetProperties(&prop, handle));
    EXPECT_CUDA_OK(own().Release(handle));
  }
}

TEST_F(VirtualMemoryTest, PropertiesAreThoseThatTheProgramAskedFor) {
  CUmemAllocationProp wish = OnDevice(1);
  wish.allocFlags.gpuDirectRDMACapable = 1;
  const CUmemGenericAllocationHandle handle = Create(kUnit, wish);
  EXPECT_EQ(Extents()[0].traits, kTraitRdma);
  for (int round = 0; round < 2; ++round) {
    CUmemAllocationProp prop{};
    EXPECT_CUDA_OK(own().GetProperties(&prop, handle));
    EXPECT_EQ(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    EXPECT_EQ(prop.location.id, 1);
    EXPECT_EQ(prop.allocFlags.gpuDirectRDMACapable, 1);
    PauseAndResume();
  }
  EXPECT_CUDA_OK(own().Release(handle));
}

TEST_F(VirtualMemoryTest, RightsOfEachDeviceComeBack) {
  const CUdeviceptr base = Reserve(3 * kUnit);
  std::vector<CUmemGenericAllocationHandle> handles;
  for (int i = 0; i < 3; ++i) {
    handles.push_back(Create(kUnit, OnDevice(i % 2)));
    EXPECT_CUDA_OK(own().Map(base + i * kUnit, kUnit, 0, handles.back(), 0));
  }
  Allow(base, 2 * kUnit);
  Allow(base + kUnit, kUnit, {CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_READ);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(Rights(base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    EXPECT_EQ(Rights(base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    EXPECT_EQ(Rights(base + kUnit, 1), CU_MEM_ACCESS_FLAGS_PROT_READ);
    EXPECT_EQ(Rights(base + 2 * kUnit, 0), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    PauseAndResume(round == 0 ? TaskStrategy::kReconstruct : TaskStrategy::kDriverCheckpoint);
  }
  EXPECT_CUDA_OK(own().Unmap(base, 3 * kUnit));
  for (const CUmemGenericAllocationHandle handle : handles) EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Unreserve(base, 3 * kUnit));
}

TEST_F(VirtualMemoryTest, MemoryOfTheHostIsCarriedByTheProcess) {
  CUmemAllocationProp wish = OnDevice(0);
  wish.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  const CUmemGenericAllocationHandle handle = Create(2 * kUnit, wish), idle = Create(kUnit, wish);
  const CUdeviceptr base = Reserve(2 * kUnit);
  EXPECT_CUDA_OK(own().Map(base, 2 * kUnit, 0, handle, 0));
  Allow(base, 2 * kUnit, wish.location);
  Allow(base, 2 * kUnit);
  FillDevice(base, 2 * kUnit, 9);
  EXPECT_TRUE(Extents().empty());
  for (const TaskStrategy strategy : {TaskStrategy::kReconstruct, TaskStrategy::kDriverCheckpoint}) {
    PauseAndResume(strategy);
    EXPECT_TRUE(HoldsValue(base, 2 * kUnit, 9));
    EXPECT_EQ(*reinterpret_cast<unsigned char*>(base + 12345), 9);
  }
  EXPECT_CUDA_OK(own().Unmap(base, 2 * kUnit));
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Release(idle));
  EXPECT_CUDA_OK(own().Unreserve(base, 2 * kUnit));
}

// Takes what is given back before we can hold it; all of it, so that nobody else takes the rest meanwhile.
decltype(&cuMemAddressFree) real_address_free = nullptr;
void* stolen = nullptr;
size_t stolen_size = 0;
CUresult StealingAddressFree(CUdeviceptr address, size_t size) {
  const CUresult result = real_address_free(address, size);
  stolen = mmap(reinterpret_cast<void*>(address), size, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  stolen_size = size;
  return result;
}

TEST_F(VirtualMemoryTest, AnAddressThatIsTakenFailsLoudlyAndAnotherAttemptSucceeds) {
  const CUdeviceptr base = Reserve(4 * kUnit);
  const CUmemGenericAllocationHandle handle = Create(kUnit);
  MapAt(base + kUnit, kUnit, handle);
  FillDevice(base + kUnit, kUnit, 3);
  Settle();
  const Exported exported = ExportAll();
  real_address_free = std::exchange(internal::g_driver.cuMemAddressFree, &StealingAddressFree);
  EXPECT_EQ(vmm::Release(TaskStrategy::kReconstruct).code(), StatusCode::kAlreadyExists);
  CloseAll(2);
  OpenOn(0);
  ImportAll(exported);
  const Status taken = Reattach(TaskStrategy::kReconstruct);
  EXPECT_EQ(taken.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(std::string(taken.message()).find("cannot come back to its address"), std::string::npos);
  (void)vmm::Release(TaskStrategy::kReconstruct);
  CloseAll(2);
  OpenOn(0);
  ImportAll(exported);
  munmap(stolen, stolen_size);
  EXPECT_STATUS_OK(Reattach(TaskStrategy::kReconstruct));
  EXPECT_TRUE(HoldsValue(base + kUnit, kUnit, 3));
  EXPECT_CUDA_OK(own().Unmap(base + kUnit, kUnit));
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Unreserve(base, 4 * kUnit));
}

TEST_F(VirtualMemoryTest, WhatPointersSayStaysTheSame) {
  const CUdeviceptr base = Reserve(kUnit);
  const CUmemGenericAllocationHandle handle = Create(kUnit);
  MapAt(base, kUnit, handle);
  unsigned long long block = 0, buffer = 0, types = 99;
  EXPECT_CUDA_OK(PointerGetAttribute(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, base));
  EXPECT_CUDA_OK(PointerGetAttribute(&buffer, CU_POINTER_ATTRIBUTE_BUFFER_ID, base));
  EXPECT_CUDA_OK(PointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, base));
  EXPECT_EQ(types, 0u);
  unsigned on = 1;
  EXPECT_CUDA_OK(PointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base + 5));
  PauseAndResume();
  on = 0;
  EXPECT_CUDA_OK(Driver().cuPointerGetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, base));
  EXPECT_EQ(on, 1u);
  unsigned long long now = 0;
  EXPECT_CUDA_OK(PointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, base));
  EXPECT_EQ(now, block);
  EXPECT_CUDA_OK(PointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_BUFFER_ID, base));
  EXPECT_EQ(now, buffer);
  EXPECT_CUDA_OK(own().Unmap(base, kUnit));
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Unreserve(base, kUnit));
}

TEST_F(VirtualMemoryTest, PlainMemoryIsNoneOfIt) {
  CUdeviceptr plain = 0;
  EXPECT_CUDA_OK(Memory::Get().Allocate(&plain, 4 * kUnit));
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(own().Retain(&handle, reinterpret_cast<void*>(plain)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own().Unmap(plain, kUnit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(own().Unreserve(plain, 4 * kUnit), CUDA_ERROR_INVALID_VALUE);
  bool exact = false;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(own().SetAccess(plain, kUnit, &access, 1, &exact), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA_OK(Memory::Get().Free(plain));
  CUcontext context = nullptr;
  EXPECT_CUDA_OK(Driver().cuCtxGetCurrent(&context));
  Memory::Get().ContextGone(context);
}

TEST_F(VirtualMemoryTest, NothingIsLeftOverManyPauses) {
  const CUdeviceptr base = Reserve(32 * kUnit);
  CUmemAllocationProp host = OnDevice(0);
  host.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  const CUmemGenericAllocationHandle handle = Create(kUnit), on_host = Create(kUnit, host);
  MapAt(base, kUnit, handle);
  MapAt(base + kUnit, kUnit, handle);
  MapAt(base + 2 * kUnit, kUnit, on_host);
  PauseAndResume();
  const size_t descriptors = OpenDescriptors(), free_bytes = DriverFreeBytes();
  const size_t mappings = MappedAddresses().ranges().size();
  for (int i = 0; i < 100; ++i)
    PauseAndResume(i % 2 == 0 ? TaskStrategy::kDriverCheckpoint : TaskStrategy::kReconstruct);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  EXPECT_EQ(DriverFreeBytes(), free_bytes);
  // A mapping that each pause of one kind left would be fifty; a sanitizer maps some of its own.
  EXPECT_LE(MappedAddresses().ranges().size(), mappings + 40);
  EXPECT_CUDA_OK(own().Unmap(base, 3 * kUnit));
  EXPECT_CUDA_OK(own().Release(handle));
  EXPECT_CUDA_OK(own().Release(on_host));
  EXPECT_CUDA_OK(own().Unreserve(base, 32 * kUnit));
}

}  // namespace
}  // namespace stasis::vmm

// The memory calls of the driver API, each rule by itself.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "3", "--memory", "64MiB", "--topology", "0-1"};

namespace {

constexpr size_t kPage = 2 << 20;

class Api : public testing::Test {
 protected:
  void SetUp() override { context_ = UseDevice(0); }
  void TearDown() override {
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  }
  CUcontext context_ = nullptr;
};

CUdeviceptr Alloc(size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, bytes), CUDA_SUCCESS);
  return address;
}

TEST_F(Api, AllocationArgumentsAndStalePointers) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(&address, size_t{1} << 60), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  address = Alloc(5000);
  EXPECT_EQ(cuMemFree(address + 512), CUDA_ERROR_INVALID_VALUE) << "inside of an allocation";
  EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE) << "stale";
  EXPECT_EQ(cuMemFree(0x1234), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Api, CapacityIsEnforcedAndFreedMemoryIsBackAtOnce) {
  size_t free = 0, total = 0;
  ASSERT_EQ(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
  EXPECT_EQ(total, 64u << 20);
  EXPECT_EQ(free, total);
  CUdeviceptr most = Alloc(60 << 20), more = 0;
  EXPECT_EQ(FreeBytes(), 4u << 20);
  EXPECT_EQ(cuMemAlloc(&more, (4 << 20) + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&more, 4 << 20), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(most), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), 60u << 20);
  EXPECT_EQ(cuMemFree(more), CUDA_SUCCESS);
}

TEST_F(Api, ResetFreesWhatTheContextOwned) {
  CUdeviceptr address = Alloc(8 << 20);
  void* host = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&host, 100, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  UseDevice(0);
  EXPECT_EQ(FreeBytes(), 64u << 20);
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Api, PitchIsAlignedAndRangesAreTheBlocks) {
  CUdeviceptr address = 0, base = 0;
  size_t pitch = 0, size = 0;
  EXPECT_EQ(cuMemAllocPitch(&address, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAllocPitch(&address, &pitch, 1000, 10, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024u);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, address + 5000), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 10240u);
  EXPECT_EQ(cuMemGetAddressRange(&base, nullptr, address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAddressRange(&base, &size, 0x1000), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Api, FreeWaitsForTheKernelThatUsesTheMemory) {
  CUdeviceptr target = Alloc(64);
  void* host = nullptr;
  ASSERT_EQ(cuMemHostAlloc(&host, 8, 0), CUDA_SUCCESS);
  auto* flag = static_cast<uint32_t*>(host);
  *flag = 0;
  TestKernel spin(kTestPtx, "spin"), store(kTestPtx, "store");
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(spin.Launch({reinterpret_cast<uint64_t>(host)}, stream), CUDA_SUCCESS);
  ASSERT_EQ(store.Launch({target, 1}, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  std::thread release([flag, stream] {
    // The free below is under way or about to be; either way it may not end before this.
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_CONTEXT) << "no context in this thread";
    __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
  });
  EXPECT_EQ(cuMemFree(target), CUDA_SUCCESS);
  EXPECT_EQ(__atomic_load_n(flag, __ATOMIC_SEQ_CST), 1u);
  release.join();
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS) << "the store found its memory";
}

// --- Virtual memory management.

CUmemAllocationProp DeviceProp(int device = 0) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

CUmemAccessDesc Access(int device, CUmemAccess_flags flags) {
  return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

TEST_F(Api, ReservationsHonourFreeHintsAndAlignment) {
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(cuMemAddressReserve(&first, 16 * kPage, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(first % kPage, 0u);
  EXPECT_EQ(cuMemAddressReserve(&second, kPage, 0, first, 0), CUDA_SUCCESS);
  EXPECT_NE(second, first) << "taken: another one is returned";
  ASSERT_EQ(cuMemAddressFree(first, 16 * kPage), CUDA_SUCCESS);
  CUdeviceptr again = 0;
  EXPECT_EQ(cuMemAddressReserve(&again, 16 * kPage, 0, first, 0), CUDA_SUCCESS);
  EXPECT_EQ(again, first) << "free again: honoured at once";
  CUdeviceptr aligned = 0;
  EXPECT_EQ(cuMemAddressReserve(&aligned, kPage, size_t{1} << 30, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(aligned % (size_t{1} << 30), 0u);
  EXPECT_EQ(cuMemAddressReserve(&aligned, kPage, 3 * kPage, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&aligned, 100, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&aligned, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressReserve(&aligned, kPage, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAddressFree(again, kPage), CUDA_ERROR_INVALID_VALUE) << "sizes must match";
  EXPECT_EQ(cuMemAddressFree(again, 16 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAddressFree(again, 16 * kPage), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Api, HandlePropertiesAreChecked) {
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp prop = DeviceProp();
  EXPECT_EQ(cuMemCreate(&handle, kPage + 4096, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 1), CUDA_ERROR_INVALID_VALUE);
  prop.location.id = 9;
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
  prop = DeviceProp();
  prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE);
  prop = DeviceProp();
  prop.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  EXPECT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_ERROR_INVALID_VALUE) << "host memory is not exported";
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  ASSERT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), 64u << 20) << "host memory counts to no device";
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  prop = DeviceProp();
  EXPECT_EQ(cuMemCreate(&handle, 66 << 20, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
  size_t granularity = 0;
  EXPECT_EQ(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
            CUDA_SUCCESS);
  EXPECT_EQ(granularity, kPage);
}

TEST_F(Api, MappingRulesAndLifetimes) {
  CUmemAllocationProp prop = DeviceProp(), got{};
  CUmemGenericAllocationHandle handle = 0, retained = 0;
  CUdeviceptr base = 0;
  ASSERT_EQ(cuMemCreate(&handle, 2 * kPage, &prop, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemGetAllocationPropertiesFromHandle(&got, handle), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(&got, &prop, sizeof got), 0);
  ASSERT_EQ(cuMemAddressReserve(&base, 8 * kPage, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(base, 2 * kPage, kPage, handle, 0), CUDA_ERROR_INVALID_VALUE) << "offset must be zero";
  EXPECT_EQ(cuMemMap(base, 4 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "larger than the memory";
  EXPECT_EQ(cuMemMap(base + 4096, kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemMap(base + 7 * kPage, 2 * kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "over the end";
  ASSERT_EQ(cuMemMap(base, 2 * kPage, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemMap(base + kPage, kPage, 0, handle, 0), CUDA_ERROR_INVALID_VALUE) << "mapped already";
  EXPECT_EQ(cuMemAddressFree(base, 8 * kPage), CUDA_ERROR_INVALID_VALUE) << "something is mapped";
  EXPECT_EQ(cuMemUnmap(base, kPage), CUDA_ERROR_INVALID_VALUE) << "a part of a mapping";
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base + kPage + 8)), CUDA_SUCCESS);
  EXPECT_EQ(retained, handle);
  EXPECT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(retained), CUDA_SUCCESS);
  EXPECT_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(FreeBytes(), 60u << 20) << "lives while it is mapped";
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(base)), CUDA_SUCCESS);
  EXPECT_EQ(retained, handle) << "still the same handle";
  EXPECT_EQ(cuMemRelease(retained), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(base, 2 * kPage), CUDA_SUCCESS);
  EXPECT_EQ(cuMemUnmap(base, 2 * kPage), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(FreeBytes(), 64u << 20);
  EXPECT_EQ(cuMemAddressFree(base, 8 * kPage), CUDA_SUCCESS);
  CUdeviceptr plain = Alloc(4 << 20);
  EXPECT_EQ(cuMemRetainAllocationHandle(&retained, reinterpret_cast<void*>(plain)), CUDA_ERROR_INVALID_VALUE);
}

class Mapped : public Api {
 protected:
  void SetUp() override {
    Api::SetUp();
    CUmemAllocationProp prop = DeviceProp();
    CUmemGenericAllocationHandle handle = 0;
    ASSERT_EQ(cuMemCreate(&handle, kPage, &prop, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAddressReserve(&base_, kPage, 0, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemMap(base_, kPage, 0, handle, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemUnmap(base_, kPage), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(base_, kPage), CUDA_SUCCESS);
  }
  void Allow(CUmemAccess_flags flags) {
    CUmemAccessDesc desc = Access(0, flags);
    ASSERT_EQ(cuMemSetAccess(base_, kPage, &desc, 1), CUDA_SUCCESS);
  }
  CUdeviceptr base_ = 0;
};

TEST_F(Mapped, WithoutAccessAKernelFaultsAndTheErrorSticks) {
  TestKernel store(kTestPtx, "store");
  ASSERT_EQ(store.Launch({base_, 7}), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc(&more, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Mapped, ReadOnlyMemoryIsReadAndNotWritten) {
  Allow(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  TestKernel store(kTestPtx, "store"), load(kTestPtx, "load");
  CUdeviceptr out = Alloc(4);
  ASSERT_EQ(store.Launch({base_, 7}), CUDA_SUCCESS);
  Allow(CU_MEM_ACCESS_FLAGS_PROT_READ);
  unsigned long long flags = 0;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(cuMemGetAccess(&flags, &location, base_), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
  ASSERT_EQ(load.Launch({base_, out}), CUDA_SUCCESS);
  uint32_t value = 0;
  EXPECT_EQ(cuMemcpyDtoH(&value, out, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(cuMemcpyHtoD(base_, &value, 4), CUDA_ERROR_INVALID_VALUE) << "copies obey the rights, too";
  ASSERT_EQ(store.Launch({base_, 8}), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Mapped, AccessArgumentsAreChecked) {
  CUmemAccessDesc desc = Access(7, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(cuMemSetAccess(base_, kPage, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
  desc = Access(0, static_cast<CUmemAccess_flags>(2));
  EXPECT_EQ(cuMemSetAccess(base_, kPage, &desc, 1), CUDA_ERROR_INVALID_VALUE);
  desc = Access(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(cuMemSetAccess(base_, 2 * kPage, &desc, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemSetAccess(base_, kPage, &desc, 0), CUDA_ERROR_INVALID_VALUE);
  desc.location.type = CU_MEM_LOCATION_TYPE_HOST;
  EXPECT_EQ(cuMemSetAccess(base_, kPage, &desc, 1), CUDA_ERROR_INVALID_VALUE) << "device memory";
  unsigned long long flags = 9;
  CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(cuMemGetAccess(&flags, &location, base_), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
}

// --- Host memory.

TEST_F(Api, HostMemoryHasOneAddressForAll) {
  void* host = nullptr;
  EXPECT_EQ(cuMemHostAlloc(&host, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostAlloc(&host, 16, 0x100), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP),
            CUDA_SUCCESS);
  CUdeviceptr device = 0;
  unsigned flags = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer(&device, host, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  EXPECT_EQ(cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_WRITECOMBINED | CU_MEMHOSTALLOC_DEVICEMAP});
  TestKernel store(kTestPtx, "store");
  ASSERT_EQ(store.Launch({device + 8, 42}), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<uint32_t*>(host)[2], 42u);
  EXPECT_EQ(cuMemFreeHost(static_cast<char*>(host) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Api, RegisteredMemoryIsReachableUntilUnregistered) {
  std::vector<uint32_t> memory(5000, 0);
  char* bytes = reinterpret_cast<char*>(memory.data());
  size_t size = memory.size() * 4;
  EXPECT_EQ(cuMemHostUnregister(bytes), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemHostRegister(nullptr, 10, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(bytes, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemHostRegister(bytes, size, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister(bytes + 100, 16, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  TestKernel store(kTestPtx, "store");
  ASSERT_EQ(store.Launch({reinterpret_cast<uint64_t>(&memory[4999]), 5}), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(bytes), CUDA_SUCCESS) << "waits for the kernel";
  EXPECT_EQ(memory[4999], 5u);
  ASSERT_EQ(store.Launch({reinterpret_cast<uint64_t>(&memory[0]), 5}), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  UseDevice(0);
}

TEST_F(Api, MemoryThatIsNotThereOrReadOnlyCannotBeRegisteredForWriting) {
  void* hole = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(hole, MAP_FAILED);
  EXPECT_EQ(cuMemHostRegister(hole, 8192, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(hole, 8192, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostUnregister(hole), CUDA_SUCCESS);
  munmap(hole, 8192);
  EXPECT_EQ(cuMemHostRegister(hole, 8192, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_ERROR_INVALID_VALUE);
}

// --- Managed memory.

TEST_F(Api, ManagedMemoryIsSharedByHostAndKernels) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAllocManaged(&address, 16, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cuMemAllocManaged(&address, 100000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  TestKernel store(kTestPtx, "store");
  ASSERT_EQ(store.Launch({address + 4, 77}), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<uint32_t*>(address)[1], 77u);
  EXPECT_EQ(FreeBytes(), 64u << 20) << "it is counted to no device";
  CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, 0}, device{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(cuMemAdvise(address, 8192, CU_MEM_ADVISE_SET_READ_MOSTLY, host), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAdvise(address, 100000, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAdvise(address, 100000, CU_MEM_ADVISE_SET_ACCESSED_BY, device), CUDA_SUCCESS);
  int value = 0, list[3];
  auto ask = [&](CUmem_range_attribute attribute, size_t bytes) {
    EXPECT_EQ(cuMemRangeGetAttribute(&value, sizeof value, attribute, address, bytes), CUDA_SUCCESS);
    return value;
  };
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 8192), 1);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 8193), 0) << "not all of it";
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 100000), 1);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 100), CU_DEVICE_INVALID);
  EXPECT_EQ(cuMemPrefetchAsync(address, 100000, host, 0, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ask(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 100), CU_DEVICE_CPU);
  EXPECT_EQ(cuMemRangeGetAttribute(list, sizeof list, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(list[0], 1);
  EXPECT_EQ(list[1], CU_DEVICE_INVALID);
  CUdeviceptr plain = Alloc(100);
  EXPECT_EQ(cuMemPrefetchAsync(plain, 100, host, 0, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(address), CUDA_SUCCESS);
}

// --- Pointer attributes.

template <typename T>
T Attribute(CUpointer_attribute attribute, CUdeviceptr pointer) {
  T value{};
  EXPECT_EQ(cuPointerGetAttribute(&value, attribute, pointer), CUDA_SUCCESS) << attribute;
  return value;
}

TEST_F(Api, PointerAttributesOfEveryKindOfMemory) {
  CUdeviceptr plain = Alloc(3000), keeps_the_slab = Alloc(16), managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  void* host = nullptr;
  ASSERT_EQ(cuMemAllocHost(&host, 100), CUDA_SUCCESS);
  CUdeviceptr pinned = reinterpret_cast<CUdeviceptr>(host);
  EXPECT_EQ(Attribute<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, plain), context_);
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pinned), unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, managed), 1u);
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, plain), 0u);
  EXPECT_EQ(Attribute<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, pinned + 4), static_cast<char*>(host) + 4);
  void* nothing = host;
  EXPECT_EQ(cuPointerGetAttribute(&nothing, CU_POINTER_ATTRIBUTE_HOST_POINTER, plain),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Attribute<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, plain + 100), plain);
  EXPECT_EQ(Attribute<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, plain + 100), 3000u);
  EXPECT_EQ(Attribute<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, plain), 0);
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain), 1u);
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, plain), 1u);
  EXPECT_EQ(Attribute<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, plain),
            unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  auto id = Attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, plain);
  ASSERT_EQ(cuMemFree(plain), CUDA_SUCCESS);
  CUdeviceptr reused = Alloc(3000);
  EXPECT_EQ(reused, plain) << "a freed range may be handed out again at once";
  EXPECT_NE(Attribute<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, reused), id);
  EXPECT_EQ(cuMemFree(keeps_the_slab), CUDA_SUCCESS);
}

TEST_F(Api, UnknownPointersFailAloneAndAreNullsInLists) {
  int local = 0;
  CUdeviceptr pointer = reinterpret_cast<CUdeviceptr>(&local);
  CUcontext context = context_;
  EXPECT_EQ(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, pointer), CUDA_ERROR_INVALID_VALUE);
  unsigned type = 99, managed = 99;
  int ordinal = 99;
  CUdeviceptr device = 99;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* values[] = {&context, &type, &managed, &ordinal, &device};
  EXPECT_EQ(cuPointerGetAttributes(5, names, values, pointer), CUDA_SUCCESS);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(managed, 0u);
  EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
  EXPECT_EQ(device, 0u);
}

// --- Peers.

TEST_F(Api, PeersReachMemoryOnlyWhileEnabled) {
  CUdeviceptr mine = Alloc(64);
  CUcontext other = UseDevice(1), far = UseDevice(2);
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  ASSERT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(other, 0), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxDisablePeerAccess(context_), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  ASSERT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxEnablePeerAccess(context_, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  {
    TestKernel store(kTestPtx, "store");
    ASSERT_EQ(store.Launch({mine, 11}), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxDisablePeerAccess(context_), CUDA_SUCCESS);
    uint32_t value = 0;
    EXPECT_EQ(cuMemcpyDtoH(&value, mine, 4), CUDA_SUCCESS) << "copies need no peer access";
    EXPECT_EQ(value, 11u);
    ASSERT_EQ(store.Launch({mine, 12}), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxReset(2), CUDA_SUCCESS);
  EXPECT_NE(far, nullptr);
  UseDevice(0);
}

// --- Arrays and textures.

TEST_F(Api, ArraysAndTextureObjectsKeepTheirDescriptions) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 10;
  desc.Height = 5;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 3;
  CUarray array = nullptr;
  EXPECT_EQ(cuArray3DCreate(&array, &desc), CUDA_ERROR_INVALID_VALUE) << "three channels";
  desc.NumChannels = 2;
  ASSERT_EQ(cuArray3DCreate(&array, &desc), CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR got{};
  EXPECT_EQ(cuArray3DGetDescriptor(&got, array), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(&got, &desc, sizeof got), 0);
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUDA_TEXTURE_DESC texture{};
  CUtexObject object = 0;
  ASSERT_EQ(cuTexObjectCreate(&object, &resource, &texture, nullptr), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC described{};
  EXPECT_EQ(cuTexObjectGetResourceDesc(&described, object), CUDA_SUCCESS);
  EXPECT_EQ(described.res.array.hArray, array);
  CUsurfObject surface = 0;
  EXPECT_EQ(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE) << "not made for surfaces";
  EXPECT_EQ(cuTexObjectDestroy(object), CUDA_SUCCESS);
  EXPECT_EQ(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(FreeBytes(), 64u << 20);
}

TEST_F(Api, MipmapLevelsHalveAndAreOwnedByTheWhole) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 16;
  desc.Height = 4;
  desc.Format = CU_AD_FORMAT_UNSIGNED_INT8;
  desc.NumChannels = 1;
  CUmipmappedArray mipmap = nullptr;
  ASSERT_EQ(cuMipmappedArrayCreate(&mipmap, &desc, 100), CUDA_SUCCESS);
  CUarray level = nullptr;
  ASSERT_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 3), CUDA_SUCCESS);
  CUDA_ARRAY3D_DESCRIPTOR got{};
  ASSERT_EQ(cuArray3DGetDescriptor(&got, level), CUDA_SUCCESS);
  EXPECT_EQ(got.Width, 2u);
  EXPECT_EQ(got.Height, 1u);
  EXPECT_EQ(cuMipmappedArrayGetLevel(&level, mipmap, 5), CUDA_ERROR_INVALID_VALUE) << "five levels in all";
  EXPECT_EQ(cuArrayDestroy(level), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
  EXPECT_EQ(cuArray3DGetDescriptor(&got, level), CUDA_ERROR_INVALID_HANDLE);
}

// Kernels and programs keep the numbers: a program that makes the same objects gets the same ones.
TEST_F(Api, TextureObjectsTakeTheLowestFreeNumberOfTheirContext) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 8;
  desc.Height = 8;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 1;
  desc.Flags = CUDA_ARRAY3D_SURFACE_LDST;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  ASSERT_EQ(cuArray3DCreate(&resource.res.array.hArray, &desc), CUDA_SUCCESS);
  const CUDA_TEXTURE_DESC texture{};
  CUtexObject one = 0, three = 0, again = 0, other = 0;
  CUsurfObject two = 0;
  ASSERT_EQ(cuTexObjectCreate(&one, &resource, &texture, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuSurfObjectCreate(&two, &resource), CUDA_SUCCESS);
  ASSERT_EQ(cuTexObjectCreate(&three, &resource, &texture, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(one, 1u);
  EXPECT_EQ(two, 2u);
  EXPECT_EQ(three, 3u);
  EXPECT_EQ(cuTexObjectDestroy(two), CUDA_ERROR_INVALID_VALUE) << "a surface";
  EXPECT_EQ(cuTexObjectDestroy(one), CUDA_SUCCESS);
  EXPECT_EQ(cuSurfObjectDestroy(two), CUDA_SUCCESS);
  ASSERT_EQ(cuTexObjectCreate(&again, &resource, &texture, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(again, 1u);
  UseDevice(1);
  CUDA_RESOURCE_DESC elsewhere = resource;
  ASSERT_EQ(cuArray3DCreate(&elsewhere.res.array.hArray, &desc), CUDA_SUCCESS);
  ASSERT_EQ(cuTexObjectCreate(&other, &elsewhere, &texture, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(other, 1u);
  EXPECT_EQ(cuTexObjectDestroy(three), CUDA_ERROR_INVALID_VALUE) << "of the other context";
  EXPECT_EQ(cuDevicePrimaryCtxReset(1), CUDA_SUCCESS);
  UseDevice(0);
  EXPECT_EQ(cuTexObjectDestroy(three), CUDA_SUCCESS);
  EXPECT_EQ(cuTexObjectDestroy(again), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(resource.res.array.hArray), CUDA_SUCCESS);
}

TEST_F(Api, ViewsOfArraysSayWhatTheyShow) {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  desc.Width = 8;
  desc.Height = 4;
  desc.Format = CU_AD_FORMAT_FLOAT;
  desc.NumChannels = 1;
  CUDA_RESOURCE_DESC resource{};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  ASSERT_EQ(cuMipmappedArrayCreate(&resource.res.mipmap.hMipmappedArray, &desc, 3), CUDA_SUCCESS);
  const CUDA_TEXTURE_DESC texture{};
  CUDA_RESOURCE_VIEW_DESC view{};
  view.format = CU_RES_VIEW_FORMAT_UINT_1X32;
  view.width = 8;
  view.height = 4;
  view.firstMipmapLevel = 1;
  view.lastMipmapLevel = 2;
  CUtexObject object = 0;
  ASSERT_EQ(cuTexObjectCreate(&object, &resource, &texture, &view), CUDA_SUCCESS);
  CUDA_RESOURCE_VIEW_DESC got{};
  EXPECT_EQ(cuTexObjectGetResourceViewDesc(&got, object), CUDA_SUCCESS);
  EXPECT_EQ(memcmp(&got, &view, sizeof got), 0);
  EXPECT_EQ(cuTexObjectDestroy(object), CUDA_SUCCESS);
  const auto refused = [&](auto change) {
    CUDA_RESOURCE_VIEW_DESC wrong = view;
    change(&wrong);
    return cuTexObjectCreate(&object, &resource, &texture, &wrong) == CUDA_ERROR_INVALID_VALUE;
  };
  EXPECT_TRUE(refused([](CUDA_RESOURCE_VIEW_DESC* v) { v->lastMipmapLevel = 3; }));
  EXPECT_TRUE(refused([](CUDA_RESOURCE_VIEW_DESC* v) { v->width = 4; }));
  EXPECT_TRUE(refused([](CUDA_RESOURCE_VIEW_DESC* v) { v->format = CU_RES_VIEW_FORMAT_UINT_2X32; }));
  EXPECT_TRUE(refused([](CUDA_RESOURCE_VIEW_DESC* v) { v->format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1; }));
  EXPECT_EQ(cuMipmappedArrayDestroy(resource.res.mipmap.hMipmappedArray), CUDA_SUCCESS);
}

// A program that loads the same code again finds its variables where they were, whatever else it allocated
// meanwhile.
TEST_F(Api, ModulesLieFirstFitInAWindowOfTheirOwn) {
  const char code[] = ".version 8.0\n.target sm_75\n.address_size 64\n.global .u32 word;\n";
  auto load = [&](CUmodule* module) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuModuleLoadData(module, code), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleGetGlobal(&address, nullptr, *module, "word"), CUDA_SUCCESS);
    return address;
  };
  CUmodule a, b, c;
  const CUdeviceptr first = load(&a), second = load(&b);
  EXPECT_NE(first, second);
  EXPECT_EQ(cuModuleUnload(a), CUDA_SUCCESS);
  const CUdeviceptr between = Alloc(4096), large = Alloc(4 << 20);
  EXPECT_EQ(load(&a), first);
  EXPECT_EQ(cuModuleUnload(b), CUDA_SUCCESS);
  // A place that is taken is passed over.
  void* taken = mmap(reinterpret_cast<void*>(second), kPage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(taken, reinterpret_cast<void*>(second));
  EXPECT_NE(load(&b), second);
  EXPECT_EQ(munmap(taken, kPage), 0);
  EXPECT_EQ(load(&c), second);
  for (CUmodule module : {a, b, c}) EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(between), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree(large), CUDA_SUCCESS);
}

}  // namespace
}  // namespace softgpu

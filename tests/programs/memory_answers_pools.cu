// Memory pools: attributes, access, which is the current one of a device, and their blocks.
#include <cstdio>
#include <string>
#include <vector>

#include "memory_answers.h"

namespace answers {
namespace {

constexpr CUmemPool_attribute kFlags[] = {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                          CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                          CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES};
constexpr CUmemPool_attribute kNumbers[] = {
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
    CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH};

struct Pool {
  const char* name;
  int device;
  CUmemoryPool handle;
  size_t limit;       // 0: none
  CUdeviceptr block;  // 4 MiB
};

std::vector<Pool> pools;
CUstream streams[2];

CUmemLocation On(int device) { return {CU_MEM_LOCATION_TYPE_DEVICE, device}; }

const char* NameOf(CUmemoryPool handle) {
  for (const Pool& pool : pools)
    if (pool.handle == handle) return pool.name;
  return "another";
}

void AddPool(const char* name, int device, size_t limit) {
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = On(device);
  props.maxSize = limit;
  Pool pool = {name, device, nullptr, limit, 0};
  Say(name, CU(cuMemPoolCreate)(&pool.handle, &props));
  pools.push_back(pool);
}

void AddDefault(const char* name, int device) {
  Pool pool = {name, device, nullptr, 0, 0};
  Say(name, CU(cuDeviceGetDefaultMemPool)(&pool.handle, device));
  pools.push_back(pool);
}

void SetFlag(const Pool& pool, CUmemPool_attribute flag, int value) {
  Say("flag", CU(cuMemPoolSetAttribute)(pool.handle, flag, &value));
}

void SetNumber(const Pool& pool, CUmemPool_attribute number, cuuint64_t value) {
  Say("number", CU(cuMemPoolSetAttribute)(pool.handle, number, &value));
}

void SetAccess(const Pool& pool, int device, CUmemAccess_flags flags) {
  const CUmemAccessDesc access = {On(device), flags};
  Say("access", CU(cuMemPoolSetAccess)(pool.handle, &access, 1));
}

CUdeviceptr Allocate(const Pool& pool, size_t bytes) {
  CUdeviceptr block = 0;
  Say("block", CU(cuMemAllocFromPoolAsync)(&block, bytes, pool.handle, streams[pool.device]));
  return block;
}

void Free(const Pool& pool, CUdeviceptr block) {
  Say("free", CU(cuMemFreeAsync)(block, streams[pool.device]));
  Say("sync", CU(cuStreamSynchronize)(streams[pool.device]));
}

void SayPool(const Pool& pool) {
  std::printf("%s:", pool.name);
  for (CUmemPool_attribute attribute : kFlags) {
    int value = -1;
    if (CU(cuMemPoolGetAttribute)(pool.handle, attribute, &value) != CUDA_SUCCESS) std::printf(" failed");
    std::printf(" %d", value);
  }
  for (CUmemPool_attribute attribute : kNumbers) {
    cuuint64_t value = 99;
    if (CU(cuMemPoolGetAttribute)(pool.handle, attribute, &value) != CUDA_SUCCESS) std::printf(" failed");
    std::printf(" %llu", static_cast<unsigned long long>(value));
  }
  for (int device : {0, 1}) {
    CUmemAccess_flags flags{};
    CUmemLocation location = On(device);
    if (CU(cuMemPoolGetAccess)(&flags, pool.handle, &location) != CUDA_SUCCESS) std::printf(" failed");
    std::printf(" access %d", flags);
  }
  std::printf("\n");
}

void SayChoice(int device) {
  CUmemoryPool handles[4] = {};
  CUmemLocation location = On(device);
  CU(cuDeviceGetDefaultMemPool)(&handles[0], device);
  CU(cuMemGetDefaultMemPool)(&handles[1], &location, CU_MEM_ALLOCATION_TYPE_PINNED);
  CU(cuDeviceGetMemPool)(&handles[2], device);
  CU(cuMemGetMemPool)(&handles[3], &location, CU_MEM_ALLOCATION_TYPE_PINNED);
  std::printf("device %d: %s %s, now %s %s\n", device, NameOf(handles[0]), NameOf(handles[1]),
              NameOf(handles[2]), NameOf(handles[3]));
}

void SayBlock(const Pool& pool, unsigned seed) {
  CUmemoryPool of = nullptr;
  Say("of", CU(cuPointerGetAttribute)(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pool.block));
  cudaSetDevice(pool.device);
  std::printf("%s is of %s and holds %u\n", pool.name, NameOf(of), SumOf(pool.block, 4 * kMiB));
  SayAttributes({pool.name, pool.block, 4 * kMiB}, 1000);
  // The other device writes where it may.
  CUmemAccess_flags flags{};
  CUmemLocation location = On(1 - pool.device);
  CU(cuMemPoolGetAccess)(&flags, pool.handle, &location);
  cudaSetDevice(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? 1 - pool.device : pool.device);
  FillCells(pool.block, kMiB, seed);
  std::printf("filled: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  cudaSetDevice(0);
}

// Grows and shrinks the pool, whose marks of high water tell of it.
void Use(const Pool& pool) {
  const CUdeviceptr large = Allocate(pool, 8 * kMiB);
  Free(pool, large);
  SayPool(pool);
  SetNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  SetNumber(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  SayPool(pool);
  const CUdeviceptr another = Allocate(pool, 2 * kMiB);
  Free(pool, another);
}

void SayErrors(const Pool& pool) {
  SetNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 7);
  SetNumber(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0);
  SetNumber(pool, static_cast<CUmemPool_attribute>(99), 0);
  SetAccess(pool, pool.device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  SetAccess(pool, 7, CU_MEM_ACCESS_FLAGS_PROT_READ);
  Say("on the other device", CU(cuDeviceSetMemPool)(1 - pool.device, pool.handle));
  Say("nowhere", CU(cuMemAllocFromPoolAsync)(nullptr, kMiB, pool.handle, streams[pool.device]));
  CUdeviceptr none = 0;
  if (pool.limit != 0)
    Say("above the limit",
        CU(cuMemAllocFromPoolAsync)(&none, pool.limit + 1, pool.handle, streams[pool.device]));
}

void Make() {
  for (int device : {1, 0}) {
    cudaSetDevice(device);
    Say("stream", CU(cuStreamCreate)(&streams[device], CU_STREAM_NON_BLOCKING));
  }
  AddDefault("default 0", 0);
  AddDefault("default 1", 1);
  AddPool("strict", 0, 64 * kMiB);
  AddPool("far", 1, 64 * kMiB);
  AddPool("plain", 0, 0);
  SetNumber(pools[0], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull);
  SetNumber(pools[2], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 6 * kMiB);
  for (CUmemPool_attribute flag : kFlags) SetFlag(pools[2], flag, 0);
  SetFlag(pools[3], kFlags[1], 0);
  SetFlag(pools[3], kFlags[2], 0);
  SetFlag(pools[3], kFlags[2], 1);
  SetAccess(pools[0], 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  SetAccess(pools[2], 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  SetAccess(pools[3], 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  SetAccess(pools[4], 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  SetAccess(pools[4], 1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  Say("current", CU(cuDeviceSetMemPool)(0, pools[2].handle));
  Say("current", CU(cuDeviceSetMemPool)(1, pools[3].handle));
  for (Pool& pool : pools) {
    pool.block = Allocate(pool, 4 * kMiB);
    const CUdeviceptr large = Allocate(pool, 8 * kMiB);
    Free(pool, large);
    cudaSetDevice(pool.device);
    FillCells(pool.block, kMiB, static_cast<unsigned>(pool.device));
    cudaDeviceSynchronize();
  }
  cudaSetDevice(0);
}

// A pool that is destroyed lives on while it has blocks.
CUdeviceptr orphan;

void MakeOrphan() {
  AddPool("destroyed", 0, 0);
  orphan = Allocate(pools.back(), 2 * kMiB);
  FillCells(orphan, kMiB / 2, 77);
  cudaDeviceSynchronize();
  Say("destroy", CU(cuMemPoolDestroy)(pools.back().handle));
}

void SayOrphan() {
  SayPool(pools.back());
  std::printf("orphan holds %u\n", SumOf(orphan, 2 * kMiB));
}

}  // namespace

int Pools() {
  Make();
  MakeOrphan();
  for (unsigned round = 0; round < 2; ++round) {
    for (const Pool& pool : pools) SayPool(pool);
    for (int device : {0, 1}) SayChoice(device);
    SayOrphan();
    for (size_t i = 0; i + 1 < pools.size(); ++i) {
      SayBlock(pools[i], round);
      SayErrors(pools[i]);
      Use(pools[i]);
    }
    // What the pause finds has not been asked about since the last of the frees.
    if (round == 0) WaitForLine();
  }
  Say("orphan", CU(cuMemFreeAsync)(orphan, streams[0]));
  for (size_t i = 0; i + 1 < pools.size(); ++i) Free(pools[i], pools[i].block);
  for (size_t i = 0; i + 1 < pools.size(); ++i) Say("destroy", CU(cuMemPoolDestroy)(pools[i].handle));
  for (int device : {0, 1}) SayChoice(device);
  return 0;
}

}  // namespace answers

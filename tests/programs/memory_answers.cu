// Prints what the driver says of memory of every kind, in words that are the same on every run: no address is
// printed, only what holds between addresses. Everything is asked once, then again after a line was read from
// standard input, so that a test can put a pause in between.
//
// usage: memory_answers plain|managed|pools|host
#include "memory_answers.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace answers {

void* Symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) {
    std::fprintf(stderr, "no %s\n", name);
    std::exit(2);
  }
  return symbol;
}

void Say(const std::string& what, CUresult result) {
  const char* text = "?";
  CU(cuGetErrorName)(result, &text);
  std::printf("%s: %s\n", what.c_str(), text);
}

namespace {

__global__ void Fill(unsigned* to, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = static_cast<unsigned>(i) * 2654435761u + seed;
}

__global__ void Sum(const unsigned* from, size_t count, unsigned* out) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    atomicAdd(out, from[i] ^ static_cast<unsigned>(i));
}

}  // namespace

void FillCells(CUdeviceptr at, size_t count, unsigned seed) {
  Fill<<<4, 64>>>(reinterpret_cast<unsigned*>(at), count, seed);
}

unsigned SumOf(CUdeviceptr at, size_t bytes) {
  unsigned* out = nullptr;
  unsigned sum = 0;
  cudaMalloc(&out, sizeof *out);
  cudaMemset(out, 0, sizeof *out);
  Sum<<<4, 64>>>(reinterpret_cast<const unsigned*>(at), bytes / 4, out);
  const cudaError_t error = cudaMemcpy(&sum, out, sizeof sum, cudaMemcpyDeviceToHost);
  cudaFree(out);
  if (error != cudaSuccess) std::printf("sum: %s\n", cudaGetErrorName(error));
  return sum;
}

namespace {

void SayValue(const Named& memory, CUdeviceptr asked, CUpointer_attribute attribute, uint64_t value) {
  CUcontext current = nullptr;
  CUmemoryPool pool = nullptr;
  CU(cuCtxGetCurrent)(&current);
  CU(cuDeviceGetDefaultMemPool)(&pool, 0);
  const char* relation = nullptr;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      relation = value == reinterpret_cast<uint64_t>(current) ? "current" : "other";
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      relation = value == asked ? "itself" : "other";
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      relation = value == memory.base ? "base" : "other";
      break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      relation = value == 0 ? "none" : value == reinterpret_cast<uint64_t>(pool) ? "default" : "other";
      break;
    default:
      break;
  }
  if (relation != nullptr && value != 0)
    std::printf("  attribute %d: %s\n", attribute, relation);
  else
    std::printf("  attribute %d: %llu\n", attribute, static_cast<unsigned long long>(value));
}

// What a block of memory is called is the driver's choice; that it has one name, for ever, is not.
void SayIdentity(CUdeviceptr asked) {
  static std::vector<std::pair<CUdeviceptr, unsigned long long>> known;
  unsigned long long id = 0;
  if (CU(cuPointerGetAttribute)(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, asked) != CUDA_SUCCESS) return;
  bool same = true, unique = true;
  bool seen = false;
  for (const auto& [address, other] : known) {
    if (address == asked) {
      seen = true;
      same = other == id;
    } else {
      unique &= other != id;
    }
  }
  if (!seen) known.emplace_back(asked, id);
  std::printf("  identity: %s, %s\n", same ? "same" : "changed", unique ? "unique" : "shared");
}

}  // namespace

void SayAttributes(const Named& memory, size_t offset) {
  const CUdeviceptr asked = memory.base + offset;
  std::printf("%s + %zu\n", memory.name, offset);
  const CUpointer_attribute asked_of[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_HOST_POINTER,
      CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_MAPPED,           CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
      CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
      CU_POINTER_ATTRIBUTE_MAPPING_SIZE,     CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR};
  std::vector<uint64_t> values(std::size(asked_of), 0);
  std::vector<void*> places;
  std::vector<CUpointer_attribute> attributes(std::begin(asked_of), std::end(asked_of));
  for (uint64_t& value : values) places.push_back(&value);
  Say("  all", CU(cuPointerGetAttributes)(static_cast<unsigned>(attributes.size()), attributes.data(),
                                          places.data(), asked));
  for (size_t i = 0; i < values.size(); ++i) {
    SayValue(memory, asked, attributes[i], values[i]);
    uint64_t alone = 0;
    const CUresult result = CU(cuPointerGetAttribute)(&alone, attributes[i], asked);
    if (result != CUDA_SUCCESS)
      Say("  alone", result);
    else if (alone != values[i])
      std::printf("  alone: different\n");
  }
  CUdeviceptr base = 0;
  size_t size = 0;
  Say("  range", CU(cuMemGetAddressRange)(&base, &size, asked));
  std::printf("  range: %s %zu\n", base == memory.base ? "base" : "other", size);
  CUmemGenericAllocationHandle handle = 0;
  Say("  retain", CU(cuMemRetainAllocationHandle)(&handle, reinterpret_cast<void*>(asked)));
  SayIdentity(asked);
  cudaPointerAttributes runtime{};
  std::printf("  runtime: %s",
              cudaGetErrorName(cudaPointerGetAttributes(&runtime, reinterpret_cast<void*>(asked))));
  std::printf(" %d %d\n", runtime.type, runtime.device);
}

void WaitForLine() {
  std::printf("ready\n");
  std::fflush(stdout);
  while (std::getchar() != '\n') {
  }
}

namespace {

long long FreeBytes() {
  size_t free = 0, total = 0;
  CU(cuMemGetInfo)(&free, &total);
  return static_cast<long long>(free);
}

void SayMemoryInfo() {
  size_t free = 0, total = 0;
  Say("info", CU(cuMemGetInfo)(&free, &total));
  std::printf("total %zu\n", total);
  const long long before = FreeBytes();
  CUdeviceptr large = 0;
  Say("large", CU(cuMemAlloc)(&large, 64 * kMiB));
  std::printf("taken %lld\n", before - FreeBytes());
  Say("free", CU(cuMemFree)(large));
  std::printf("missing %lld\n", before - FreeBytes());
  Say("too large", CU(cuMemAlloc)(&large, total + kMiB));
  std::printf("missing %lld\n", before - FreeBytes());
}

void SayErrors() {
  CUdeviceptr live = 0, none = 0;
  void* host = nullptr;
  Say("nothing", CU(cuMemAlloc)(&none, 0));
  Say("nowhere", CU(cuMemAlloc)(nullptr, 1));
  Say("live", CU(cuMemAlloc)(&live, 10000));
  Say("inside", CU(cuMemFree)(live + 512));
  Say("once", CU(cuMemFree)(live));
  Say("twice", CU(cuMemFree)(live));
  Say("null", CU(cuMemFree)(0));
  Say("pinned", CU(cuMemHostAlloc)(&host, 10000, CU_MEMHOSTALLOC_PORTABLE));
  Say("free pinned as device memory", CU(cuMemFree)(reinterpret_cast<CUdeviceptr>(host)));
  Say("unregister pinned", CU(cuMemHostUnregister)(host));
  Say("register pinned", CU(cuMemHostRegister)(host, 4096, 0));
  Say("free inside", CU(cuMemFreeHost)(static_cast<char*>(host) + 4096));
  Say("free pinned", CU(cuMemFreeHost)(host));
  Say("free pinned twice", CU(cuMemFreeHost)(host));
  Say("flags", CU(cuMemHostAlloc)(&host, 10000, 64));
  Say("pinned nothing", CU(cuMemHostAlloc)(&host, 0, 0));
  size_t pitch = 0;
  Say("pitch", CU(cuMemAllocPitch)(&live, &pitch, 1000, 10, 8));
  std::printf("pitch %zu\n", pitch);
  Say("pitch free", CU(cuMemFree)(live));
  Say("element", CU(cuMemAllocPitch)(&live, &pitch, 1000, 10, 5));
  const Named freed = {"freed", live, 10240};
  SayAttributes(freed, 0);
}

void SayPool(const char* when, CUmemoryPool pool) {
  std::printf("%s:", when);
  for (CUmemPool_attribute attribute :
       {CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH}) {
    cuuint64_t value = 0;
    CU(cuMemPoolGetAttribute)(pool, attribute, &value);
    std::printf(" %llu", static_cast<unsigned long long>(value));
  }
  int reuse = -1;
  CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &reuse);
  std::printf(" %d\n", reuse);
}

void ExercisePool(CUmemoryPool pool, CUstream stream, bool is_default) {
  cuuint64_t threshold = 4 * kMiB, zero = 0, five = 5;
  Say("threshold", CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  Say("high", CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
  Say("high", CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
  Say("high five", CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &five));
  CUdeviceptr first = 0, second = 0, plain = 0;
  Say("async", is_default ? CU(cuMemAllocAsync)(&first, 4 * kMiB, stream)
                          : CU(cuMemAllocFromPoolAsync)(&first, 4 * kMiB, pool, stream));
  SayPool("one", pool);
  Say("async free", CU(cuMemFreeAsync)(first, stream));
  Say("async", CU(cuMemAllocFromPoolAsync)(&second, 4 * kMiB, pool, stream));
  std::printf("the same block: %d\n", first == second);
  Say("sync", CU(cuStreamSynchronize)(stream));
  SayPool("again one", pool);
  Say("another", CU(cuMemAllocFromPoolAsync)(&first, 4 * kMiB, pool, stream));
  SayPool("two", pool);
  Say("free of pool memory", CU(cuMemFree)(first));
  Say("twice", CU(cuMemFree)(first));
  Say("twice async", CU(cuMemFreeAsync)(first, stream));
  Say("async free", CU(cuMemFreeAsync)(second, stream));
  Say("sync", CU(cuStreamSynchronize)(stream));
  SayPool("none", pool);
  Say("trim", CU(cuMemPoolTrimTo)(pool, 0));
  SayPool("trimmed", pool);
  Say("plain", CU(cuMemAlloc)(&plain, 2 * kMiB));
  Say("async free of plain", CU(cuMemFreeAsync)(plain, stream));
  Say("sync", CU(cuStreamSynchronize)(stream));
  Say("nothing", CU(cuMemAllocFromPoolAsync)(&first, 0, pool, stream));
  Say("no pool", CU(cuMemAllocFromPoolAsync)(&first, 100, nullptr, stream));
}

void SayPools(CUmemoryPool own, CUstream stream) {
  CUmemoryPool by_default = nullptr, current = nullptr;
  Say("default", CU(cuDeviceGetDefaultMemPool)(&by_default, 0));
  Say("current", CU(cuDeviceGetMemPool)(&current, 0));
  std::printf("current is %s\n", current == by_default ? "default" : current == own ? "own" : "other");
  ExercisePool(by_default, stream, current == by_default);
  ExercisePool(own, stream, false);
  Say("use own", CU(cuDeviceSetMemPool)(0, own));
  Say("own on another device", CU(cuDeviceSetMemPool)(1, own));
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemAccess_flags flags{};
  Say("access", CU(cuMemPoolGetAccess)(&flags, own, &access.location));
  std::printf("access %d\n", flags);
  Say("give access", CU(cuMemPoolSetAccess)(own, &access, 1));
  Say("no default to destroy", CU(cuMemPoolDestroy)(by_default));
}

void SayHost(void* pinned, void* registered) {
  for (void* host : {pinned, registered}) {
    unsigned flags = 99;
    CUdeviceptr device = 0;
    Say("flags", CU(cuMemHostGetFlags)(&flags, host));
    std::printf("flags %u\n", flags);
    Say("device", CU(cuMemHostGetDevicePointer)(&device, host, 0));
    std::printf("the same: %d\n", device == reinterpret_cast<CUdeviceptr>(host));
    FillCells(device, 1000, 5);
    std::printf("filled: %s", cudaGetErrorName(cudaDeviceSynchronize()));
    std::printf(" %u\n", static_cast<unsigned*>(host)[999]);
  }
}

void SayPeers(CUdeviceptr before, CUdeviceptr after) {
  cudaSetDevice(1);
  for (CUdeviceptr memory : {before, after}) {
    FillCells(memory, 1000, 9);
    std::printf("peer: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  }
  cudaSetDevice(0);
  std::printf("peer wrote %u %u\n", SumOf(before, 4000), SumOf(after, 4000));
}

int Plain() {
  cudaSetDevice(0);
  cudaFree(nullptr);
  CUstream stream = nullptr;
  CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING);
  std::vector<Named> all = {{"tiny", 0, 100},       {"small", 0, 300000},     {"odd", 0, 3 * kMiB + 1000},
                            {"pages", 0, 4 * kMiB}, {"pitched", 0, 512 * 50}, {"pooled", 0, 5 * kMiB},
                            {"pinned", 0, 100000},  {"registered", 0, 65536}};
  for (int i = 0; i < 4; ++i) Say(all[i].name, CU(cuMemAlloc)(&all[i].base, all[i].size));
  size_t pitch = 0;
  Say("pitched", CU(cuMemAllocPitch)(&all[4].base, &pitch, 500, 50, 4));
  Say("pooled", CU(cuMemAllocAsync)(&all[5].base, all[5].size, stream));
  for (const Named& one : all)
    if (one.base % 512 != 0) std::printf("%s is badly aligned\n", one.name);
  void* pinned = nullptr;
  Say("pinned",
      CU(cuMemHostAlloc)(&pinned, all[6].size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED));
  void* const pages = mmap(nullptr, all[7].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Say("registered", CU(cuMemHostRegister)(pages, all[7].size, CU_MEMHOSTREGISTER_DEVICEMAP));
  all[6].base = reinterpret_cast<CUdeviceptr>(pinned);
  all[7].base = reinterpret_cast<CUdeviceptr>(pages);
  // Registered and then unmapped without a word to the driver.
  void* const lost = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Say("lost", CU(cuMemHostRegister)(lost, 65536, 0));
  munmap(lost, 65536);
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool own = nullptr;
  Say("pool", CU(cuMemPoolCreate)(&own, &props));
  unsigned on = 1;
  Say("sync memops", CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, all[2].base));
  cudaSetDevice(1);
  std::printf("enable: %s\n", cudaGetErrorName(cudaDeviceEnablePeerAccess(0, 0)));
  std::printf("enable: %s\n", cudaGetErrorName(cudaDeviceEnablePeerAccess(0, 0)));
  cudaSetDevice(0);
  CUdeviceptr late = 0;
  Say("late", CU(cuMemAlloc)(&late, 4 * kMiB));
  for (size_t i = 0; i < 6; ++i)
    FillCells(all[i].base, all[i].size / 4, i);
  cudaDeviceSynchronize();
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < 6; ++i) std::printf("%s holds %u\n", all[i].name, SumOf(all[i].base, all[i].size));
    for (const Named& one : all) {
      SayAttributes(one, 0);
      SayAttributes(one, one.size - 1);
    }
    SayAttributes({"stack", reinterpret_cast<CUdeviceptr>(&on), sizeof on}, 0);
    SayMemoryInfo();
    SayErrors();
    SayPools(own, stream);
    SayHost(pinned, pages);
    SayPeers(all[2].base, late);
    for (size_t i = 0; i < 6; ++i)
      FillCells(all[i].base, all[i].size / 4, i);
    cudaDeviceSynchronize();
    if (round == 0) WaitForLine();
  }
  Say("destroy", CU(cuMemPoolDestroy)(own));
  for (int i = 0; i < 6; ++i) Say("free", CU(cuMemFree)(all[i].base));
  Say("free", CU(cuMemFreeHost)(pinned));
  Say("unregister", CU(cuMemHostUnregister)(pages));
  Say("unregister again", CU(cuMemHostUnregister)(pages));
  std::printf("reset: %s\n", cudaGetErrorName(cudaDeviceReset()));
  Say("after reset", CU(cuMemFree)(late));
  return 0;
}

void SayHints(const char* where, CUdeviceptr at, size_t bytes) {
  constexpr CUmem_range_attribute kAttributes[] = {
      CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,          CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
      CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,          CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
      CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
      CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID};
  for (CUmem_range_attribute attribute : kAttributes) {
    int values[3] = {99, 99, 99};
    const size_t size = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY ? sizeof values : sizeof values[0];
    Say(std::string(where) + " hint " + std::to_string(attribute),
        CU(cuMemRangeGetAttribute)(values, size, attribute, at, bytes));
    std::printf("  %d %d %d\n", values[0], values[1], values[2]);
  }
  int values[1];
  Say("wrong size", CU(cuMemRangeGetAttribute)(values, 1, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, bytes));
  Say("beyond", CU(cuMemRangeGetAttribute)(values, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, at, 1u << 30));
}

void Advise(CUdeviceptr at) {
  const CUmemLocation first = {CU_MEM_LOCATION_TYPE_DEVICE, 0}, second = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, none = {CU_MEM_LOCATION_TYPE_DEVICE, 7};
  Say("read mostly", CU(cuMemAdvise_v2)(at, 3 * kMiB, CU_MEM_ADVISE_SET_READ_MOSTLY, first));
  Say("no more", CU(cuMemAdvise_v2)(at + kMiB, kMiB, CU_MEM_ADVISE_UNSET_READ_MOSTLY, first));
  Say("preferred", CU(cuMemAdvise_v2)(at, 2 * kMiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, second));
  Say("accessed", CU(cuMemAdvise_v2)(at, 3 * kMiB, CU_MEM_ADVISE_SET_ACCESSED_BY, second));
  Say("accessed", CU(cuMemAdvise_v2)(at, 3 * kMiB, CU_MEM_ADVISE_SET_ACCESSED_BY, first));
  Say("not accessed", CU(cuMemAdvise_v2)(at, 100, CU_MEM_ADVISE_UNSET_ACCESSED_BY, first));
  Say("no device", CU(cuMemAdvise_v2)(at, kMiB, CU_MEM_ADVISE_SET_ACCESSED_BY, none));
  Say("beyond", CU(cuMemAdvise_v2)(at, 1u << 30, CU_MEM_ADVISE_SET_READ_MOSTLY, first));
  Say("prefetch", CU(cuMemPrefetchAsync_v2)(at, kMiB, second, 0, nullptr));
  Say("prefetch", CU(cuMemPrefetchAsync_v2)(at + 2 * kMiB, kMiB, host, 0, nullptr));
  Say("no device", CU(cuMemPrefetchAsync_v2)(at, kMiB, none, 0, nullptr));
  Say("flags", CU(cuMemPrefetchAsync_v2)(at, kMiB, first, 1, nullptr));
}

int Managed() {
  cudaSetDevice(0);
  Named memory = {"managed", 0, 3 * kMiB};
  CUdeviceptr none = 0;
  cudaFree(nullptr);
  Say("nothing", CU(cuMemAllocManaged)(&none, 0, CU_MEM_ATTACH_GLOBAL));
  Say("flags", CU(cuMemAllocManaged)(&none, 1, 77));
  Say("managed", CU(cuMemAllocManaged)(&memory.base, memory.size, CU_MEM_ATTACH_GLOBAL));
  for (int round = 0; round < 2; ++round) {
    SayAttributes(memory, 0);
    SayAttributes(memory, memory.size - 1);
    FillCells(memory.base, memory.size / 4, 7 + round);
    cudaDeviceSynchronize();
    unsigned* const words = reinterpret_cast<unsigned*>(memory.base);
    std::printf("host sees %u\n", words[12345]);
    words[0] = 4711;
    std::printf("device sees %u\n", SumOf(memory.base, memory.size));
    Say("not registered", CU(cuMemHostUnregister)(words));
    Say("not pinned", CU(cuMemFreeHost)(words));
    unsigned flags = 0;
    Say("no flags", CU(cuMemHostGetFlags)(&flags, words));
    if (round == 0) Advise(memory.base);
    for (size_t mib = 0; mib < 3; ++mib) SayHints("third", memory.base + mib * kMiB, kMiB);
    SayHints("all", memory.base, memory.size);
    SayHints("page", memory.base + 4096, 4096);
    if (round == 0) WaitForLine();
  }
  Say("free", CU(cuMemFree)(memory.base));
  Say("free", CU(cuMemFree)(memory.base));
  return 0;
}

}  // namespace
}  // namespace answers

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "plain") return answers::Plain();
  if (mode == "managed") return answers::Managed();
  if (mode == "pools") return answers::Pools();
  if (mode == "host") return answers::Host();
  std::fprintf(stderr, "usage: memory_answers plain|managed|pools|host\n");
  return 2;
}

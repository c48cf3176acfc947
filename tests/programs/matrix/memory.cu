// Memory of every kind: plain, pitched, pools, pinned, registered, managed.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "matrix.h"

namespace {

using matrix::LaunchMix;
using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 5000;

// ---- Plain memory that comes and goes, of many sizes.

std::vector<unsigned*> pieces;
std::vector<unsigned> sizes;

void AddPiece(unsigned count, unsigned seed) {
  pieces.push_back(matrix::Cells(count, seed));
  sizes.push_back(count);
}

void MakePlain() {
  for (unsigned i = 0; i < 20; ++i) AddPiece(1 + i * i * 97, i);
}

void StepPlain(unsigned number) {
  for (size_t i = 0; i < pieces.size(); ++i) LaunchMix(pieces[i], sizes[i], number);
  for (size_t i = 0; i < pieces.size(); i += 5) SayHash("piece", pieces[i], sizes[i] * sizeof(unsigned));
  const size_t gone = number * 7 % pieces.size();
  CUdeviceptr base = 0;
  size_t bytes = 0;
  CHECK(cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(pieces[gone]) + 2));
  Say("range %d %d", base == reinterpret_cast<CUdeviceptr>(pieces[gone]), bytes == sizes[gone] * sizeof(unsigned));
  CHECK(cudaFree(pieces[gone]));
  pieces.erase(pieces.begin() + gone);
  sizes.erase(sizes.begin() + gone);
  AddPiece(number % 2 ? 3 : 700000, number);
}

void EndPlain() {
  for (unsigned* piece : pieces) CHECK(cudaFree(piece));
}
MATRIX_CASE(plain, "device-memory", "kDeviceMemory", MakePlain, StepPlain, EndPlain);

// ---- Pitched memory, and copies of rectangles.

unsigned char* rows;
size_t pitch;

void MakePitched() {
  CHECK(cudaMallocPitch(reinterpret_cast<void**>(&rows), &pitch, 300, 40));
  CHECK(cudaMemset2D(rows, pitch, 1, 300, 40));
}

void StepPitched(unsigned number) {
  std::vector<unsigned char> host(300 * 40);
  CHECK(cudaMemset2D(rows + number % 30 * pitch + number % 100, pitch, static_cast<int>(number), 50, 5));
  CHECK(cudaMemcpy2D(host.data(), 300, rows, pitch, 300, 40, cudaMemcpyDeviceToHost));
  unsigned sum = 0;
  for (unsigned char byte : host) sum = sum * 31 + byte;
  Say("pitch %zu sum %08x", pitch, sum);
  CHECK(cudaMemcpy2D(rows, pitch, host.data() + 300, 300, 300, 20, cudaMemcpyHostToDevice));
}
MATRIX_CASE(pitched, "pitched-memory", "kDeviceMemory", MakePitched, StepPitched, [] { CHECK(cudaFree(rows)); });

// ---- Pools: the default one, one of the program's own with attributes, frees that stream order puts off.

cudaMemPool_t pool, default_pool;
cudaStream_t ordered, other;
unsigned* from_default;
unsigned* from_pool;

void MakePool() {
  CHECK(cudaStreamCreate(&ordered));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaDeviceGetDefaultMemPool(&default_pool, 0));
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaMemPoolCreate(&pool, &properties));
  cuuint64_t threshold = 3 << 20;
  int no = 0;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &no));
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, 1};
  access.flags = cudaMemAccessFlagsProtRead;
  CHECK(cudaMemPoolSetAccess(pool, &access, 1));
  CHECK(cudaMallocAsync(&from_default, kCount * sizeof(unsigned), ordered));
  CHECK(cudaMallocFromPoolAsync(&from_pool, kCount * sizeof(unsigned), pool, ordered));
  CHECK(cudaMemsetAsync(from_default, 1, kCount * sizeof(unsigned), ordered));
  CHECK(cudaMemsetAsync(from_pool, 2, kCount * sizeof(unsigned), ordered));
}

void SayPool() {
  cuuint64_t threshold = 0, used = 0;
  int reuse = -1;
  cudaMemPool_t now = nullptr;
  cudaMemAccessFlags access{};
  cudaMemLocation neighbour{cudaMemLocationTypeDevice, 1};
  CHECK(cudaMemPoolGetAccess(&access, pool, &neighbour));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseAllowOpportunistic, &reuse));
  CHECK(cudaDeviceGetMemPool(&now, 0));
  Say("threshold %llu used %d reuse %d access %d current %s", static_cast<unsigned long long>(threshold), used > 0, reuse, access,
      now == pool ? "own" : now == default_pool ? "default" : "another");
}

void StepPool(unsigned number) {
  LaunchMix(from_default, kCount, number, ordered);
  LaunchMix(from_pool, kCount, number, ordered);
  CHECK(cudaStreamSynchronize(ordered));
  SayHash("default", from_default, kCount * sizeof(unsigned));
  SayHash("own", from_pool, kCount * sizeof(unsigned));
  CHECK(cudaDeviceSetMemPool(0, number % 2 ? pool : default_pool));
  SayPool();
  // A block that is freed in stream order after the step has ended its host side.
  unsigned* brief = nullptr;
  CHECK(cudaMallocAsync(&brief, (1000 + number) * sizeof(unsigned), ordered));
  CHECK(cudaMemsetAsync(brief, 0, (1000 + number) * sizeof(unsigned), ordered));
  LaunchMix(brief, 1000 + number, number, ordered);
  CHECK(cudaFreeAsync(brief, ordered));
  CHECK(cudaMemPoolTrimTo(pool, 0));
}

void EndPool() {
  CHECK(cudaDeviceSetMemPool(0, default_pool));
  CHECK(cudaFreeAsync(from_default, ordered));
  CHECK(cudaFreeAsync(from_pool, ordered));
  CHECK(cudaStreamSynchronize(ordered));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(ordered));
  CHECK(cudaStreamDestroy(other));
}
MATRIX_CASE(pools, "pool", "kPool kPoolMemory", MakePool, StepPool, EndPool);

// ---- A pool that other processes may be given.

void MakeExportable() {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypePosixFileDescriptor;
  properties.location = {cudaMemLocationTypeDevice, 0};
  CHECK(cudaStreamCreate(&ordered));
  CHECK(cudaMemPoolCreate(&pool, &properties));
  CHECK(cudaMallocFromPoolAsync(&from_pool, kCount * sizeof(unsigned), pool, ordered));
  CHECK(cudaMemsetAsync(from_pool, 2, kCount * sizeof(unsigned), ordered));
}

void StepExportable(unsigned number) {
  LaunchMix(from_pool, kCount, number, ordered);
  SayHash("cells", from_pool, kCount * sizeof(unsigned));
}

void EndExportable() {
  CHECK(cudaFreeAsync(from_pool, ordered));
  CHECK(cudaStreamSynchronize(ordered));
  CHECK(cudaMemPoolDestroy(pool));
  CHECK(cudaStreamDestroy(ordered));
}
MATRIX_CASE(exportable, "pool-exportable", "kPool kPoolMemory", MakeExportable, StepExportable, EndExportable,
            "reconstruct cuMemPoolCreate");

// ---- A pool of the host's memory.

void MakeHostPool() {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeHost, 0};
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, 0};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  CHECK(cudaStreamCreate(&ordered));
  CHECK(cudaMemPoolCreate(&pool, &properties));
  CHECK(cudaMemPoolSetAccess(pool, &access, 1));
  CHECK(cudaMallocFromPoolAsync(&from_pool, kCount * sizeof(unsigned), pool, ordered));
  CHECK(cudaMemsetAsync(from_pool, 2, kCount * sizeof(unsigned), ordered));
}
MATRIX_CASE(host_pool, "pool-of-host", "kPool kPoolMemory", MakeHostPool, StepExportable, EndExportable,
            "reconstruct cuMemPoolCreate");

// ---- Pair: a pool that is used from two streams, with blocks that cross.

cudaEvent_t handed;

void MakeTwoStreams() {
  MakePool();
  CHECK(cudaEventCreateWithFlags(&handed, cudaEventDisableTiming));
  CHECK(cudaStreamSynchronize(ordered));
}

void StepTwoStreams(unsigned number) {
  unsigned* crossing = nullptr;
  CHECK(cudaMallocFromPoolAsync(&crossing, kCount * sizeof(unsigned), pool, ordered));
  CHECK(cudaMemsetAsync(crossing, static_cast<int>(number), kCount * sizeof(unsigned), ordered));
  LaunchMix(crossing, kCount, number, ordered);
  CHECK(cudaEventRecord(handed, ordered));
  CHECK(cudaStreamWaitEvent(other, handed));
  LaunchMix(crossing, kCount, number + 1, other);
  CHECK(cudaMemcpyAsync(from_pool, crossing, kCount * sizeof(unsigned), cudaMemcpyDeviceToDevice, other));
  CHECK(cudaFreeAsync(crossing, other));
  CHECK(cudaMallocFromPoolAsync(&crossing, kCount * sizeof(unsigned), pool, other));  // may be the same block again
  CHECK(cudaMemsetAsync(crossing, 0, kCount * sizeof(unsigned), other));
  CHECK(cudaFreeAsync(crossing, other));
  CHECK(cudaStreamSynchronize(other));
  SayHash("copied", from_pool, kCount * sizeof(unsigned));
}

void EndTwoStreams() {
  CHECK(cudaEventDestroy(handed));
  EndPool();
}
MATRIX_CASE(two_streams, "pool-of-two-streams", "kPool kPoolMemory kStream kEvent", MakeTwoStreams, StepTwoStreams, EndTwoStreams);

// ---- Pinned memory with every flag.

constexpr unsigned kPinnedFlags[] = {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped, cudaHostAllocWriteCombined,
                                     cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined};
unsigned* pinned[5];
unsigned* pinned_on_device[5];

void MakePinned() {
  for (int i = 0; i < 5; ++i) {
    CHECK(cudaHostAlloc(reinterpret_cast<void**>(&pinned[i]), kCount * sizeof(unsigned), kPinnedFlags[i]));
    std::memset(pinned[i], i + 1, kCount * sizeof(unsigned));
    CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&pinned_on_device[i]), pinned[i], 0));
  }
}

void StepPinned(unsigned number) {
  for (int i = 0; i < 5; ++i) {
    unsigned flags = 0;
    void* again = nullptr;
    cudaPointerAttributes attributes;
    LaunchMix(pinned_on_device[i], kCount, number);
    CHECK(cudaDeviceSynchronize());
    SayHash("pinned", pinned[i], kCount * sizeof(unsigned));
    CHECK(cudaHostGetFlags(&flags, pinned[i]));
    CHECK(cudaHostGetDevicePointer(&again, pinned[i], 0));
    CHECK(cudaPointerGetAttributes(&attributes, pinned[i] + 5));
    Say("flags %x same %d type %d", flags, again == pinned_on_device[i], attributes.type);
  }
  CHECK(cudaFreeHost(pinned[number % 5]));
  CHECK(cudaHostAlloc(reinterpret_cast<void**>(&pinned[number % 5]), kCount * sizeof(unsigned), kPinnedFlags[number % 5]));
  std::memset(pinned[number % 5], static_cast<int>(number), kCount * sizeof(unsigned));
  CHECK(cudaHostGetDevicePointer(reinterpret_cast<void**>(&pinned_on_device[number % 5]), pinned[number % 5], 0));
}
MATRIX_CASE(pinned_memory, "pinned-memory", "kPinned", MakePinned, StepPinned, [] {
  for (unsigned* block : pinned) CHECK(cudaFreeHost(block));
});

// ---- Memory of the program's own, registered with every flag that ordinary memory may have.

constexpr unsigned kRegisterFlags[] = {cudaHostRegisterDefault, cudaHostRegisterPortable, cudaHostRegisterMapped,
                                       cudaHostRegisterPortable | cudaHostRegisterMapped};
constexpr size_t kRegistered = 8 * 4096;
unsigned char* registered[4];

void Register(int i) { CHECK(cudaHostRegister(registered[i], kRegistered, kRegisterFlags[i])); }

void MakeRegistered() {
  for (int i = 0; i < 4; ++i) {
    registered[i] = static_cast<unsigned char*>(std::aligned_alloc(4096, kRegistered));
    std::memset(registered[i], i, kRegistered);
    Register(i);
  }
}

void StepRegistered(unsigned number) {
  for (int i = 0; i < 4; ++i) {
    unsigned flags = 0;
    void* device = nullptr;
    CHECK(cudaHostGetFlags(&flags, registered[i]));
    CHECK(cudaHostGetDevicePointer(&device, registered[i], 0));
    LaunchMix(static_cast<unsigned*>(device), kRegistered / sizeof(unsigned), number);
    CHECK(cudaDeviceSynchronize());
    SayHash("registered", registered[i], kRegistered);
    Say("flags %x same %d", flags, device == registered[i]);
  }
  CHECK(cudaHostUnregister(registered[number % 4]));
  std::memset(registered[number % 4], static_cast<int>(number), 100);
  Register(number % 4);
}
MATRIX_CASE(registered_memory, "registered-memory", "kRegistered", MakeRegistered, StepRegistered, [] {
  for (unsigned char* block : registered) {
    CHECK(cudaHostUnregister(block));
    std::free(block);
  }
});

// ---- Managed memory, with advice and prefetches.

unsigned* managed;

void MakeManaged() {
  CHECK(cudaMallocManaged(&managed, kCount * sizeof(unsigned)));
  std::memset(managed, 3, kCount * sizeof(unsigned));
}

void StepManaged(unsigned number) {
  const cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
  CHECK(cudaMemAdvise(managed, kCount * sizeof(unsigned), number % 2 ? cudaMemAdviseSetReadMostly : cudaMemAdviseUnsetReadMostly, device));
  CHECK(cudaMemAdvise(managed, kCount * sizeof(unsigned), cudaMemAdviseSetPreferredLocation, number % 2 ? device : host));
  CHECK(cudaMemPrefetchAsync(managed, kCount * sizeof(unsigned), number % 2 ? device : host, 0, nullptr));
  LaunchMix(managed, kCount, number);
  CHECK(cudaDeviceSynchronize());
  for (unsigned i = 0; i < 10; ++i) managed[i] += number;
  SayHash("managed", managed, kCount * sizeof(unsigned));
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, managed));
  Say("type %d", attributes.type);
}
MATRIX_CASE(managed_memory, "managed-memory", "kManaged", MakeManaged, StepManaged, [] { CHECK(cudaFree(managed)); });

}  // namespace

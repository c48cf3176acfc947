// Memory as PyTorch's expandable segments have it: large reserved ranges in which handles of 2 and of 20 MiB are
// mapped one after the other, unmapped from the end or from the middle, parked, mapped again elsewhere, and seen
// at two addresses. What it prints depends on the seed alone.
//
// usage: expandable ROUNDS SEED [FILE]    with FILE: says "ready" halfway and goes on once the file exists
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

void* Symbol(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = library == nullptr ? nullptr : dlsym(library, name);
  if (symbol == nullptr) std::exit(2);
  return symbol;
}

#define CU(name) reinterpret_cast<decltype(&name)>(Symbol(#name))
#define CHECK(call)                                                                    \
  do {                                                                                 \
    const int check_error = static_cast<int>(call);                                    \
    if (check_error != 0) {                                                            \
      std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, check_error); \
      std::_Exit(3);                                                                   \
    }                                                                                  \
  } while (0)

using Handle = CUmemGenericAllocationHandle;
constexpr uint64_t kMiB = 1 << 20;

__global__ void Fill(uint32_t* to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = static_cast<uint32_t>(i) * 2654435761u + seed;
}

__global__ void Mix(uint32_t* cells, size_t count, uint32_t salt) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    cells[i] = cells[i] * 1664525u + salt;
}

__global__ void Sum(const uint32_t* from, size_t count, uint32_t* out) {
  uint32_t sum = 0;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    sum += from[i] ^ static_cast<uint32_t>(i);
  atomicAdd(out, sum);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t Below(uint32_t bound) {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33) % bound;
  }

 private:
  uint64_t state_;
};

CUmemAllocationProp OnDevice0() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return prop;
}

class Segment {
 public:
  Segment(uint64_t unit, size_t units) : unit_(unit), slots_(units, 0) {
    CHECK(CU(cuMemAddressReserve)(&base_, unit * units, 0, 0, 0));
  }
  ~Segment() {
    for (size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i] != 0) Drop(i);
    for (Handle handle : parked_) CHECK(CU(cuMemRelease)(handle));
    CHECK(CU(cuMemAddressFree)(base_, unit_ * slots_.size()));
  }
  uint64_t unit() const { return unit_; }
  uint32_t* At(size_t slot) const { return reinterpret_cast<uint32_t*>(base_ + slot * unit_); }
  size_t slots() const { return slots_.size(); }
  Handle handle(size_t slot) const { return slots_[slot]; }
  size_t mapped() const {
    size_t count = 0;
    for (Handle handle : slots_) count += handle != 0;
    return count;
  }

  void MapAt(size_t slot, Handle handle) {
    CHECK(CU(cuMemMap)(base_ + slot * unit_, unit_, 0, handle, 0));
    CUmemAccessDesc access{};
    access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK(CU(cuMemSetAccess)(base_ + slot * unit_, unit_, &access, 1));
    slots_[slot] = handle;
  }
  void UnmapAt(size_t slot) {
    CHECK(CU(cuMemUnmap)(base_ + slot * unit_, unit_));
    slots_[slot] = 0;
  }
  // At the first free slot.
  void Grow(uint32_t seed) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] != 0) continue;
      Handle handle = 0;
      const CUmemAllocationProp prop = OnDevice0();
      CHECK(CU(cuMemCreate)(&handle, unit_, &prop, 0));
      MapAt(i, handle);
      Fill<<<4, 128>>>(At(i), unit_ / 4, seed);
      CHECK(cudaGetLastError());
      return;
    }
  }
  void Shrink() {
    for (size_t i = slots_.size(); i-- > 0;)
      if (slots_[i] != 0) return Drop(i);
  }
  void Park(size_t slot) {
    if (slots_[slot] == 0) return;
    parked_.push_back(slots_[slot]);
    UnmapAt(slot);
  }
  void Unpark(size_t slot) {
    if (slots_[slot] != 0 || parked_.empty()) return;
    MapAt(slot, parked_.front());
    parked_.erase(parked_.begin());
  }

 private:
  void Drop(size_t slot) {
    const Handle handle = slots_[slot];
    UnmapAt(slot);
    CHECK(CU(cuMemRelease)(handle));
  }

  const uint64_t unit_;
  CUdeviceptr base_ = 0;
  std::vector<Handle> slots_;
  std::vector<Handle> parked_;
};

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), small_(2 * kMiB, 24), large_(20 * kMiB, 4) {
    CHECK(cudaMalloc(&sum_, sizeof *sum_));
  }
  ~Program() { CHECK(cudaFree(sum_)); }

  void Round(int round) {
    Segment& segment = random_.Below(4) == 0 ? large_ : small_;
    const size_t slot = random_.Below(static_cast<uint32_t>(segment.slots()));
    switch (random_.Below(8)) {
      case 0:
      case 1:
      case 2: segment.Grow(random_.Below(1u << 30)); break;
      case 3: segment.Shrink(); break;
      case 4: segment.Park(slot); break;
      case 5: segment.Unpark(slot); break;
      default: MixThroughAlias(segment, slot, static_cast<uint32_t>(round));
    }
    std::printf("round %d: %zu and %zu mapped, sum %08x\n", round, small_.mapped(), large_.mapped(),
                SumOf(small_) + 31 * SumOf(large_));
    std::fflush(stdout);
  }

 private:
  // Written at a second address, read at the first.
  void MixThroughAlias(Segment& segment, size_t slot, uint32_t salt) {
    if (segment.handle(slot) == 0) return;
    Segment alias(segment.unit(), 2);
    Handle again = 0;
    CHECK(CU(cuMemRetainAllocationHandle)(&again, segment.At(slot)));
    if (again != segment.handle(slot)) std::printf("another handle\n");
    CUmemAllocationProp prop{};
    CHECK(CU(cuMemGetAllocationPropertiesFromHandle)(&prop, again));
    if (prop.requestedHandleTypes != 0 || prop.location.id != 0) std::printf("other properties\n");
    alias.MapAt(1, again);  // gives the reference back in the end
    Mix<<<4, 128>>>(alias.At(1), segment.unit() / 4, salt);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
  }

  uint32_t SumOf(const Segment& segment) {
    uint32_t sum = 0;
    CHECK(cudaMemset(sum_, 0, sizeof *sum_));
    for (size_t i = 0; i < segment.slots(); ++i)
      if (segment.handle(i) != 0) Sum<<<4, 128>>>(segment.At(i), segment.unit() / 4, sum_);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(&sum, sum_, sizeof sum, cudaMemcpyDeviceToHost));
    return sum;
  }

  Random random_;
  Segment small_, large_;
  uint32_t* sum_ = nullptr;
};

// The folder of the file is watched, so that nothing is polled.
void AwaitFile(const std::string& file) {
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, file.substr(0, file.rfind('/')).c_str(), IN_CREATE) < 0) std::_Exit(4);
  while (access(file.c_str(), F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int rounds = std::atoi(argv[1]);
  CHECK(cudaSetDevice(0));
  {
    Program program(std::strtoull(argv[2], nullptr, 10));
    for (int round = 0; round < rounds; ++round) {
      program.Round(round);
      if (argc > 3 && round == rounds / 2) {
        std::printf("ready\n");
        std::fflush(stdout);
        AwaitFile(argv[3]);
      }
    }
  }
  std::printf("done\n");
}

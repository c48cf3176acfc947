// Allocators that come and go in a seeded random pattern and know every byte that is live. All live blocks carry a
// pattern that is checked on the device.
//
// usage: active ALLOCATOR SEED   ALLOCATOR: stub   segments of its own, noted with Stasis
//                                           plain  cudaMalloc and cudaFree
//                                           async  cudaMallocAsync and cudaFreeAsync
// Commands on stdin, each answered by lines that end with "done":
//   step N    N allocations and frees; every live block is checked now and then
//   list      "live ADDRESS BYTES" for everything that is live
//   check     checks every live block; "bad N" when N bytes are wrong
//   loop      rounds that pile up memory and free it again, until the next command
//   rounds    the same, and tells where each ends
//   free      "free BYTES": what cudaMemGetInfo says
//   take N    one more block of N MiB; "failed" when there is no memory
//   fork      "open WHAT" for each descriptor of a child
#include <cuda_runtime.h>
#include <poll.h>
#include <stasis/memory.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#define CHECK(call)                                                                                        \
  do {                                                                                                     \
    cudaError_t check_error = (call);                                                                      \
    if (check_error != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      std::_Exit(3);                                                                                       \
    }                                                                                                      \
  } while (0)

__device__ unsigned char PatternAt(uint32_t seed, size_t i) {
  const uint32_t mixed = (seed + static_cast<uint32_t>(i)) * 2654435761u;
  return static_cast<unsigned char>(mixed >> 24);
}

__global__ void Fill(unsigned char* block, size_t bytes, uint32_t seed) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += gridDim.x * blockDim.x)
    block[i] = PatternAt(seed, i);
}

__global__ void CountBad(const unsigned char* block, size_t bytes, uint32_t seed, unsigned* bad) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += gridDim.x * blockDim.x)
    if (block[i] != PatternAt(seed, i)) atomicAdd(bad, 1u);
}

struct Allocator {
  virtual ~Allocator() = default;
  virtual unsigned char* Take(size_t bytes) = 0;
  virtual void Give(unsigned char* block) = 0;
};

struct PlainAllocator : Allocator {
  unsigned char* Take(size_t bytes) override {
    void* block = nullptr;
    CHECK(cudaMalloc(&block, bytes));
    return static_cast<unsigned char*>(block);
  }
  void Give(unsigned char* block) override { CHECK(cudaFree(block)); }
};

struct AsyncAllocator : Allocator {
  unsigned char* Take(size_t bytes) override {
    void* block = nullptr;
    CHECK(cudaMallocAsync(&block, bytes, nullptr));
    return static_cast<unsigned char*>(block);
  }
  void Give(unsigned char* block) override { CHECK(cudaFreeAsync(block, nullptr)); }
};

// First fit in segments from the driver; a segment that is empty goes back.
class StubAllocator : public Allocator {
 public:
  unsigned char* Take(size_t bytes) override {
    const size_t size = (bytes + 511) / 512 * 512;
    auto hole = holes_.begin();
    while (hole != holes_.end() && hole->second < size) ++hole;
    if (hole == holes_.end()) hole = AddSegment();
    unsigned char* const block = hole->first;
    const size_t left = hole->second - size;
    holes_.erase(hole);
    if (left != 0) holes_[block + size] = left;
    sizes_[block] = size;
    stasis_memory_alloc(block, bytes);
    return block;
  }
  void Give(unsigned char* block) override {
    stasis_memory_free(block);
    AddHole(block, sizes_.at(block));
    sizes_.erase(block);
  }

 private:
  static constexpr size_t kSegment = 5u << 20;

  std::map<unsigned char*, size_t>::iterator AddSegment() {
    void* segment = nullptr;
    CHECK(cudaMalloc(&segment, kSegment));
    stasis_memory_alloc(segment, kSegment);
    stasis_memory_free(segment);
    unsigned char* const begin = static_cast<unsigned char*>(segment);
    segments_[begin] = kSegment;
    return holes_.emplace(begin, kSegment).first;
  }
  // Holes of one segment that touch are one.
  void AddHole(unsigned char* begin, size_t size) {
    const auto segment = std::prev(segments_.upper_bound(begin));
    auto next = holes_.lower_bound(begin);
    if (next != holes_.end() && next->first == begin + size && next->first < segment->first + kSegment) {
      size += next->second;
      next = holes_.erase(next);
    }
    if (next != holes_.begin() && std::prev(next)->first + std::prev(next)->second == begin &&
        begin != segment->first) {
      begin = std::prev(next)->first;
      size += std::prev(next)->second;
    }
    holes_[begin] = size;
    if (size != kSegment) return;
    holes_.erase(begin);
    CHECK(cudaFree(begin));
    segments_.erase(begin);
  }

  std::map<unsigned char*, size_t> segments_, holes_, sizes_;
};

class Program {
 public:
  Program(std::unique_ptr<Allocator> allocator, unsigned seed) : allocator_(std::move(allocator)), random_(seed) {
    CHECK(cudaMalloc(&bad_, sizeof *bad_));
    CHECK(cudaMemset(bad_, 0, sizeof *bad_));
    for (int i = 0; i < 8; ++i) Add(RandomSize());
  }

  void Step(int count) {
    for (int i = 0; i < count; ++i) {
      if (live_.empty() || (live_.size() < 200 && random_() % 100 < 52))
        Add(RandomSize());
      else
        Drop(random_() % live_.size());
      if (i % 50 == 49) Check();
    }
  }
  void List() {
    CHECK(cudaDeviceSynchronize());
    std::printf("live %llu %zu\n", Number(bad_), sizeof *bad_);
    for (const Block& block : live_) std::printf("live %llu %zu\n", Number(block.memory), block.bytes);
  }
  void Check() {
    for (const Block& block : live_) CountBad<<<4, 128>>>(block.memory, block.bytes, block.seed, bad_);
    unsigned bad = 0;
    CHECK(cudaMemcpy(&bad, bad_, sizeof bad, cudaMemcpyDeviceToHost));
    if (bad != 0) std::printf("bad %u\n", bad);
  }
  // What is live at the end of a round was so at its start.
  void Round() {
    const size_t kept = live_.size();
    for (int i = 0; i < 12; ++i) {
      Add(200000);
      Add(30000);  // temporary
      Drop(live_.size() - 1);
    }
    while (live_.size() > kept) Drop(live_.size() - 1);
  }
  void Take(size_t mib) {
    void* block = nullptr;
    if (cudaMalloc(&block, mib << 20) != cudaSuccess) {
      std::printf("failed\n");
      return;
    }
    live_.push_back({static_cast<unsigned char*>(block), mib << 20, 1});
    Fill<<<4, 128>>>(live_.back().memory, live_.back().bytes, 1);
  }

 private:
  struct Block {
    unsigned char* memory;
    size_t bytes;
    uint32_t seed;
  };

  static unsigned long long Number(const void* pointer) { return reinterpret_cast<unsigned long long>(pointer); }
  size_t RandomSize() { return 1 + random_() % (random_() % 8 == 0 ? 3000000 : 20000); }
  void Add(size_t bytes) {
    const uint32_t seed = static_cast<uint32_t>(random_());
    live_.push_back({allocator_->Take(bytes), bytes, seed});
    Fill<<<4, 128>>>(live_.back().memory, bytes, seed);
    CHECK(cudaGetLastError());
  }
  // The device may not have done yet what was asked of it with the block.
  void Drop(size_t index) {
    CountBad<<<4, 128>>>(live_[index].memory, live_[index].bytes, live_[index].seed, bad_);
    allocator_->Give(live_[index].memory);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  const std::unique_ptr<Allocator> allocator_;
  std::mt19937 random_;
  std::vector<Block> live_;
  unsigned* bad_ = nullptr;
};

static std::unique_ptr<Allocator> MakeAllocator(const std::string& name) {
  if (name == "stub") return std::make_unique<StubAllocator>();
  if (name == "async") return std::make_unique<AsyncAllocator>();
  return std::make_unique<PlainAllocator>();
}

static void ListOpenInChild() {
  const pid_t child = fork();
  if (child == 0) {
    char path[64], target[256];
    for (int fd = 0; fd < 4096; ++fd) {
      std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      const ssize_t length = readlink(path, target, sizeof target - 1);
      if (length > 0) dprintf(STDOUT_FILENO, "open %.*s\n", static_cast<int>(length), target);
    }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

static bool InputWaits() {
  pollfd wait{STDIN_FILENO, POLLIN, 0};
  return poll(&wait, 1, 0) > 0;
}

static void Run(Program& program, const std::string& command, int number) {
  if (command == "step") program.Step(number);
  if (command == "list") program.List();
  if (command == "check") program.Check();
  if (command == "take") program.Take(static_cast<size_t>(number));
  if (command == "fork") ListOpenInChild();
  if (command == "free") {
    size_t free = 0, total = 0;
    CHECK(cudaMemGetInfo(&free, &total));
    std::printf("free %zu\n", free);
  }
  if (command == "loop" || command == "rounds") {
    std::printf("looping\n");
    std::fflush(stdout);
    while (!InputWaits()) {
      program.Round();
      if (command == "rounds") stasis_iteration();
    }
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::setvbuf(stdin, nullptr, _IONBF, 0);
  Program program(MakeAllocator(argv[1]), static_cast<unsigned>(std::atoi(argv[2])));
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    char command[16] = "";
    int number = 0;
    std::sscanf(line, "%15s %d", command, &number);
    Run(program, command, number);
    std::printf("done\n");
    std::fflush(stdout);
  }
  return 0;
}

// PyTorch's caching allocator under a seeded random load, with the commands of tests/programs/active.cu: step
// N, list, check. What the allocator gives out is filled with a byte of its own.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

extern "C" void stasis_torch_attach();

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

struct Block {
  void* memory;
  size_t bytes;
  unsigned char value;
};

class Program {
 public:
  void Step(int count) {
    for (int i = 0; i < count; ++i) {
      if (blocks_.size() < 60 && random_() % 100 < 55)
        Add(1 + random_() % (random_() % 6 == 0 ? 3000000 : 60000));
      else if (!blocks_.empty())
        Drop(random_() % blocks_.size());
      // Segments that are free go back to the driver.
      if (random_() % 100 == 0) allocator::emptyCache();
    }
  }
  void List() const {
    for (const Block& block : blocks_)
      std::printf("live %llu %zu\n", reinterpret_cast<unsigned long long>(block.memory), block.bytes);
  }
  void Check() const {
    for (const Block& block : blocks_) {
      std::vector<unsigned char> bytes(block.bytes);
      Cuda(cudaMemcpy(bytes.data(), block.memory, block.bytes, cudaMemcpyDeviceToHost));
      const auto good = std::count(bytes.begin(), bytes.end(), block.value);
      if (good != std::ssize(bytes)) std::printf("bad %zd\n", std::ssize(bytes) - good);
    }
  }

 private:
  static void Cuda(cudaError_t error) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    std::_Exit(3);
  }
  void Add(size_t bytes) {
    blocks_.push_back({allocator::raw_alloc(bytes), bytes, static_cast<unsigned char>(random_())});
    Cuda(cudaMemset(blocks_.back().memory, blocks_.back().value, bytes));
  }
  void Drop(size_t index) {
    allocator::raw_delete(blocks_[index].memory);
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  std::mt19937 random_{5};
  std::vector<Block> blocks_;
};

}  // namespace

int main() {
  std::setvbuf(stdin, nullptr, _IONBF, 0);
  stasis_torch_attach();
  Program program;
  program.Step(10);
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    char command[16] = "";
    int number = 0;
    std::sscanf(line, "%15s %d", command, &number);
    if (std::string(command) == "step") program.Step(number);
    if (std::string(command) == "list") program.List();
    if (std::string(command) == "check") program.Check();
    std::printf("done\n");
    std::fflush(stdout);
  }
  return 0;
}

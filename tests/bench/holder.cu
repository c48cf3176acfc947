// Holds device memory full of random data and works on a little of it until it is told to end.
//
// usage: holder MIB [MIB_OF_ONE_ALLOCATION]   prints "ready", works, ends with SIGTERM
#include <cuda_runtime.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                \
  do {                                                                             \
    cudaError_t check_error = (call);                                              \
    if (check_error != cudaSuccess) {                                              \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(check_error));    \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

static volatile std::sig_atomic_t g_stop = 0;

__global__ void Touch(unsigned long long* cells, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) cells[i] = cells[i] * 6364136223846793005ull + 1442695040888963407ull;
}

// xorshift on the host: the executor of a software device would take minutes for gigabytes.
static void FillRandom(std::vector<uint64_t>* words, uint64_t* state) {
  for (uint64_t& word : *words) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    word = *state;
  }
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::signal(SIGTERM, [](int) { g_stop = 1; });
  const size_t piece = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64) << 20;
  const size_t total = std::strtoull(argv[1], nullptr, 10) << 20;
  std::vector<uint64_t> words(piece / sizeof(uint64_t));
  std::vector<unsigned long long*> pieces;
  uint64_t state = 88172645463325252ull;
  for (size_t have = 0; have < total; have += piece) {
    unsigned long long* memory = nullptr;
    CHECK(cudaMalloc(&memory, piece));
    FillRandom(&words, &state);
    CHECK(cudaMemcpy(memory, words.data(), piece, cudaMemcpyHostToDevice));
    pieces.push_back(memory);
  }
  words.clear();
  words.shrink_to_fit();
  std::printf("ready\n");
  std::fflush(stdout);
  unsigned long long turns = 0;
  while (g_stop == 0) {
    Touch<<<4, 64>>>(pieces[turns % pieces.size()], 256);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    ++turns;
  }
  std::printf("turns %llu\n", turns);
  return 0;
}

// Uses one of the devices that it sees, and later tries all of them.
//
// usage: devices USED COMMAND_FILE
// Prints "ready", and when the file is there: "count N", for each device "device I total BYTES first use:
// WHAT", and "kept SUM" of what it has had on the one that it uses.
#include <cuda_runtime.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define CHECK(call)                                                                             \
  do {                                                                                          \
    cudaError_t check_error = (call);                                                           \
    if (check_error != cudaSuccess) {                                                           \
      std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error)); \
      std::fflush(stdout);                                                                      \
      std::_Exit(3);                                                                            \
    }                                                                                           \
  } while (0)

constexpr int kCells = 4096;

__global__ void Fill(uint32_t* cells, uint32_t seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  cells[i] = (seed + i) * 2654435761u;
}

static uint32_t Sum(const uint32_t* cells) {
  std::vector<uint32_t> host(kCells);
  CHECK(cudaMemcpy(host.data(), cells, kCells * sizeof(uint32_t), cudaMemcpyDeviceToHost));
  uint32_t sum = 0;
  for (uint32_t cell : host) sum = sum * 31u + cell;
  return sum;
}

static uint32_t* Fresh(uint32_t seed) {
  uint32_t* cells = nullptr;
  CHECK(cudaMalloc(&cells, kCells * sizeof(uint32_t)));
  Fill<<<kCells / 256, 256>>>(cells, seed);
  CHECK(cudaGetLastError());
  return cells;
}

// Waits until the file exists. Its folder is watched, so that nothing is polled.
static void WaitFor(const char* path) {
  const std::string file(path), folder = file.substr(0, file.rfind('/'));
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) std::_Exit(4);
  while (access(path, F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

static std::string FirstUse(int device, uint32_t expected) {
  cudaError_t error = cudaSetDevice(device);
  void* probe = nullptr;
  if (error == cudaSuccess) error = cudaMalloc(&probe, 256);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return cudaGetErrorName(error);
  }
  CHECK(cudaFree(probe));
  return Sum(Fresh(1)) == expected ? "works" : "computes wrong";
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  int used = std::atoi(argv[1]), count = 0, now = 0;
  CHECK(cudaSetDevice(used));
  uint32_t* kept = Fresh(7);
  const uint32_t expected = Sum(Fresh(1));
  std::printf("ready\n");
  std::fflush(stdout);
  WaitFor(argv[2]);
  CHECK(cudaGetDeviceCount(&count));
  std::printf("count %d\n", count);
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, device));
    std::printf("device %d total %zu first use: %s\n", device, properties.totalGlobalMem,
                FirstUse(device, expected).c_str());
  }
  CHECK(cudaSetDevice(used));
  CHECK(cudaGetDevice(&now));
  std::printf("kept %u on %d\n", Sum(kept), now);
  return 0;
}

// Programs that cannot be paused at once, or not at all; each prints a line when it is where the test wants it, and goes
// on when it is told to by a line on its command file (argument 2), which the test creates.
//
// usage: stubborn MODE COMMAND_FILE    MODE: spin memory-graph managed broken plain hungry
#include <cuda_runtime.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    cudaError_t check_error = (call);                                                              \
    if (check_error != cudaSuccess) {                                                              \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error)); \
      std::_Exit(3);                                                                               \
    }                                                                                              \
  } while (0)

__global__ void Spin(volatile int* flag, int* result) {
  while (*flag == 0) {
  }
  *result = *flag * 6;
}

__global__ void Step(unsigned* cell) { *cell = *cell * 1664525u + 1013904223u; }

static void Say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

// Waits until the command file exists. Its folder is watched, so that nothing is polled.
static void WaitForCommand(const char* path) {
  const std::string file(path), folder = file.substr(0, file.rfind('/'));
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) std::_Exit(4);
  while (access(path, F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

// A kernel that ends only when the host says so, with a thread that waits for it inside the driver.
static void SpinUntilTold(const char* command) {
  int* flag;
  int* result;
  CHECK(cudaHostAlloc(&flag, sizeof(int), cudaHostAllocMapped));
  CHECK(cudaMalloc(&result, sizeof(int)));
  *flag = 0;
  Spin<<<1, 1>>>(flag, result);
  CHECK(cudaGetLastError());
  std::thread teller([&] {
    WaitForCommand(command);
    *const_cast<volatile int*>(flag) = 7;
  });
  Say("spinning");
  CHECK(cudaDeviceSynchronize());
  int value = 0;
  CHECK(cudaMemcpy(&value, result, sizeof value, cudaMemcpyDeviceToHost));
  teller.join();
  std::printf("result %d\n", value);
}

static void StepsAround(const char* command, void (*make)(unsigned* cell)) {
  unsigned* cell;
  CHECK(cudaMalloc(&cell, sizeof(unsigned)));
  CHECK(cudaMemset(cell, 1, sizeof(unsigned)));
  Step<<<1, 1>>>(cell);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  if (make != nullptr) make(cell);
  Say("ready");
  WaitForCommand(command);
  for (int i = 0; i < 1000; ++i) Step<<<1, 1>>>(cell);
  unsigned value = 0;
  CHECK(cudaMemcpy(&value, cell, sizeof value, cudaMemcpyDeviceToHost));
  std::printf("result %u\n", value);
}

// A graph whose node allocates: nobody can ask for the address again.
static void MakeMemoryGraph(unsigned*) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams allocate{};
  allocate.poolProps.allocType = cudaMemAllocationTypePinned;
  allocate.poolProps.location.type = cudaMemLocationTypeDevice;
  allocate.bytesize = 1 << 20;
  cudaGraphNode_t node, end;
  CHECK(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocate));
  CHECK(cudaGraphAddMemFreeNode(&end, graph, &node, 1, allocate.dptr));
}

static void MakeManaged(unsigned*) {
  unsigned* managed;
  CHECK(cudaMallocManaged(&managed, 1 << 20));
  managed[0] = 5;
  Step<<<1, 1>>>(managed);
  CHECK(cudaDeviceSynchronize());
}

static void BreakContext(const char* command) {
  Step<<<1, 1>>>(reinterpret_cast<unsigned*>(16));
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("broken %s\n", cudaGetErrorName(error));
  Say("ready");
  WaitForCommand(command);
  std::printf("still %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

// Keeps kKept of noise, and takes and gives back kMore again and again meanwhile: on a device of 256 MiB there is room for
// that, and for no copy of what is kept beside it.
constexpr size_t kKept = 80u << 20, kMore = 100u << 20;

static std::vector<uint64_t> Noise() {
  std::vector<uint64_t> words(kKept / sizeof(uint64_t));
  uint64_t state = 88172645463325252ull;
  for (uint64_t& word : words) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    word = state;
  }
  return words;
}

static void StepsWhileHungry(const char* command) {
  void* kept;
  CHECK(cudaMalloc(&kept, kKept));
  CHECK(cudaMemcpy(kept, Noise().data(), kKept, cudaMemcpyHostToDevice));
  std::atomic<bool> done{false};
  std::thread eater([&done] {
    while (!done) {
      void* more;
      CHECK(cudaMalloc(&more, kMore));
      CHECK(cudaFree(more));
      usleep(50000);  // most of the time it holds nothing
    }
  });
  StepsAround(command, nullptr);
  done = true;
  eater.join();
  std::vector<uint64_t> now(kKept / sizeof(uint64_t));
  CHECK(cudaMemcpy(now.data(), kept, kKept, cudaMemcpyDeviceToHost));
  if (now != Noise()) Say("what was kept has changed");
}

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "";
  if (mode == "spin") SpinUntilTold(argv[2]);
  else if (mode == "memory-graph") StepsAround(argv[2], MakeMemoryGraph);
  else if (mode == "managed") StepsAround(argv[2], MakeManaged);
  else if (mode == "plain") StepsAround(argv[2], nullptr);
  else if (mode == "hungry") StepsWhileHungry(argv[2]);
  else if (mode == "broken") BreakContext(argv[2]);
  else {
    std::fprintf(stderr, "usage: stubborn spin|memory-graph|managed|broken|plain|hungry COMMAND_FILE\n");
    return 2;
  }
  return 0;
}

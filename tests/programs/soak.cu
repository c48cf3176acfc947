// Workloads whose printed results do not depend on time or scheduling: integer arithmetic on device memory, mixed
// in a fixed order. Each mode puts its threads where a pause is hard; what it prints at the end is compared with an
// undisturbed run.
//
// usage: soak MODE ROUNDS    MODE: threads storm pool graphs events callbacks fork launches host
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    cudaError_t check_error = (call);                                                                 \
    if (check_error != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(check_error)); \
      std::_Exit(3);                                                                                  \
    }                                                                                                 \
  } while (0)

constexpr int kCells = 1 << 14;
constexpr size_t kBytes = kCells * sizeof(uint32_t);

__constant__ uint32_t g_multiplier = 1664525u;
__device__ uint32_t g_launches;

__global__ void Fill(uint32_t* cells, uint32_t seed) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kCells; i += gridDim.x * blockDim.x) cells[i] = seed + i;
}

__global__ void Mix(uint32_t* cells, uint32_t salt, int turns) {
  if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&g_launches, 1);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kCells; i += gridDim.x * blockDim.x) {
    uint32_t value = cells[i];
    for (int turn = 0; turn < turns; ++turn) value = value * g_multiplier + 1013904223u + (value >> 16) + salt;
    cells[i] = value;
  }
}

__global__ void Join(uint32_t* to, const uint32_t* from) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kCells; i += gridDim.x * blockDim.x)
    to[i] = to[i] * 31 + from[(i + 1) % kCells];
}

static uint64_t HashOf(const std::vector<uint32_t>& cells) {
  uint64_t hash = 1469598103934665603ull;
  for (uint32_t cell : cells) hash = (hash ^ cell) * 1099511628211ull;
  return hash;
}

static uint64_t HashOfDevice(const uint32_t* cells, cudaStream_t stream) {
  std::vector<uint32_t> copy(kCells);
  CHECK(cudaMemcpyAsync(copy.data(), cells, kBytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  return HashOf(copy);
}

static void Report(const char* what, int round, uint64_t hash) {
  std::printf("%s %d %016llx\n", what, round, static_cast<unsigned long long>(hash));
  std::fflush(stdout);
}

static uint32_t* NewCells(uint32_t seed, cudaStream_t stream) {
  uint32_t* cells = nullptr;
  CHECK(cudaMalloc(&cells, kBytes));
  Fill<<<8, 128, 0, stream>>>(cells, seed);
  CHECK(cudaGetLastError());
  return cells;
}

// Several threads, each with a stream of its own, most of the time blocked in one of the synchronising calls.
static uint64_t ThreadWork(int index, int rounds) {
  cudaStream_t stream;
  cudaEvent_t event;
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, index % 2 == 0 ? cudaEventDisableTiming : cudaEventBlockingSync));
  uint32_t* cells = NewCells(static_cast<uint32_t>(index) * 7919u, stream);
  uint64_t hash = 0;
  for (int round = 0; round < rounds; ++round) {
    Mix<<<8, 128, 0, stream>>>(cells, static_cast<uint32_t>(round), 200);
    CHECK(cudaGetLastError());
    switch ((round + index) % 4) {
      case 0: CHECK(cudaStreamSynchronize(stream)); break;
      case 1:
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        break;
      case 2: CHECK(cudaDeviceSynchronize()); break;
      default: hash = hash * 31 + HashOfDevice(cells, stream);
    }
  }
  hash = hash * 31 + HashOfDevice(cells, stream);
  CHECK(cudaFree(cells));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  return hash;
}

static void Threads(int rounds) {
  constexpr int kThreads = 4;
  std::vector<uint64_t> hashes(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&hashes, i, rounds] { hashes[static_cast<size_t>(i)] = ThreadWork(i, rounds); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) Report("thread", i, hashes[static_cast<size_t>(i)]);
}

// Allocations of many sizes come and go; every live one carries a pattern that is checked when it goes.
static void Storm(int rounds) {
  struct Block {
    uint32_t* memory;
    size_t words;
    uint32_t mark;
  };
  std::vector<Block> live;
  uint32_t random = 12345;
  auto next = [&random] { return random = random * 1664525u + 1013904223u; };
  uint64_t hash = 0;
  for (int round = 0; round < rounds; ++round) {
    if (live.size() < 60 && next() % 3 != 0) {
      const size_t words = 1 + (next() >> 8) % (next() % 10 == 0 ? 1500000 : 3000);
      uint32_t* memory = nullptr;
      CHECK(cudaMalloc(&memory, words * sizeof(uint32_t)));
      CHECK(cudaMemset(memory, static_cast<int>(round & 0xff), words * sizeof(uint32_t)));
      live.push_back({memory, words, static_cast<uint32_t>(round & 0xff) * 0x01010101u});
    } else if (!live.empty()) {
      const size_t victim = (next() >> 8) % live.size();
      const Block block = live[victim];
      live.erase(live.begin() + static_cast<long>(victim));
      std::vector<uint32_t> copy(block.words);
      CHECK(cudaMemcpy(copy.data(), block.memory, block.words * sizeof(uint32_t), cudaMemcpyDeviceToHost));
      for (uint32_t word : copy)
        if (word != block.mark) {
          std::printf("storm %d: a block of %zu words lost its pattern\n", round, block.words);
          std::_Exit(4);
        }
      hash = hash * 31 + HashOf(copy);
      CHECK(cudaFree(block.memory));
    }
    if (round % 50 == 49) Report("storm", round, hash);
  }
  for (const Block& block : live) CHECK(cudaFree(block.memory));
  Report("storm", rounds, hash);
}

// Stream-ordered allocation on several streams.
static void Pool(int rounds) {
  constexpr int kStreams = 3;
  cudaStream_t streams[kStreams];
  uint64_t hashes[kStreams] = {};
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kStreams; ++i) {
      uint32_t* cells = nullptr;
      CHECK(cudaMallocAsync(&cells, kBytes, streams[i]));
      Fill<<<8, 128, 0, streams[i]>>>(cells, static_cast<uint32_t>(round * kStreams + i));
      Mix<<<8, 128, 0, streams[i]>>>(cells, 5, 50);
      CHECK(cudaGetLastError());
      hashes[i] = hashes[i] * 31 + HashOfDevice(cells, streams[i]);
      CHECK(cudaFreeAsync(cells, streams[i]));
    }
    if (round % 50 == 49) Report("pool", round, hashes[0] ^ hashes[1] ^ hashes[2]);
  }
  for (int i = 0; i < kStreams; ++i) {
    CHECK(cudaStreamSynchronize(streams[i]));
    CHECK(cudaStreamDestroy(streams[i]));
    Report("stream", i, hashes[i]);
  }
}

// One captured graph launched over and over, another captured afresh every few rounds.
static void Graphs(int rounds) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  uint32_t* a = NewCells(1, stream);
  uint32_t* b = NewCells(2, stream);
  auto capture = [&](uint32_t salt) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    Mix<<<8, 128, 0, stream>>>(a, salt, 30);
    Join<<<8, 128, 0, stream>>>(b, a);
    CHECK(cudaMemcpyAsync(a, b, kBytes / 2, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
  };
  cudaGraphExec_t keep = capture(77);
  for (int round = 0; round < rounds; ++round) {
    CHECK(cudaGraphLaunch(keep, stream));
    if (round % 8 == 3) {
      cudaGraphExec_t fresh = capture(static_cast<uint32_t>(round));
      CHECK(cudaGraphLaunch(fresh, stream));
      CHECK(cudaStreamSynchronize(stream));
      CHECK(cudaGraphExecDestroy(fresh));
    }
    if (round % 50 == 49) Report("graphs", round, HashOfDevice(b, stream));
  }
  Report("graphs", rounds, HashOfDevice(a, stream) ^ HashOfDevice(b, stream));
  CHECK(cudaGraphExecDestroy(keep));
  CHECK(cudaFree(a));
  CHECK(cudaFree(b));
  CHECK(cudaStreamDestroy(stream));
}

// Two streams hand work to each other through events, recorded again and again.
static void Events(int rounds) {
  cudaStream_t streams[2];
  cudaEvent_t done[2];
  uint32_t* cells[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&done[i]));
    cells[i] = NewCells(static_cast<uint32_t>(i), streams[i]);
    CHECK(cudaEventRecord(done[i], streams[i]));
  }
  cudaEvent_t begin;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventRecord(begin, streams[0]));
  for (int round = 0; round < rounds; ++round) {
    const int to = round % 2, from = 1 - to;
    CHECK(cudaStreamWaitEvent(streams[to], done[from], 0));
    Join<<<8, 128, 0, streams[to]>>>(cells[to], cells[from]);
    Mix<<<8, 128, 0, streams[to]>>>(cells[to], 9, 40);
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(done[to], streams[to]));
    if (round % 10 == 9) {
      CHECK(cudaEventSynchronize(done[to]));
      CHECK(cudaEventQuery(done[to]));
      float milliseconds = -1;
      CHECK(cudaEventElapsedTime(&milliseconds, begin, done[to]));
      if (!(milliseconds >= 0)) {
        std::printf("events %d: %f ms since the begin\n", round, static_cast<double>(milliseconds));
        std::_Exit(4);
      }
    }
    if (round % 50 == 49) Report("events", round, HashOfDevice(cells[to], streams[to]));
  }
  for (int i = 0; i < 2; ++i) {
    Report("cells", i, HashOfDevice(cells[i], streams[i]));
    CHECK(cudaFree(cells[i]));
    CHECK(cudaEventDestroy(done[i]));
    CHECK(cudaStreamDestroy(streams[i]));
  }
  CHECK(cudaEventDestroy(begin));
}

// Host functions in the middle of a stream's work.
static void Callbacks(int rounds) {
  struct Tally {
    uint32_t* pinned;
    uint64_t hash = 0;
  } tally;
  CHECK(cudaMallocHost(&tally.pinned, kBytes));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  uint32_t* cells = NewCells(3, stream);
  for (int round = 0; round < rounds; ++round) {
    Mix<<<8, 128, 0, stream>>>(cells, static_cast<uint32_t>(round), 60);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(tally.pinned, cells, kBytes, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaLaunchHostFunc(stream, [](void* data) {
      Tally* to = static_cast<Tally*>(data);
      to->hash = to->hash * 31 + HashOf(std::vector<uint32_t>(to->pinned, to->pinned + kCells));
      to->pinned[0] ^= 0x5a5a5a5au;
    }, &tally));
    CHECK(cudaMemcpyAsync(cells, tally.pinned, kBytes, cudaMemcpyHostToDevice, stream));
    if (round % 50 == 49) {
      CHECK(cudaStreamSynchronize(stream));
      Report("callbacks", round, tally.hash);
    }
  }
  CHECK(cudaStreamSynchronize(stream));
  Report("callbacks", rounds, tally.hash);
  CHECK(cudaFree(cells));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFreeHost(tally.pinned));
}

// Pinned, registered and mapped host memory, written by kernels.
static void Host(int rounds) {
  uint32_t *mapped, *device_view;
  CHECK(cudaHostAlloc(&mapped, kBytes, cudaHostAllocMapped | cudaHostAllocPortable));
  CHECK(cudaHostGetDevicePointer(&device_view, mapped, 0));
  void* plain = nullptr;
  if (posix_memalign(&plain, 4096, kBytes) != 0) std::_Exit(5);
  CHECK(cudaHostRegister(plain, kBytes, cudaHostRegisterMapped));
  uint32_t* registered = nullptr;
  CHECK(cudaHostGetDevicePointer(&registered, plain, 0));
  Fill<<<8, 128>>>(device_view, 21);
  Fill<<<8, 128>>>(registered, 22);
  for (int round = 0; round < rounds; ++round) {
    Mix<<<8, 128>>>(device_view, static_cast<uint32_t>(round), 30);
    Join<<<8, 128>>>(registered, device_view);
    CHECK(cudaGetLastError());
    if (round % 50 == 49) {
      CHECK(cudaDeviceSynchronize());
      mapped[round % kCells] += 1;
      Report("host", round, HashOf(std::vector<uint32_t>(mapped, mapped + kCells)));
    }
  }
  CHECK(cudaDeviceSynchronize());
  const uint32_t* words = static_cast<uint32_t*>(plain);
  Report("host", rounds, HashOf(std::vector<uint32_t>(words, words + kCells)));
  CHECK(cudaHostUnregister(plain));
  std::free(plain);
  CHECK(cudaFreeHost(mapped));
}

// A worker without CUDA: answers every number that it is sent.
static int Worker(int in, int out) {
  uint64_t value;
  while (read(in, &value, sizeof value) == static_cast<ssize_t>(sizeof value)) {
    value = value * 6364136223846793005ull + 1442695040888963407ull;
    if (write(out, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) return 1;
  }
  return 0;
}

struct Child {
  pid_t pid;
  int to, from;
};

// `others`: their ends must not stay open in the new one, or they would never see the end of their input.
static Child StartWorker(const char* self, bool exec, const std::vector<Child>& others) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) std::_Exit(5);
  const pid_t pid = fork();
  if (pid == 0) {
    for (const Child& other : others) {
      close(other.to);
      close(other.from);
    }
    close(down[1]);
    close(up[0]);
    if (exec) {
      const std::string in = std::to_string(down[0]), out = std::to_string(up[1]);
      execl(self, self, "worker", in.c_str(), out.c_str(), static_cast<char*>(nullptr));
      std::_Exit(6);
    }
    std::_Exit(Worker(down[0], up[1]));
  }
  close(down[0]);
  close(up[1]);
  return {pid, down[1], up[0]};
}

static void Fork(const char* self, int rounds) {
  std::vector<Child> children;
  for (bool exec : {false, true}) children.push_back(StartWorker(self, exec, children));
  uint32_t* cells = NewCells(11, nullptr);
  for (bool exec : {false, true}) children.push_back(StartWorker(self, exec, children));  // with a context here
  uint64_t hash = 1;
  for (int round = 0; round < rounds; ++round) {
    Mix<<<8, 128>>>(cells, static_cast<uint32_t>(hash), 50);
    CHECK(cudaGetLastError());
    hash = hash * 31 + HashOfDevice(cells, nullptr);
    for (const Child& child : children) {
      if (write(child.to, &hash, sizeof hash) != static_cast<ssize_t>(sizeof hash) ||
          read(child.from, &hash, sizeof hash) != static_cast<ssize_t>(sizeof hash))
        std::_Exit(7);
    }
    if (round % 50 == 49) Report("fork", round, hash);
  }
  for (const Child& child : children) {
    close(child.to);
    int status = -1;
    if (waitpid(child.pid, &status, 0) != child.pid || status != 0) std::_Exit(8);
    close(child.from);
  }
  Report("fork", rounds, hash);
  CHECK(cudaFree(cells));
}

// As many launches as the device takes, never waiting until the end.
static void Launches(int rounds) {
  uint32_t* cells = NewCells(4, nullptr);
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 10; ++i) Mix<<<2, 64>>>(cells, static_cast<uint32_t>(i), 1);
    CHECK(cudaGetLastError());
    if (round % 50 == 49) Report("launches", round, HashOfDevice(cells, nullptr));
  }
  uint32_t launches = 0;
  CHECK(cudaMemcpyFromSymbol(&launches, g_launches, sizeof launches));
  Report("launches", static_cast<int>(launches), HashOfDevice(cells, nullptr));
  CHECK(cudaFree(cells));
}

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "worker" && argc == 4) return Worker(std::atoi(argv[2]), std::atoi(argv[3]));
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 0;
  if (mode == "threads") Threads(rounds);
  else if (mode == "storm") Storm(rounds);
  else if (mode == "pool") Pool(rounds);
  else if (mode == "graphs") Graphs(rounds);
  else if (mode == "events") Events(rounds);
  else if (mode == "callbacks") Callbacks(rounds);
  else if (mode == "host") Host(rounds);
  else if (mode == "fork") Fork(argv[0], rounds);
  else if (mode == "launches") Launches(rounds);
  else {
    std::fprintf(stderr, "usage: soak threads|storm|pool|graphs|events|callbacks|host|fork|launches ROUNDS\n");
    return 2;
  }
  std::printf("done\n");
  return 0;
}

// Ranks of NCCL, at work until they have done their rounds: what they end with does not depend on when what ran, nor
// on where. A test disturbs the program while it runs.
//
// usage: nccl_ranks threads|group|churn RANKS ROUNDS SEED [FIRST COUNT FOLDER]
//   FIRST COUNT  the ranks of this process, without them all; unique ids go through files in FOLDER
//   threads  a thread for each rank: collectives, messages, groups; two streams, a communicator split off, an
//            operator, registered memory
//   group    one thread for all ranks
//   churn    a thread for each rank: communicators are made, split and shrunk, used once and destroyed
// Prints "ready", begins at the end of its input, prints "round N" now and then, and "rank R HASH" for each rank.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

constexpr size_t kCells = 1024;  // of each buffer; a multiple of every number of ranks

static void Fail(const char* call, const char* what) {
  std::printf("%s: %s\n", call, what);
  std::fflush(stdout);
  std::_Exit(1);
}
static void Check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) Fail(call, cudaGetErrorName(error));
}
static void Check(ncclResult_t result, const char* call) {
  if (result != ncclSuccess) Fail(call, ncclGetErrorString(result));
}
#define CHECK(call) Check(call, #call)

static int ranks, rounds, devices;
static unsigned seed;
static std::string folder;  // empty: all ranks are here

// Keeps values small, and each rank's different.
__global__ void Mix(int* cells, int salt) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  cells[i] = (cells[i] * 31 + salt + i) & 0xffff;
}

struct Rank {
  int rank = 0;
  ncclComm_t world = nullptr, half = nullptr;
  cudaStream_t stream[2] = {};
  int *a = nullptr, *b = nullptr, *wide = nullptr;
  std::mt19937 random;

  void SetDevice() { CHECK(cudaSetDevice(rank % devices)); }
  void Open() {
    SetDevice();
    for (cudaStream_t& s : stream) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int** cells : {&a, &b}) CHECK(cudaMalloc(cells, kCells * sizeof(int)));
    CHECK(cudaMalloc(&wide, ranks * kCells * sizeof(int)));
    CHECK(cudaMemset(a, 0, kCells * sizeof(int)));
    CHECK(cudaMemset(b, 0, kCells * sizeof(int)));
    CHECK(cudaMemset(wide, 0, ranks * kCells * sizeof(int)));
    CHECK(cudaDeviceSynchronize());
    random.seed(seed * 1000 + rank);
  }
  void Close() {
    SetDevice();
    for (cudaStream_t s : stream) CHECK(cudaStreamDestroy(s));
    for (int* cells : {a, b, wide}) CHECK(cudaFree(cells));
  }
  void Change(int* cells, int salt, cudaStream_t s) {
    Mix<<<kCells / 256, 256, 0, s>>>(cells, salt);
    CHECK(cudaGetLastError());
  }
  // Ranks are never at the same place for long. They are slower until the file exists that PACE_UNTIL names.
  void Dawdle() {
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 1500));
    static const char* const until = std::getenv("PACE_UNTIL");
    if (until != nullptr && access(until, F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
  }
  void Sync() {
    for (cudaStream_t s : stream) CHECK(cudaStreamSynchronize(s));
  }
  void Print() {
    SetDevice();
    std::vector<int> cells(kCells * (2 + ranks));
    CHECK(cudaMemcpy(cells.data(), a, kCells * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(cells.data() + kCells, b, kCells * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(cells.data() + 2 * kCells, wide, ranks * kCells * sizeof(int), cudaMemcpyDeviceToHost));
    unsigned hash = 2166136261u;
    for (int cell : cells) hash = (hash ^ static_cast<unsigned>(cell)) * 16777619u;
    std::printf("rank %d %08x\n", rank, hash);
  }
};

static void Report(int round) {
  if (round % 10 != 0) return;
  std::printf("round %d\n", round);
  std::fflush(stdout);
}

// A message to the next rank and one from the rank before.
static void Ring(Rank& me, ncclComm_t comm, int* from, int* to, cudaStream_t stream) {
  CHECK(ncclSend(from, kCells, ncclInt, (me.rank + 1) % ranks, comm, stream));
  CHECK(ncclRecv(to, kCells, ncclInt, (me.rank + ranks - 1) % ranks, comm, stream));
}

static void ThreadRound(Rank& me, ncclRedOp_t twice, int round) {
  cudaStream_t s = me.stream[0], t = me.stream[1];
  me.Change(me.a, me.rank + round, s);
  CHECK(ncclAllReduce(me.a, me.a, kCells, ncclInt, round % 3 == 0 ? twice : ncclSum, me.world, s));
  me.Dawdle();
  CHECK(ncclGroupStart());
  Ring(me, me.world, me.a, me.wide, s);
  CHECK(ncclGroupEnd());
  me.Change(me.b, me.rank * 7 + round, t);
  CHECK(ncclAllReduce(me.b, me.b, kCells, ncclInt, ncclMax, me.half, t));
  me.Dawdle();
  if (ranks % 2 == 0 && round % 4 == 0) {
    const int other = me.rank ^ 1;
    if (me.rank % 2 == 0) CHECK(ncclSend(me.b, kCells, ncclInt, other, me.world, t));
    if (me.rank % 2 == 1) CHECK(ncclRecv(me.b, kCells, ncclInt, other, me.world, t));
  }
  if (round % 5 == 0) me.Sync();
  CHECK(ncclBroadcast(me.a, me.a, kCells, ncclInt, round % ranks, me.world, s));
  CHECK(ncclAllGather(me.a, me.wide, kCells, ncclInt, me.world, s));
  me.Change(me.a, me.rank, s);
  me.Sync();
}

// Ids for the ranks' common rounds: rank 0 gets one, the others take it.
static std::mutex exchange;
static std::condition_variable exchanged;
static std::vector<ncclUniqueId> ids;

static void Publish(const ncclUniqueId& id, size_t round) {
  const std::string name = folder + "/id" + std::to_string(round);
  std::FILE* file = std::fopen((name + ".new").c_str(), "wb");
  if (file == nullptr || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0 ||
      std::rename((name + ".new").c_str(), name.c_str()) != 0)
    Fail(name.c_str(), "cannot be written");
}

static ncclUniqueId Read(size_t round) {
  const std::string name = folder + "/id" + std::to_string(round);
  ncclUniqueId id;
  for (;;) {
    if (std::FILE* file = std::fopen(name.c_str(), "rb")) {
      if (std::fread(&id, sizeof id, 1, file) != 1) Fail(name.c_str(), "is cut short");
      std::fclose(file);
      return id;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

static ncclUniqueId IdOfRound(const Rank& me, size_t round) {
  if (me.rank != 0 && !folder.empty()) return Read(round);
  if (me.rank == 0) {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id));
    if (!folder.empty()) Publish(id, round);
    std::lock_guard<std::mutex> lock(exchange);
    ids.push_back(id);
    exchanged.notify_all();
    return id;
  }
  std::unique_lock<std::mutex> lock(exchange);
  exchanged.wait(lock, [round] { return ids.size() > round; });
  return ids[round];
}

static void RunThread(Rank& me) {
  me.Open();
  CHECK(ncclCommInitRank(&me.world, ranks, IdOfRound(me, 0), me.rank));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  CHECK(ncclCommSplit(me.world, me.rank % 2, -me.rank, &me.half, &config));
  ncclRedOp_t twice;
  int two = 2;
  CHECK(ncclRedOpCreatePreMulSum(&twice, &two, ncclInt, ncclScalarHostImmediate, me.world));
  void* registered = nullptr;
  CHECK(ncclCommRegister(me.world, me.a, kCells * sizeof(int), &registered));
  for (int round = 1; round <= rounds; ++round) {
    ThreadRound(me, twice, round);
    if (me.rank == 0) Report(round);
  }
  if (registered != nullptr) CHECK(ncclCommDeregister(me.world, registered));
  CHECK(ncclRedOpDestroy(twice, me.world));
  int count = 0, rank = -1, device = -1;
  CHECK(ncclCommCount(me.world, &count));
  CHECK(ncclCommUserRank(me.world, &rank));
  CHECK(ncclCommCuDevice(me.world, &device));
  if (count != ranks || rank != me.rank || device != me.rank % devices) Fail("the communicator", "is another");
  CHECK(ncclCommUserRank(me.half, &rank));
  if (rank != (ranks - 1 - me.rank) / 2) Fail("the split", "is another");
  CHECK(ncclCommDestroy(me.half));
  CHECK(ncclCommFinalize(me.world));
  CHECK(ncclCommDestroy(me.world));
}

static void InThreads(std::vector<Rank>& all, void (*run)(Rank&)) {
  std::vector<std::thread> threads;
  for (Rank& rank : all) threads.emplace_back([&rank, run] { run(rank); });
  for (std::thread& thread : threads) thread.join();
}

// All ranks but one make a communicator of their own, twice.
static void Shrink(Rank& me, int excluded) {
  if (ranks == 1 || me.rank == excluded) return;
  for (int i = 0; i < 2; ++i) {
    ncclComm_t rest;
    CHECK(ncclCommShrink(me.world, &excluded, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
    CHECK(ncclAllReduce(me.b, me.b, kCells, ncclInt, ncclMax, rest, me.stream[0]));
    me.Dawdle();
    me.Sync();
    CHECK(ncclCommDestroy(rest));
  }
}

static void Churn(Rank& me) {
  me.Open();
  for (int round = 0; round < rounds; ++round) {
    const ncclUniqueId id = IdOfRound(me, static_cast<size_t>(round));
    me.Dawdle();
    CHECK(ncclCommInitRank(&me.world, ranks, id, me.rank));
    me.Change(me.a, me.rank + round, me.stream[0]);
    CHECK(ncclAllReduce(me.a, me.a, kCells, ncclInt, ncclSum, me.world, me.stream[0]));
    me.Dawdle();
    ncclComm_t part;
    CHECK(ncclCommSplit(me.world, me.rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, nullptr));
    if ((part == nullptr) != (me.rank == 0)) Fail("ncclCommSplit", "a communicator for the wrong ranks");
    if (part != nullptr) CHECK(ncclAllReduce(me.a, me.b, kCells, ncclInt, ncclSum, part, me.stream[0]));
    me.Sync();
    if (part != nullptr) CHECK(ncclCommDestroy(part));
    Shrink(me, round % ranks);
    // All ranks meet, on the host: nobody ends it while others still make something of it, and no device waits for a
    // rank that frees memory.
    CHECK(ncclCommSplit(me.world, NCCL_SPLIT_NOCOLOR, 0, &part, nullptr));
    CHECK(ncclCommDestroy(me.world));
    if (me.rank == 0) Report(round + 1);
  }
}

static void RunGroup(std::vector<Rank>& all) {
  for (Rank& me : all) me.Open();
  std::vector<ncclComm_t> comms(all.size());
  std::vector<int> list;
  for (const Rank& me : all) list.push_back(me.rank % devices);
  CHECK(ncclCommInitAll(comms.data(), ranks, list.data()));
  for (Rank& me : all) me.world = comms[static_cast<size_t>(me.rank)];
  for (int round = 1; round <= rounds; ++round) {
    for (Rank& me : all) {
      me.SetDevice();
      me.Change(me.a, me.rank + round, me.stream[0]);
    }
    CHECK(ncclGroupStart());
    for (Rank& me : all) CHECK(ncclAllReduce(me.a, me.b, kCells, ncclInt, ncclSum, me.world, me.stream[0]));
    CHECK(ncclGroupEnd());
    all[0].Dawdle();
    CHECK(ncclGroupStart());
    for (Rank& me : all) Ring(me, me.world, me.b, me.wide, me.stream[0]);
    CHECK(ncclGroupEnd());
    CHECK(ncclGroupStart());
    for (Rank& me : all)
      CHECK(ncclReduceScatter(me.b, me.a, kCells / ranks, ncclInt, ncclMin, me.world, me.stream[0]));
    CHECK(ncclGroupEnd());
    Report(round);
  }
  for (Rank& me : all) {
    me.SetDevice();
    me.Sync();
  }
  for (Rank& me : all) CHECK(ncclCommDestroy(me.world));
}

int main(int argc, char** argv) {
  if (argc != 5 && argc != 8) return 2;
  ranks = std::atoi(argv[2]);
  rounds = std::atoi(argv[3]);
  seed = static_cast<unsigned>(std::atoi(argv[4]));
  CHECK(cudaGetDeviceCount(&devices));
  const int first = argc == 8 ? std::atoi(argv[5]) : 0, count = argc == 8 ? std::atoi(argv[6]) : ranks;
  if (argc == 8) folder = argv[7];
  std::vector<Rank> all(static_cast<size_t>(count));
  for (int r = 0; r < count; ++r) all[static_cast<size_t>(r)].rank = first + r;
  std::printf("ready\n");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  const char* how = argv[1];
  if (std::strcmp(how, "threads") == 0) InThreads(all, RunThread);
  if (std::strcmp(how, "churn") == 0) InThreads(all, Churn);
  if (std::strcmp(how, "group") == 0) RunGroup(all);
  for (Rank& me : all) me.Print();
  for (Rank& me : all) me.Close();
}

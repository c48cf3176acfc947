// Two ranks of NCCL in one process, one step for each line of standard input: `STEP RANK` is done by that rank's
// thread, `STEP` by the main thread. Each answers with a line `STEP [RANK] RESULT...` when it is done, so that a test
// can disturb the program between, and within, any two of them.
#include <cuda_runtime.h>
#include <nccl.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

constexpr int kRanks = 2;
constexpr size_t kCells = 1 << 12;

static void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(error));
  std::fflush(stdout);
  std::_Exit(1);
}
#define CHECK(call) Check(call, #call)

static const char* Name(ncclResult_t result) {
  static const char* const names[] = {"ncclSuccess",         "ncclUnhandledCudaError", "ncclSystemError",
                                      "ncclInternalError",   "ncclInvalidArgument",    "ncclInvalidUsage",
                                      "ncclRemoteError",     "ncclInProgress"};
  return result >= 0 && result < 8 ? names[result] : "?";
}

static void Say(const std::string& line) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

static ncclUniqueId id;
static ncclComm_t comm[kRanks], child[kRanks];
static cudaStream_t stream[kRanks];
static int* cells[kRanks];
static void* registered[kRanks];
static ncclWindow_t window[kRanks];
static int* window_cells[kRanks];
static ncclRedOp_t op[kRanks];
static float* scalar[kRanks];
static cudaGraph_t graph[kRanks];
static cudaGraphExec_t exec[kRanks];
static int devices;

// What each rank has in its first cell once its stream is done.
static std::string Value(int r) {
  int value = 0;
  CHECK(cudaMemcpyAsync(&value, cells[r], sizeof value, cudaMemcpyDeviceToHost, stream[r]));
  CHECK(cudaStreamSynchronize(stream[r]));
  return std::to_string(value);
}

static void Fill(int r, int value) {
  std::vector<int> fill(kCells, value);
  CHECK(cudaMemcpy(cells[r], fill.data(), kCells * sizeof(int), cudaMemcpyHostToDevice));
}

static std::string Open(int r) {
  CHECK(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
  CHECK(cudaMalloc(&cells[r], kCells * sizeof(int)));
  CHECK(cudaMalloc(&scalar[r], sizeof(float)));
  CHECK(cudaMalloc(&window_cells[r], 1 << 21));
  Fill(r, r + 1);
  return "";
}

// The buffers are NCCL's own kind of memory.
static std::string OpenShared(int r) {
  CHECK(cudaStreamCreateWithFlags(&stream[r], cudaStreamNonBlocking));
  void* memory = nullptr;
  const ncclResult_t result = ncclMemAlloc(&memory, kCells * sizeof(int));
  cells[r] = static_cast<int*>(memory);
  if (result == ncclSuccess) Fill(r, r + 1);
  return Name(result);
}

static ncclResult_t Wait(ncclComm_t c) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (const ncclResult_t result = ncclCommGetAsyncError(c, &state); result != ncclSuccess) return result;
    std::this_thread::yield();
  }
  return state;
}

static ncclResult_t Polite(int r) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = ncclCommInitRankConfig(&comm[r], kRanks, id, r, &config);
  return result == ncclInProgress ? Wait(comm[r]) : result;
}

// What does not block may put its handle in place later: the parent tells when.
static ncclResult_t PoliteSplit(int r) {
  const ncclResult_t result = ncclCommSplit(comm[r], 0, 1 - r, &child[r], nullptr);
  return result == ncclInProgress ? Wait(comm[r]) : result;
}

static ncclResult_t PoliteWindow(int r) {
  const ncclResult_t result =
      ncclCommWindowRegister(comm[r], window_cells[r], 1 << 21, &window[r], NCCL_WIN_DEFAULT);
  return result == ncclInProgress ? Wait(comm[r]) : result;
}

static ncclResult_t Reduce(int r, ncclComm_t c) {
  return ncclAllReduce(cells[r], cells[r], kCells, ncclInt, ncclSum, c, stream[r]);
}

static ncclResult_t Operator(int r) {
  const float half = 0.5f;
  CHECK(cudaMemcpy(scalar[r], &half, sizeof half, cudaMemcpyHostToDevice));
  return ncclRedOpCreatePreMulSum(&op[r], scalar[r], ncclFloat, ncclScalarDevice, comm[r]);
}

// The sum of both ranks' 3.0 times the operator's scalar.
static std::string Floats(int r) {
  const std::vector<float> three(kCells, 3.0f);
  std::vector<float> got(kCells);
  CHECK(cudaMemcpy(cells[r], three.data(), kCells * sizeof(float), cudaMemcpyHostToDevice));
  const ncclResult_t result = ncclAllReduce(cells[r], cells[r], kCells, ncclFloat, op[r], comm[r], stream[r]);
  CHECK(cudaMemcpyAsync(got.data(), cells[r], kCells * sizeof(float), cudaMemcpyDeviceToHost, stream[r]));
  CHECK(cudaStreamSynchronize(stream[r]));
  Fill(r, r + 1);
  return std::string(Name(result)) + " " + std::to_string(got[kCells - 1]);
}

static std::string Capture(int r) {
  CHECK(cudaStreamBeginCapture(stream[r], cudaStreamCaptureModeThreadLocal));
  const ncclResult_t result = Reduce(r, comm[r]);
  CHECK(cudaStreamEndCapture(stream[r], &graph[r]));
  CHECK(cudaGraphInstantiate(&exec[r], graph[r], 0));
  return Name(result);
}

static std::string Async(int r) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm[r], &state);
  return std::string(Name(result)) + " " + Name(state);
}

static std::string Facts(int r) {
  int size = -1, rank = -1, device = -1;
  const ncclResult_t results[] = {ncclCommCount(comm[r], &size), ncclCommUserRank(comm[r], &rank),
                                  ncclCommCuDevice(comm[r], &device)};
  std::ostringstream line;
  line << Name(results[0]) << " " << Name(results[1]) << " " << Name(results[2]) << " " << size << " " << rank << " "
       << device;
  return line.str();
}

static std::string DropGraph(int r) {
  CHECK(cudaGraphExecDestroy(exec[r]));
  CHECK(cudaGraphDestroy(graph[r]));
  return "";
}

static std::map<std::string, std::function<std::string(int)>> RankSteps() {
  return {
      {"open", Open},
      {"open-shared", OpenShared},
      {"close-shared", [](int r) { return Name(ncclMemFree(cells[r])); }},
      {"init", [](int r) { return Name(ncclCommInitRank(&comm[r], kRanks, id, r)); }},
      {"init-polite", [](int r) { return Name(Polite(r)); }},
      {"reduce", [](int r) { return Name(Reduce(r, comm[r])); }},
      {"reduce-child", [](int r) { return Name(Reduce(r, child[r])); }},
      {"send", [](int r) { return Name(ncclSend(cells[r], kCells, ncclInt, 1 - r, comm[r], stream[r])); }},
      {"receive", [](int r) { return Name(ncclRecv(cells[r], kCells, ncclInt, 1 - r, comm[r], stream[r])); }},
      {"group-start", [](int) { return Name(ncclGroupStart()); }},
      {"group-end", [](int) { return Name(ncclGroupEnd()); }},
      {"split", [](int r) { return Name(ncclCommSplit(comm[r], 0, 1 - r, &child[r], nullptr)); }},
      {"split-polite", [](int r) { return Name(PoliteSplit(r)); }},
      {"window-polite", [](int r) { return Name(PoliteWindow(r)); }},
      {"wait-child", [](int r) { return Name(Wait(child[r])); }},
      {"value", Value},
      {"fill", [](int r) { return Fill(r, r + 1), ""; }},
      {"register",
       [](int r) { return Name(ncclCommRegister(comm[r], cells[r], kCells * sizeof(int), &registered[r])); }},
      {"deregister", [](int r) { return Name(ncclCommDeregister(comm[r], registered[r])); }},
      {"window",
       [](int r) {
         return Name(ncclCommWindowRegister(comm[r], window_cells[r], 1 << 21, &window[r], NCCL_WIN_DEFAULT));
       }},
      {"drop-window", [](int r) { return Name(ncclCommWindowDeregister(comm[r], window[r])); }},
      {"operator", [](int r) { return Name(Operator(r)); }},
      {"floats", Floats},
      {"drop-operator", [](int r) { return Name(ncclRedOpDestroy(op[r], comm[r])); }},
      {"capture", Capture},
      {"launch", [](int r) { return cudaGetErrorName(cudaGraphLaunch(exec[r], stream[r])); }},
      {"drop-graph", DropGraph},
      {"async", Async},
      {"facts", Facts},
      {"error", [](int r) { return std::string(ncclGetLastError(comm[r])); }},
      {"finalize", [](int r) { return Name(ncclCommFinalize(comm[r])); }},
      {"destroy", [](int r) { return Name(ncclCommDestroy(comm[r])); }},
      {"destroy-child", [](int r) { return Name(ncclCommDestroy(child[r])); }},
      {"abort", [](int r) { return Name(ncclCommAbort(comm[r])); }},
      {"revoke", [](int r) { return Name(ncclCommRevoke(comm[r], NCCL_REVOKE_DEFAULT)); }},
      {"sync", [](int r) { return cudaGetErrorName(cudaStreamSynchronize(stream[r])); }},
  };
}

static std::map<std::string, std::function<std::string()>> MainSteps() {
  return {
      {"id", [] { return Name(ncclGetUniqueId(&id)); }},
      {"show-id",
       [] {
         std::string hex;
         char digits[3];
         for (const char byte : id.internal) {
           std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
           hex += digits;
         }
         return hex;
       }},
      {"init-all", [] { return Name(ncclCommInitAll(comm, kRanks, nullptr)); }},
      {"abort-0", [] { return Name(ncclCommAbort(comm[0])); }},
      {"abort-1", [] { return Name(ncclCommAbort(comm[1])); }},
      {"handles",
       [] {
         std::ostringstream line;
         line << comm[0] << " " << comm[1] << " " << child[0] << " " << child[1];
         return line.str();
       }},
  };
}

// An id that another process has shown.
static void TakeId(const std::string& hex) {
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  Say("take-id");
}

// Does what it is given, one after the other.
class Worker {
 public:
  explicit Worker(int r) : thread_([this, r] { Run(r); }) {}
  void Give(const std::string& step) {
    std::lock_guard<std::mutex> lock(mutex_);
    steps_.push_back(step);
    given_.notify_one();
  }
  void End() {
    Give("");
    thread_.join();
  }

 private:
  std::string Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    given_.wait(lock, [this] { return !steps_.empty(); });
    std::string step = steps_.front();
    steps_.pop_front();
    return step;
  }
  void Run(int r) {
    CHECK(cudaSetDevice(r % devices));
    const auto known = RankSteps();
    for (std::string step = Next(); !step.empty(); step = Next())
      Say(step + " " + std::to_string(r) + " " + known.at(step)(r));
  }

  std::mutex mutex_;
  std::condition_variable given_;
  std::deque<std::string> steps_;
  std::thread thread_;
};

int main() {
  CHECK(cudaGetDeviceCount(&devices));
  CHECK(cudaFree(nullptr));
  Worker workers[kRanks] = {Worker(0), Worker(1)};
  const auto known = MainSteps();
  Say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    if (line.rfind("take-id ", 0) == 0) {
      TakeId(line.substr(space + 1));
    } else if (space == std::string::npos) {
      Say(line + " " + known.at(line)());
    } else {
      workers[line[space + 1] - '0'].Give(line.substr(0, space));
    }
  }
  for (Worker& worker : workers) worker.End();
}

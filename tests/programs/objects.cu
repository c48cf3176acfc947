// Keeps one of every object that the runtime makes, and uses all of them: one step a line of its input, one line of
// answers a step. The answers depend on nothing but the steps.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

#define CHECK(call) Check((call), #call)

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorName(error));
  std::fflush(stdout);
  std::exit(1);
}

__device__ unsigned counter = 100;
__constant__ unsigned weights[4] = {1, 2, 3, 4};
__managed__ unsigned shared_value = 1000;
namespace inner {
__device__ unsigned long long never_asked_for = 7;
}
__device__ unsigned* pointer_to_counter = &counter;

__global__ void Step(unsigned* out, unsigned which) {
  extern __shared__ unsigned scratch[];
  scratch[threadIdx.x] = weights[which & 3] + threadIdx.x;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const unsigned before = atomicAdd(pointer_to_counter, scratch[blockDim.x - 1]);
  inner::never_asked_for = inner::never_asked_for * 6364136223846793005ull + 1442695040888963407ull;
  shared_value += which;
  out[0] = before;
  out[1] = static_cast<unsigned>(inner::never_asked_for >> 33);
  out[2] = shared_value;
}

__global__ void Say(unsigned which) { std::printf("device says %u\n", which); }

__global__ void Together(unsigned* out) {
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0) atomicAdd(out, blockIdx.x + 1);
}

// A thread with a stack and a default stream of its own, which does what it is told.
class Helper {
 public:
  explicit Helper(unsigned* out) : out_(out), thread_([this] { Run(); }) {}
  ~Helper() {
    Do(0);
    thread_.join();
  }
  void Do(unsigned step) {
    std::unique_lock<std::mutex> lock(mutex_);
    step_ = step;
    asked_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !asked_; });
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return asked_; });
      if (step_ != 0) {
        Step<<<1, 32, 32 * sizeof(unsigned), cudaStreamPerThread>>>(out_, step_);
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
      }
      asked_ = false;
      changed_.notify_all();
      if (step_ == 0) return;
    }
  }
  unsigned* const out_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false;
  unsigned step_ = 0;
  std::thread thread_;
};

struct Objects {
  cudaStream_t streams[3];
  cudaEvent_t start, end, untimed, never;
  unsigned* out;
  unsigned callbacks = 0;
  cudaStream_t last_told = nullptr;
};

Objects Make() {
  Objects o;
  CHECK(cudaStreamCreate(&o.streams[0]));
  CHECK(cudaStreamCreateWithFlags(&o.streams[1], cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithPriority(&o.streams[2], cudaStreamNonBlocking, -3));
  CHECK(cudaEventCreate(&o.start));
  CHECK(cudaEventCreate(&o.end));
  CHECK(cudaEventCreate(&o.never));
  CHECK(cudaEventCreateWithFlags(&o.untimed, cudaEventDisableTiming));
  CHECK(cudaMalloc(&o.out, 64));
  CHECK(cudaMemset(o.out, 0, 64));
  CHECK(cudaFuncSetAttribute(Step, cudaFuncAttributeMaxDynamicSharedMemorySize, 70000));
  CHECK(cudaEventRecord(o.start));
  return o;
}

void Told(cudaStream_t stream, cudaError_t, void* data) {
  Objects* o = static_cast<Objects*>(data);
  o->last_told = stream;
  ++o->callbacks;
}

void LaunchEx(Objects& o, cudaStream_t stream, unsigned which) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = 32 * sizeof(unsigned);
  config.stream = stream;
  CHECK(cudaLaunchKernelEx(&config, Step, o.out, which));
}

void Cooperative(Objects& o) {
  unsigned* out = o.out + 4;
  void* arguments[] = {&out};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(Together), dim3(2), dim3(32), arguments, 0, nullptr));
}

// A stream and an event that live for one step.
void Passing(unsigned which) {
  cudaStream_t stream;
  cudaEvent_t event;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&event));
  Say<<<1, 1, 0, stream>>>(which);
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaEventSynchronize(event));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
}

void Work(Objects& o, Helper& helper, unsigned which) {
  cudaStream_t stream = o.streams[which % 3];
  LaunchEx(o, stream, which);
  CHECK(cudaEventRecord(o.untimed, stream));
  CHECK(cudaStreamWaitEvent(o.streams[(which + 1) % 3], o.untimed));
  Step<<<1, 64, 64 * sizeof(unsigned), o.streams[(which + 1) % 3]>>>(o.out, which + 1);
  CHECK(cudaStreamAddCallback(o.streams[(which + 1) % 3], Told, &o, 0));
  CHECK(cudaDeviceSynchronize());
  helper.Do(which);
  Cooperative(o);
  Passing(which);
  CHECK(cudaEventRecord(o.end));
  CHECK(cudaDeviceSynchronize());
}

void Answer(Objects& o, unsigned which) {
  unsigned out[8], weight = 10 + which;
  float elapsed = 0, none = 0;
  int priority = 0;
  unsigned flags = 0;
  cudaFuncAttributes attributes;
  CHECK(cudaMemcpy(out, o.out, sizeof out, cudaMemcpyDeviceToHost));
  CHECK(cudaEventElapsedTime(&elapsed, o.start, o.end));
  CHECK(cudaStreamGetPriority(o.streams[2], &priority));
  CHECK(cudaStreamGetFlags(o.streams[1], &flags));
  CHECK(cudaFuncGetAttributes(&attributes, Step));
  CHECK(cudaEventQuery(o.never));
  CHECK(cudaMemcpyToSymbol(weights, &weight, sizeof weight, (which & 3) * sizeof weight));
  const bool unknown = cudaEventElapsedTime(&none, o.start, o.never) == cudaErrorInvalidResourceHandle;
  (void)cudaGetLastError();
  const bool told = o.last_told == o.streams[(which + 1) % 3];
  std::printf("step %u: %u %u %u %u managed %u callbacks %u %d elapsed %d never %d priority %d flags %u shared %d\n",
              which, out[0], out[1], out[2], out[4], shared_value, o.callbacks, told, elapsed > 0, unknown, priority,
              flags, attributes.maxDynamicSharedSizeBytes);
  std::fflush(stdout);
}

}  // namespace

int main() {
  CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 2 << 20));
  Objects objects = Make();
  Helper helper(objects.out);
  CHECK(cudaDeviceSynchronize());
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  for (unsigned which = 1; std::fgets(line, sizeof line, stdin) != nullptr && line[0] != 'q'; ++which) {
    Work(objects, helper, which);
    Answer(objects, which);
  }
  std::size_t fifo = 0;
  CHECK(cudaDeviceGetLimit(&fifo, cudaLimitPrintfFifoSize));
  std::printf("fifo %zu\n", fifo);
  return 0;
}

// Streams, events, launches of every flavour, occupancy, libraries.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"

__global__ void Store(int* out, int value) { out[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void SumShared(const int* in, int* out) {
  extern __shared__ int scratch[];
  scratch[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i) sum += scratch[i];
  *out = sum;
}

static std::atomic<int> calls{0};

static void CUDART_CB OnStream(cudaStream_t, cudaError_t status, void* data) {
  if (status == cudaSuccess) calls += *static_cast<int*>(data);
}
static void CUDART_CB OnHost(void* data) { calls += *static_cast<int*>(data); }

static void Streams() {
  int least = 0;
  int greatest = 0;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT(greatest <= least);
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithPriority(&b, cudaStreamNonBlocking, greatest));
  unsigned flags = 0;
  OK(cudaStreamGetFlags(a, &flags));
  EXPECT(flags == cudaStreamNonBlocking);
  int priority = 1;
  OK(cudaStreamGetPriority(b, &priority));
  EXPECT(priority == greatest);
  int device = -1;
  OK(cudaStreamGetDevice(a, &device));
  EXPECT(device == 0);

  cudaEvent_t event = nullptr;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int* data = nullptr;
  OK(cudaMalloc(&data, 256 * sizeof(int)));
  Store<<<1, 256, 0, a>>>(data, 5);
  OK(cudaEventRecord(event, a));
  OK(cudaStreamWaitEvent(b, event, 0));
  int host[256] = {};
  OK(cudaMemcpyAsync(host, data, sizeof host, cudaMemcpyDeviceToHost, b));
  int one = 1;
  int ten = 10;
  OK(cudaStreamAddCallback(b, OnStream, &one, 0));
  OK(cudaLaunchHostFunc(b, OnHost, &ten));
  OK(cudaStreamSynchronize(b));
  EXPECT(host[255] == 5 && calls == 11);
  OK(cudaStreamQuery(a));
  OK(cudaEventQuery(event));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaFree(data));
}

static void Events() {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&stop));
  int* data = nullptr;
  OK(cudaMalloc(&data, 1024 * sizeof(int)));
  OK(cudaEventRecord(start));
  Store<<<4, 256>>>(data, 1);
  OK(cudaEventRecordWithFlags(stop, nullptr, cudaEventRecordDefault));
  OK(cudaEventSynchronize(stop));
  float ms = -1;
  OK(cudaEventElapsedTime(&ms, start, stop));
  EXPECT(ms >= 0);
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(stop));
  OK(cudaFree(data));
}

static void Launches() {
  int* data = nullptr;
  OK(cudaMalloc(&data, 257 * sizeof(int)));
  int value = 3;
  void* args[] = {&data, &value};
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(&Store), 1, 256, args, 0, nullptr));
  int* sum = data + 256;
  void* sum_args[] = {&data, &sum};
  cudaLaunchConfig_t config{};
  config.gridDim = 1;
  config.blockDim = 256;
  config.dynamicSmemBytes = 256 * sizeof(int);
  OK(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(&SumShared), sum_args));
  int host = 0;
  OK(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host == 768);
  OK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&Store), 1, 256, args, 0, nullptr));
  OK(cudaDeviceSynchronize());
  cudaKernel_t kernel = nullptr;
  OK(cudaGetKernel(&kernel, Store));
  value = 9;
  OK(cudaLaunchKernel(static_cast<const void*>(kernel), 1, 256, args, 0, nullptr));
  OK(cudaMemcpy(&host, data, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host == 9);
  OK(cudaFree(data));
}

static void Functions() {
  cudaFuncAttributes attributes{};
  OK(cudaFuncGetAttributes(&attributes, SumShared));
  EXPECT(attributes.maxThreadsPerBlock >= 256 && attributes.sharedSizeBytes == 0);
  int blocks = 0;
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, SumShared, 256, 1024));
  EXPECT(blocks >= 1);
  int grid = 0;
  int block = 0;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Store, 0, 0));
  EXPECT(grid >= 1 && block >= 32);
  int optin = 0;
  OK(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  OK(cudaFuncSetAttribute(SumShared, cudaFuncAttributeMaxDynamicSharedMemorySize, optin));
  OK(cudaFuncGetAttributes(&attributes, SumShared));
  EXPECT(attributes.maxDynamicSharedSizeBytes == optin);
  const char* name = nullptr;
  OK(cudaFuncGetName(&name, Store));
  EXPECT(name != nullptr && name[0] == '_');
  size_t offset = 0;
  size_t size = 0;
  OK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(&Store), 1, &offset, &size));
  EXPECT(offset == 8 && size == 4);
}

static const char kText[] =
    ".version 8.0\n.target sm_75\n.address_size 64\n"
    ".visible .global .align 4 .u32 mark = 77;\n"
    ".visible .entry plus_one(.param .u64 p) {\n"
    "  .reg .b32 %r<3>;\n  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [p];\n  cvta.to.global.u64 %rd2, %rd1;\n"
    "  ld.global.u32 %r1, [%rd2];\n  add.s32 %r2, %r1, 1;\n  st.global.u32 [%rd2], %r2;\n  ret;\n}\n";

static void Libraries() {
  cudaLibrary_t library = nullptr;
  OK(cudaLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0));
  unsigned count = 0;
  OK(cudaLibraryGetKernelCount(&count, library));
  EXPECT(count == 1);
  cudaKernel_t kernel = nullptr;
  OK(cudaLibraryGetKernel(&kernel, library, "plus_one"));
  int* mark = nullptr;
  size_t size = 0;
  OK(cudaLibraryGetGlobal(reinterpret_cast<void**>(&mark), &size, library, "mark"));
  EXPECT(size == 4);
  void* args[] = {&mark};
  OK(cudaLaunchKernel(static_cast<const void*>(kernel), 1, 1, args, 0, nullptr));
  int host = 0;
  OK(cudaMemcpy(&host, mark, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host == 78);
  FAILS(cudaLibraryGetKernel(&kernel, library, "no_such"), cudaErrorSymbolNotFound);
  FAILS(cudaGetLastError(), cudaErrorSymbolNotFound);
  OK(cudaLibraryUnload(library));
}

static void Threads() {
  std::vector<std::thread> threads;
  std::vector<int> results(8);
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t, &results] {
      int* data = nullptr;
      OK(cudaMalloc(&data, 32 * sizeof(int)));
      for (int i = 0; i < 20; ++i) Store<<<1, 32, 0, cudaStreamPerThread>>>(data, 100 * t + i);
      OK(cudaMemcpyAsync(&results[t], data + 31, sizeof(int), cudaMemcpyDeviceToHost, cudaStreamPerThread));
      OK(cudaStreamSynchronize(cudaStreamPerThread));
      OK(cudaFree(data));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 8; ++t) EXPECT(results[t] == 100 * t + 19);
}

static void Device() {
  cudaDeviceProp prop{};
  OK(cudaGetDeviceProperties(&prop, 0));
  EXPECT(prop.warpSize == 32 && prop.totalGlobalMem > 0 && prop.maxThreadsPerBlock >= 1024 &&
         prop.major >= 7);
  char bus_id[32] = {};
  OK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0));
  int device = -1;
  OK(cudaDeviceGetByPCIBusId(&device, bus_id));
  EXPECT(device == 0);
  size_t limit = 0;
  OK(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
  EXPECT(limit > 0);
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult status{};
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &status));
  EXPECT(entry != nullptr && status == cudaDriverEntryPointSuccess);
}

int main() {
  Streams();
  Events();
  Launches();
  Functions();
  Libraries();
  Threads();
  Device();
  return Finish();
}

// Contexts: primary ones, those that a program creates, the stack of each thread, limits, access of peers.
#include <thread>

#include "matrix.h"

namespace {

using matrix::LaunchMix;
using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 1000;

// ---- The primary contexts of two devices.

unsigned* on[2];

void MakePrimary() {
  for (int device = 0; device < 2; ++device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaSetDeviceFlags(device == 0 ? cudaDeviceScheduleYield : cudaDeviceScheduleBlockingSync));
    on[device] = matrix::Cells(kCount, 3 + device);
    CHECK(cudaDeviceSetCacheConfig(device == 0 ? cudaFuncCachePreferL1 : cudaFuncCachePreferShared));
  }
}

void StepPrimary(unsigned number) {
  for (int device = 0; device < 2; ++device) {
    unsigned flags = 0;
    int active = 0;
    cudaFuncCache cache;
    CHECK(cudaSetDevice(device));
    LaunchMix(on[device], kCount, number);
    SayHash("cells", on[device], kCount * sizeof(unsigned));
    CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK(cudaDeviceGetCacheConfig(&cache));
    Say("flags %x active %d cache %d", flags, active, cache);
  }
  CHECK(cudaSetDevice(number % 2));  // where the next pause finds the thread
}

void EndPrimary() {
  for (int device = 0; device < 2; ++device) {
    CHECK(cudaSetDevice(device));
    CHECK(cudaDeviceReset());
  }
}
MATRIX_CASE(primary, "primary-context", "kPrimaryContext kDeviceMemory", MakePrimary, StepPrimary, EndPrimary);

// ---- A context of the program's own.

CUcontext created, passing;
unsigned long long created_id;
CUdeviceptr in_created;

void MakeCreated() {
  CHECK(cuInit(0));
  CHECK(cuCtxCreate(&created, nullptr, CU_CTX_SCHED_YIELD | CU_CTX_LMEM_RESIZE_TO_MAX, 0));
  CHECK(cuCtxGetId(created, &created_id));
  CHECK(cuMemAlloc(&in_created, kCount * 4));
  CHECK(cuMemsetD32(in_created, 7, kCount));
}

void StepCreated(unsigned number) {
  unsigned long long id = 0;
  unsigned flags = 0;
  CUdevice device = -1;
  CHECK(cuCtxSetCurrent(created));
  LaunchMix(reinterpret_cast<unsigned*>(in_created), kCount, number);
  SayHash("cells", reinterpret_cast<void*>(in_created), kCount * 4);
  CHECK(cuCtxGetId(created, &id));
  CHECK(cuCtxGetFlags(&flags));
  CHECK(cuCtxGetDevice(&device));
  Say("same-id %d flags %x device %d", id == created_id, flags, device);
  // Another lives from one step to the next.
  if (passing != nullptr) CHECK(cuCtxDestroy(passing));
  CHECK(cuCtxCreate(&passing, nullptr, 0, 1));
  CUdeviceptr inside = 0;
  CHECK(cuMemAlloc(&inside, 4096));
  CHECK(cuMemsetD8(inside, number & 255, 4096));
  SayHash("passing", reinterpret_cast<void*>(inside), 4096);
  CHECK(cuCtxPopCurrent(nullptr));
}

void EndCreated() {
  CHECK(cuCtxDestroy(passing));
  CHECK(cuCtxDestroy(created));
}
MATRIX_CASE(created, "created-context", "kContext", MakeCreated, StepCreated, EndCreated);

// ---- Stacks of contexts, which differ between threads and live from step to step.

CUcontext first, second;

void MakeStack() {
  CHECK(cuInit(0));
  CHECK(cuCtxCreate(&first, nullptr, 0, 0));
  CHECK(cuCtxCreate(&second, nullptr, 0, 1));  // both are on the stack now
}

void SayCurrent(const char* who) {
  CUcontext now = nullptr;
  CHECK(cuCtxGetCurrent(&now));
  Say("%s %s", who, now == first ? "first" : now == second ? "second" : now == nullptr ? "none" : "other");
}

void StepStack(unsigned number) {
  CUcontext popped = nullptr;
  SayCurrent("found");
  CHECK(cuCtxPopCurrent(&popped));
  Say("popped %s", popped == first ? "first" : "second");
  SayCurrent("below");
  CHECK(cuCtxPushCurrent(number % 2 ? popped : first));
  CHECK(cuCtxSynchronize());
  SayCurrent("left");
  std::thread([] {
    SayCurrent("thread");
    CHECK(cuCtxPushCurrent(second));
    SayCurrent("thread");
  }).join();
}

void EndStack() {
  CHECK(cuCtxDestroy(second));
  CHECK(cuCtxDestroy(first));
}
MATRIX_CASE(stack, "context-stack", "kContext", MakeStack, StepStack, EndStack);

// ---- Limits of a context.

void MakeLimits() {
  CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 3 << 20));
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 2048));
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
}

void StepLimits(unsigned number) {
  for (cudaLimit limit : {cudaLimitPrintfFifoSize, cudaLimitStackSize, cudaLimitMallocHeapSize}) {
    size_t value = 0;
    CHECK(cudaDeviceGetLimit(&value, limit));
    Say("%d=%zu", limit, value);
  }
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 2048 + number * 512));
}
MATRIX_CASE(limits, "limits", "kPrimaryContext", MakeLimits, StepLimits, nullptr);

// ---- Memory of one device that kernels of another use.

unsigned* near_cells;
unsigned* far_cells;

void MakePeers() {
  int can = 0;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1));
  Say("can %d", can);
  CHECK(cudaSetDevice(1));
  far_cells = matrix::Cells(kCount, 21);
  CHECK(cudaDeviceSynchronize());  // the other device does not wait for this one
  CHECK(cudaSetDevice(0));
  near_cells = matrix::Cells(kCount, 22);
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
}

void StepPeers(unsigned number) {
  LaunchMix(far_cells, kCount, number);  // by device 0
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpyPeer(near_cells, 0, far_cells, 1, kCount / 2 * sizeof(unsigned)));
  LaunchMix(near_cells, kCount, number);
  SayHash("near", near_cells, kCount * sizeof(unsigned));
  SayHash("far", far_cells, kCount * sizeof(unsigned));
  Say("again %s", cudaGetErrorName(cudaDeviceEnablePeerAccess(1, 0)));
  (void)cudaGetLastError();
  if (number % 3 == 0) {
    CHECK(cudaDeviceDisablePeerAccess(1));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
  }
}

void EndPeers() {
  CHECK(cudaDeviceDisablePeerAccess(1));
  CHECK(cudaFree(near_cells));
  CHECK(cudaFree(far_cells));
}
MATRIX_CASE(peers, "peer-access", "kPrimaryContext kDeviceMemory", MakePeers, StepPeers, EndPeers);

}  // namespace

// One small CUDA program with many ways to use, and misuse, a device; the end-to-end tests drive it by its
// first argument and read the error names that it prints.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

__global__ void Increment(int* cell) { atomicAdd(cell, 1); }
__global__ void Store(int* where, int value) { *where = value; }
__global__ void StoreFar(int* base, long long offset) { base[offset] = 7; }
__global__ void Misaligned(char* base) { *reinterpret_cast<int*>(base + 1) = 7; }
__global__ void Trap() { asm("trap;"); }
__global__ void Spin(volatile int* flag) {
  while (*flag == 0) {
  }
}
__global__ void OutsideShared(int index) {
  __shared__ volatile int cells[4];
  cells[threadIdx.x & 3] = 1;
  __syncthreads();
  cells[index] = 2;
}
__global__ void BigShared() {
  extern __shared__ int dynamic[];
  dynamic[threadIdx.x] = 1;
}

static void Show(const char* what, cudaError_t error) {
  std::printf("%s %s\n", what, cudaGetErrorName(error));
  std::fflush(stdout);
}

static void WaitForInput() {
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
}

static int Allocate(int argc, char** argv) {
  cudaSetDevice(argc > 3 ? std::atoi(argv[3]) : 0);
  void* memory = nullptr;
  Show("malloc", cudaMalloc(&memory, std::strtoull(argv[2], nullptr, 10) << 20));
  WaitForInput();
  return 0;
}

// Launches and synchronises until the device fails or input ends.
static int Loop(int argc, char** argv) {
  cudaSetDevice(argc > 2 ? std::atoi(argv[2]) : 0);
  int* cell = nullptr;
  cudaError_t error = cudaMalloc(&cell, sizeof(int));
  long limit = argc > 3 ? std::atol(argv[3]) : -1;
  for (long step = 0; error == cudaSuccess && step != limit; ++step) {
    Increment<<<1, 32>>>(cell);
    error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (step == 0) Show("first", error);
  }
  Show("last", error);
  return error == cudaSuccess ? 0 : 3;
}

static int AfterFault(cudaError_t launch) {
  Show("launch", launch);
  Show("sync", cudaDeviceSynchronize());
  void* memory = nullptr;
  Show("sticky", cudaMalloc(&memory, 1024));
  Show("reset", cudaDeviceReset());
  Show("after", cudaMalloc(&memory, 1024));
  return 0;
}

static int Fault(const std::string& kind) {
  int* memory = nullptr;
  cudaMalloc(&memory, 4096);
  if (kind == "far")
    StoreFar<<<1, 1>>>(memory, 1ll << 33);
  else if (kind == "null")
    Store<<<1, 1>>>(nullptr, 1);
  else if (kind == "host") {
    static int on_host = 0;
    Store<<<1, 1>>>(&on_host, 1);
  } else if (kind == "freed") {
    int* big = nullptr;
    cudaMalloc(&big, 64 << 20);
    cudaFree(big);
    Store<<<1, 1>>>(big, 1);
  } else if (kind == "misaligned")
    Misaligned<<<1, 1>>>(reinterpret_cast<char*>(memory));
  else if (kind == "trap")
    Trap<<<1, 1>>>();
  else if (kind == "shared")
    OutsideShared<<<1, 32>>>(1 << 24);
  else
    return 2;
  return AfterFault(cudaGetLastError());
}

static int Limits() {
  int* memory = nullptr;
  cudaMalloc(&memory, 4096);
  Store<<<1, 2048>>>(memory, 1);
  Show("threads", cudaGetLastError());
  Store<<<dim3(1, 1, 70000), 1>>>(memory, 1);
  Show("gridz", cudaGetLastError());
  Store<<<0, 32>>>(memory, 1);
  Show("zero", cudaGetLastError());
  BigShared<<<1, 32, 1 << 20>>>();
  Show("shared", cudaGetLastError());
  Show("raise", cudaFuncSetAttribute(BigShared, cudaFuncAttributeMaxDynamicSharedMemorySize, 90 << 10));
  BigShared<<<1, 32, 90 << 10>>>();
  Show("raised", cudaGetLastError());
  Show("sync", cudaDeviceSynchronize());
  return 0;
}

static int Fork() {
  int* memory = nullptr;
  Show("parent", cudaMalloc(&memory, 4096));
  pid_t child = fork();
  if (child == 0) {
    void* more = nullptr;
    Show("child", cudaMalloc(&more, 4096));
    Show("childsync", cudaDeviceSynchronize());
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Show("parent", cudaMemset(memory, 0, 4096));
  Show("parent", cudaDeviceSynchronize());
  return status;
}

static int Hold() {
  void* memory = nullptr;
  Show("malloc", cudaMalloc(&memory, 4 << 20));
  WaitForInput();
  return 0;
}

// A kernel that only the host can end: shows that launches return at once.
static int Async() {
  int* flag = nullptr;
  Show("host", cudaHostAlloc(reinterpret_cast<void**>(&flag), sizeof(int), cudaHostAllocMapped));
  *flag = 0;
  Spin<<<1, 32>>>(flag);
  Show("launch", cudaGetLastError());
  Show("query", cudaStreamQuery(nullptr));
  *reinterpret_cast<volatile int*>(flag) = 1;
  Show("sync", cudaDeviceSynchronize());
  Show("query", cudaStreamQuery(nullptr));
  return 0;
}

static int LoadFile(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (!file) return 2;
  std::vector<char> image;
  char buffer[4096];
  for (size_t count; (count = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    image.insert(image.end(), buffer, buffer + count);
  std::fclose(file);
  image.push_back(0);
  cudaLibrary_t library = nullptr;
  cudaError_t error = cudaLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
  Show("load", error);
  return 0;
}

static int Properties() {
  int count = -1;
  Show("count", cudaGetDeviceCount(&count));
  std::printf("devices %d\n", count);
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) return 1;
    std::printf("device %d %s %d.%d %zu\n", i, properties.name, properties.major, properties.minor,
                properties.totalGlobalMem);
  }
  return 0;
}

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "alloc" && argc > 2) return Allocate(argc, argv);
  if (mode == "loop") return Loop(argc, argv);
  if (mode == "fault" && argc > 2) return Fault(argv[2]);
  if (mode == "limits") return Limits();
  if (mode == "fork") return Fork();
  if (mode == "hold") return Hold();
  if (mode == "async") return Async();
  if (mode == "load" && argc > 2) return LoadFile(argv[2]);
  if (mode == "properties") return Properties();
  std::fprintf(stderr,
               "usage: probe alloc MIB [DEVICE] | loop [DEVICE [STEPS]] | fault KIND | limits | fork | hold "
               "| async | load FILE | properties\n");
  return 2;
}

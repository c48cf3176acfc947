// What one driver call costs: directly (with or without the interposer, as the environment has it), and the
// same call forwarded to another process over a unix socket and over shared memory, as systems with an API
// server do.
//
// usage: call_cost MODE COUNT [REPEATS]   MODE: direct launch socket memory
// Prints one line a repeat: nanoseconds a call.
#include <cuda.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Api {
  decltype(&cuInit) init;
  decltype(&cuDeviceGet) device_get;
  decltype(&cuDevicePrimaryCtxRetain) retain;
  decltype(&cuCtxSetCurrent) set_current;
  decltype(&cuCtxGetDevice) get_device;
  decltype(&cuModuleLoadData) load;
  decltype(&cuModuleGetFunction) function;
  decltype(&cuLaunchKernel) launch;
  decltype(&cuCtxSynchronize) synchronize;
} api;

constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry empty() { ret; }\n";

[[noreturn]] void Die(const char* what, int code) {
  std::fprintf(stderr, "call_cost: %s: %d\n", what, code);
  std::exit(1);
}

void Check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) Die(what, result);
}

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) Die(name, 0);
}

void Open() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) Die(dlerror(), 0);
  Find(library, "cuInit", &api.init);
  Find(library, "cuDeviceGet", &api.device_get);
  Find(library, "cuDevicePrimaryCtxRetain", &api.retain);
  Find(library, "cuCtxSetCurrent", &api.set_current);
  Find(library, "cuCtxGetDevice", &api.get_device);
  Find(library, "cuModuleLoadData", &api.load);
  Find(library, "cuModuleGetFunction", &api.function);
  Find(library, "cuLaunchKernel", &api.launch);
  Find(library, "cuCtxSynchronize", &api.synchronize);
  CUdevice device;
  CUcontext context;
  Check(api.init(0), "cuInit");
  Check(api.device_get(&device, 0), "cuDeviceGet");
  Check(api.retain(&context, device), "cuDevicePrimaryCtxRetain");
  Check(api.set_current(context), "cuCtxSetCurrent");
}

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

template <typename Body>
void Measure(long count, int repeats, Body body) {
  body();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const double begin = Now();
    for (long i = 0; i < count; ++i) body();
    std::printf("%.3f\n", (Now() - begin) / static_cast<double>(count));
  }
}

int GetDevice() {
  CUdevice device = -1;
  Check(api.get_device(&device), "cuCtxGetDevice");
  return device;
}

void MeasureLaunch(long count, int repeats) {
  CUmodule module;
  CUfunction function;
  Check(api.load(&module, kEmptyKernel), "cuModuleLoadData");
  Check(api.function(&function, module, "empty"), "cuModuleGetFunction");
  long left = 0;
  Measure(count, repeats, [&] {
    Check(api.launch(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
    if (++left % 256 == 0) Check(api.synchronize(), "cuCtxSynchronize");
  });
}

struct Request {
  int call;
  int device;
};

void ServeSocket(int socket) {
  Request request{};
  while (read(socket, &request, sizeof request) == static_cast<ssize_t>(sizeof request)) {
    request.device = GetDevice();
    if (write(socket, &request, sizeof request) != static_cast<ssize_t>(sizeof request)) break;
  }
  std::exit(0);
}

void MeasureSocket(long count, int repeats) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Die("socketpair", errno);
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    Open();
    ServeSocket(ends[1]);
  }
  close(ends[1]);
  Measure(count, repeats, [&] {
    Request request{1, -1};
    if (write(ends[0], &request, sizeof request) != static_cast<ssize_t>(sizeof request) ||
        read(ends[0], &request, sizeof request) != static_cast<ssize_t>(sizeof request) ||
        request.device != 0)
      Die("forwarded call", errno);
  });
  close(ends[0]);
  waitpid(server, nullptr, 0);
}

// One slot, polled on both sides: the fastest forwarding there is, at the price of a core that spins.
struct Slot {
  std::atomic<int> state;  // 0 idle, 1 asked, 2 answered, 3 the end
  Request request;
};

void ServeMemory(Slot* slot) {
  for (;;) {
    int state;
    while ((state = slot->state.load(std::memory_order_acquire)) != 1)
      if (state == 3) std::exit(0);
    slot->request.device = GetDevice();
    slot->state.store(2, std::memory_order_release);
  }
}

void MeasureMemory(long count, int repeats) {
  void* shared = mmap(nullptr, sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) Die("mmap", errno);
  Slot* slot = new (shared) Slot{};
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Open();
    ServeMemory(slot);
  }
  Measure(count, repeats, [&] {
    slot->request = {1, -1};
    slot->state.store(1, std::memory_order_release);
    while (slot->state.load(std::memory_order_acquire) != 2) {
    }
    if (slot->request.device != 0) Die("forwarded call", slot->request.device);
  });
  slot->state.store(3);
  waitpid(server, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: call_cost direct|launch|socket|memory COUNT [REPEATS]\n");
    return 2;
  }
  const long count = std::atol(argv[2]);
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 1;
  if (std::strcmp(argv[1], "socket") == 0) {
    MeasureSocket(count, repeats);
  } else if (std::strcmp(argv[1], "memory") == 0) {
    MeasureMemory(count, repeats);
  } else {
    Open();
    if (std::strcmp(argv[1], "launch") == 0)
      MeasureLaunch(count, repeats);
    else
      Measure(count, repeats, [] { GetDevice(); });
  }
  return 0;
}

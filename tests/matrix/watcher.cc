// A program that uses CUDA, and watches its devices by NVML, which it loads as Python's bindings do.
//
// usage: watcher alone|beside FOLDER STEPS NVML    beside: by a process of its own that does not use CUDA
#include <cuda.h>
#include <dlfcn.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void* g_nvml;
void* g_device;

int Call(const char* name) { return reinterpret_cast<int (*)()>(dlsym(g_nvml, name))(); }

int Handle(void** device) {
  return reinterpret_cast<int (*)(unsigned, void**)>(dlsym(g_nvml, "nvmlDeviceGetHandleByIndex_v2"))(1,
                                                                                                     device);
}

void Watch(const char* library) {
  g_nvml = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (g_nvml == nullptr) std::_Exit(5);
  // Twice, as a program does whose parts know nothing of each other.
  if (Call("nvmlInit_v2") != 0 || Call("nvmlInit_v2") != 0 || Handle(&g_device) != 0) std::_Exit(6);
}

void WatchBeside(const char* library) {
  int ends[2];
  if (pipe(ends) != 0) std::_Exit(7);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Watch(library);
    close(ends[0]);
    close(ends[1]);
    for (;;) pause();
  }
  char byte;
  close(ends[1]);
  if (read(ends[0], &byte, 1) != 0) std::_Exit(8);  // it has closed both ends
  close(ends[0]);
}

void WaitForFile(const std::string& folder, const std::string& name) {
  const int watch = inotify_init1(IN_CLOEXEC);
  if (watch < 0 || inotify_add_watch(watch, folder.c_str(), IN_CREATE | IN_MOVED_TO) < 0) std::_Exit(4);
  while (access((folder + "/" + name).c_str(), F_OK) != 0) {
    char events[4096];
    if (read(watch, events, sizeof events) <= 0) std::_Exit(4);
  }
  close(watch);
}

}  // namespace

int main(int, char** argv) {
  const bool beside = std::string(argv[1]) == "beside";
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  if (beside) WatchBeside(argv[4]);
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&memory, 4096) != CUDA_SUCCESS)
    return 3;
  if (!beside) Watch(argv[4]);
  std::printf("ready:\n");
  std::fflush(stdout);
  for (int step = 1; step <= std::atoi(argv[3]); ++step) {
    WaitForFile(argv[2], std::to_string(step));
    void* device = nullptr;
    const int answer = beside ? 0 : Handle(&device);
    std::printf("step %d: memory %d nvml %d same %d\n", step, cuMemsetD8(memory, 1, 4096), answer,
                beside || device == g_device);
    std::fflush(stdout);
  }
  if (beside) return 0;
  const int first = Call("nvmlShutdown"), second = Call("nvmlShutdown"), third = Call("nvmlShutdown");
  std::printf("shutdown %d %d %d\n", first, second, third);
}

// Makes calls that cannot be carried over a pause, and goes on. Runs where the driver says yes to all of
// them.
//
// usage: refused --list                  NAME STRATEGY: each call, and what refuses it
//        refused NAME|all                one step for each line of standard input
//        refused NAME|all FOLDER STEPS   step N once FOLDER has a file N
#include <cuda.h>
#include <cudaProfiler.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

struct Refused {
  const char* name;
  const char* by;
  CUresult (*call)();
};

const Refused kCalls[] = {
#define REFUSED_CALL(name, by, ...) {#name, #by, [] { return ::name(__VA_ARGS__); }},
#include "refused_calls.inc"
#undef REFUSED_CALL
};

void Check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::printf("%s: error %d\n", what, static_cast<int>(result));
  std::exit(1);
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

void Tell(const std::string& what) {
  std::printf("%s\n", what.c_str());
  std::fflush(stdout);
}

// Memory that the steps change, to see that nobody disturbed it.
CUdeviceptr g_memory;

void Step(unsigned number) {
  unsigned before = 0;
  Check(cuMemcpyDtoH_v2(&before, g_memory, sizeof before), "cuMemcpyDtoH");
  Check(cuMemsetD32_v2(g_memory, before * 3 + number, 1), "cuMemsetD32");
  Tell("step " + std::to_string(number) + ": " + std::to_string(before));
}

void Start() {
  CUcontext context = nullptr;
  Check(cuInit(0), "cuInit");
  Check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Check(cuMemAlloc_v2(&g_memory, 4096), "cuMemAlloc");
  Check(cuMemsetD32_v2(g_memory, 7, 1024), "cuMemsetD32");
}

int List() {
  for (const Refused& one : kCalls) Tell(std::string(one.name) + " " + one.by);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  if (wanted == "--list") return List();
  Start();
  for (const Refused& one : kCalls) {
    if (wanted == "all" || wanted == one.name) Check(one.call(), one.name);
  }
  Tell("ready:");
  const unsigned steps = argc > 3 ? std::atoi(argv[3]) : 0;
  char line[16];
  for (unsigned number = 1; argc > 3 ? number <= steps : std::fgets(line, sizeof line, stdin) != nullptr;
       ++number) {
    if (argc > 3) WaitForFile(argv[2], std::to_string(number));
    Step(number);
  }
  Tell("end:");
  return 0;
}

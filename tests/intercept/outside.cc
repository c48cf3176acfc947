// Gives memory or an event of its own away as a handle on standard output, or takes one that it is told, and says
// what the driver answers. Ends when a line was read from standard input.
//
// usage: outside give-memory|give-event
//        outside take-memory|take-event HANDLE TIMES
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

void Check(CUresult result) {
  if (result != CUDA_SUCCESS) std::exit(3);
}

template <typename Handle>
void Print(const Handle& handle) {
  for (char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
}

template <typename Handle>
Handle Parse(const std::string& text) {
  Handle handle{};
  for (size_t i = 0; i < sizeof handle.reserved && 2 * i + 1 < text.size(); ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

void Say(CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("%s\n", name);
}

void GiveMemory() {
  CUdeviceptr address = 0;
  CUipcMemHandle handle;
  Check(cuMemAlloc(&address, 4096));
  Check(cuMemsetD32(address, 4711, 1024));
  Check(cuIpcGetMemHandle(&handle, address));
  Print(handle);
}

void GiveEvent() {
  CUevent event = nullptr;
  CUipcEventHandle handle;
  Check(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  Check(cuIpcGetEventHandle(&handle, event));
  Print(handle);
}

void TakeMemory(const std::string& text) {
  CUdeviceptr address = 0;
  const CUresult result = cuIpcOpenMemHandle(&address, Parse<CUipcMemHandle>(text), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  Say(result);
  unsigned word = 0;
  if (result != CUDA_SUCCESS) return;
  Check(cuMemcpyDtoH(&word, address, sizeof word));
  std::printf("%u\n", word);
}

void TakeEvent(const std::string& text) {
  CUevent event = nullptr;
  Say(cuIpcOpenEventHandle(&event, Parse<CUipcEventHandle>(text)));
}

}  // namespace

int main(int argc, char** argv) {
  CUcontext context = nullptr;
  Check(cuInit(0));
  Check(cuDevicePrimaryCtxRetain(&context, 0));
  Check(cuCtxSetCurrent(context));
  const std::string mode = argc > 1 ? argv[1] : "";
  const int times = argc > 3 ? std::atoi(argv[3]) : 1;
  for (int i = 0; i < times; ++i) {
    if (mode == "give-memory") GiveMemory();
    if (mode == "give-event") GiveEvent();
    if (mode == "take-memory") TakeMemory(argv[2]);
    if (mode == "take-event") TakeEvent(argv[2]);
  }
  std::fflush(stdout);
  char line[16];
  return std::fgets(line, sizeof line, stdin) == nullptr;
}

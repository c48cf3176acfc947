// Memory and events that other processes are given.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "matrix.h"

namespace {

using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 3000;

void Transfer(ssize_t moved, size_t wanted) {
  if (moved != static_cast<ssize_t>(wanted)) std::_Exit(9);
}

// ---- Pair: a process that opens memory of this one, and works on it when it is told to.

int Child(int socket) {
  cudaIpcMemHandle_t handle;
  unsigned* cells = nullptr;
  unsigned number = 0;
  Transfer(read(socket, &handle, sizeof handle), sizeof handle);
  CHECK(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&cells), handle, cudaIpcMemLazyEnablePeerAccess));
  while (read(socket, &number, sizeof number) == sizeof number) {
    matrix::LaunchMix(cells, kCount, number);
    CHECK(cudaDeviceSynchronize());
    Transfer(write(socket, &number, sizeof number), sizeof number);
  }
  CHECK(cudaIpcCloseMemHandle(cells));
  return 0;
}
const matrix::ChildRegistrar child_registrar(Child);

unsigned* shared;
int to_child = -1;
pid_t child = -1;

void MakeShared() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::_Exit(9);
  child = fork();
  if (child == 0) {
    close(ends[0]);
    execl(matrix::Program(), matrix::Program(), "--child", std::to_string(ends[1]).c_str(), nullptr);
    std::_Exit(9);
  }
  close(ends[1]);
  to_child = ends[0];
  cudaIpcMemHandle_t handle;
  shared = matrix::Cells(kCount, 6);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaIpcGetMemHandle(&handle, shared));
  Transfer(write(to_child, &handle, sizeof handle), sizeof handle);
}

void StepShared(unsigned number) {
  unsigned done = 0;
  Transfer(write(to_child, &number, sizeof number), sizeof number);
  matrix::Say("sent %u", number);
  Transfer(read(to_child, &done, sizeof done), sizeof done);
  SayHash("after-child", shared, kCount * sizeof(unsigned));
  matrix::LaunchMix(shared, kCount, number + 100);
  SayHash("after-parent", shared, kCount * sizeof(unsigned));
}

void EndShared() {
  int status = -1;
  close(to_child);
  if (waitpid(child, &status, 0) != child) std::_Exit(9);
  Say("child %d", status);
  CHECK(cudaFree(shared));
}
MATRIX_CASE(ipc_memory, "ipc-memory", "kIpcMemory kDeviceMemory", MakeShared, StepShared, EndShared, nullptr, "processes");

// ---- An event that another process could open. The driver is not known to carry it.

cudaEvent_t event;
unsigned* cells;

void MakeShownEvent() {
  cudaIpcEventHandle_t handle;
  cells = matrix::Cells(kCount, 7);
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  CHECK(cudaIpcGetEventHandle(&handle, event));
}

void StepShownEvent(unsigned number) {
  matrix::LaunchMix(cells, kCount, number);
  CHECK(cudaEventRecord(event));
  CHECK(cudaEventSynchronize(event));
  SayHash("cells", cells, kCount * sizeof(unsigned));
}
MATRIX_CASE(ipc_event, "ipc-event", "kIpcEvent kEvent", MakeShownEvent, StepShownEvent, [] {
  CHECK(cudaEventDestroy(event));
  CHECK(cudaFree(cells));
}, "driver-checkpoint cuIpcGetEventHandle");

}  // namespace

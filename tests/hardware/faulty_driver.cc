// A libcuda.so.1 that hands every call to the one that FAULTY_DRIVER_REAL names, and lets the driver's own
// checkpoint fail where the file FAULTY_DRIVER_ORDERS says so: "Checkpoint 2 801" makes the second call of
// cuCheckpointProcessCheckpoint, counted over all processes since the file was written, return 801 without
// doing anything.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// For every function a place with the address that a call of it goes to, and the call itself: a jump, which
// leaves all arguments where they are.
#define STASIS_DRIVER_FUNCTION(name)                                                 \
  extern "C" __attribute__((visibility("hidden"))) void* faulty_##name;              \
  void* faulty_##name;                                                               \
  __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name \
          ":\n  jmp *faulty_" #name "(%rip)\n.size " #name ", .-" #name "\n.popsection\n");
#include "driver_functions.inc"
#undef STASIS_DRIVER_FUNCTION

namespace {

struct Slot {
  const char* name;
  void** address;
};
const Slot kSlots[] = {
#define STASIS_DRIVER_FUNCTION(name) {#name, &faulty_##name},
#include "driver_functions.inc"
#undef STASIS_DRIVER_FUNCTION
};

// Counts the call down in the file. CUDA_SUCCESS: it is not to fail.
CUresult Ordered(const char* function) {
  const char* path = getenv("FAULTY_DRIVER_ORDERS");
  const int fd = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return CUDA_SUCCESS;
  char text[128] = {}, name[64] = {};
  int count = 0, result = 0;
  flock(fd, LOCK_EX);
  const bool ordered = pread(fd, text, sizeof text - 1, 0) > 0 &&
                       std::sscanf(text, "%63s %d %d", name, &count, &result) == 3 &&
                       std::strcmp(name, function) == 0;
  if (ordered && ftruncate(fd, 0) == 0 && count > 1) dprintf(fd, "%s %d %d", name, count - 1, result);
  close(fd);
  return ordered && count == 1 ? static_cast<CUresult>(result) : CUDA_SUCCESS;
}

decltype(&cuCheckpointProcessGetState) g_get_state;
decltype(&cuCheckpointProcessLock) g_lock;
decltype(&cuCheckpointProcessCheckpoint) g_checkpoint;
decltype(&cuCheckpointProcessRestore) g_restore;
decltype(&cuCheckpointProcessUnlock) g_unlock;

CUresult GetState(int pid, CUprocessState* state) {
  const CUresult ordered = Ordered("GetState");
  return ordered != CUDA_SUCCESS ? ordered : g_get_state(pid, state);
}
CUresult Lock(int pid, CUcheckpointLockArgs* args) {
  const CUresult ordered = Ordered("Lock");
  return ordered != CUDA_SUCCESS ? ordered : g_lock(pid, args);
}
CUresult Checkpoint(int pid, CUcheckpointCheckpointArgs* args) {
  const CUresult ordered = Ordered("Checkpoint");
  return ordered != CUDA_SUCCESS ? ordered : g_checkpoint(pid, args);
}
CUresult Restore(int pid, CUcheckpointRestoreArgs* args) {
  const CUresult ordered = Ordered("Restore");
  return ordered != CUDA_SUCCESS ? ordered : g_restore(pid, args);
}
CUresult Unlock(int pid, CUcheckpointUnlockArgs* args) {
  const CUresult ordered = Ordered("Unlock");
  return ordered != CUDA_SUCCESS ? ordered : g_unlock(pid, args);
}

// Puts `mine` in the way of calls.
template <typename Function>
void Replace(void** slot, Function* real, Function mine) {
  *real = reinterpret_cast<Function>(*slot);
  *slot = reinterpret_cast<void*>(mine);
}

__attribute__((constructor)) void Fill() {
  const char* path = getenv("FAULTY_DRIVER_REAL");
  void* real = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (real == nullptr) {
    std::fprintf(stderr, "faulty driver: FAULTY_DRIVER_REAL: %s\n", path == nullptr ? "not set" : dlerror());
    std::abort();
  }
  for (const Slot& slot : kSlots) *slot.address = dlsym(real, slot.name);
  Replace(&faulty_cuCheckpointProcessGetState, &g_get_state, &GetState);
  Replace(&faulty_cuCheckpointProcessLock, &g_lock, &Lock);
  Replace(&faulty_cuCheckpointProcessCheckpoint, &g_checkpoint, &Checkpoint);
  Replace(&faulty_cuCheckpointProcessRestore, &g_restore, &Restore);
  Replace(&faulty_cuCheckpointProcessUnlock, &g_unlock, &Unlock);
}

}  // namespace

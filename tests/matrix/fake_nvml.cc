// A libnvidia-ml.so.1 that behaves as NVIDIA's does where it matters for a checkpoint: it counts its
// initialisations, holds a device file (STASIS_FAKE_DEVICE) while there is one, and answers nothing without.
// STASIS_FAKE_DEVICE=carried: the driver's own checkpoint takes care of it. It holds no file, and the control
// thread of a process that is checkpointed ends the process if it calls it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

constexpr int kUninitialized = 1, kInvalid = 2, kDriverNotLoaded = 9;
std::mutex g_mutex;
unsigned g_count = 0;
int g_device = -1;
bool g_carried = false;
int g_devices[2];

void CheckCaller() {
  char name[16] = {};
  if (g_carried && prctl(PR_GET_NAME, name) == 0 && std::strcmp(name, "stasis-control") == 0) std::abort();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() {
  const std::lock_guard lock(g_mutex);
  CheckCaller();
  if (g_count == 0) {
    const char* path = std::getenv("STASIS_FAKE_DEVICE");
    g_carried = path != nullptr && std::strcmp(path, "carried") == 0;
    g_device = path == nullptr || g_carried ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (g_device < 0 && !g_carried) return kDriverNotLoaded;
  }
  ++g_count;
  return 0;
}

EXPORT int nvmlShutdown() {
  const std::lock_guard lock(g_mutex);
  CheckCaller();
  if (g_count == 0) return kUninitialized;
  if (--g_count == 0 && !g_carried) close(g_device);
  return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  const std::lock_guard lock(g_mutex);
  CheckCaller();
  if (g_count == 0) return kUninitialized;
  *count = 2;
  return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  const std::lock_guard lock(g_mutex);
  CheckCaller();
  if (g_count == 0) return kUninitialized;
  if (index > 1) return kInvalid;
  *device = &g_devices[index];
  return 0;
}

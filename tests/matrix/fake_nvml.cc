// A libnvidia-ml.so.1 that behaves as NVIDIA's does where it matters for a checkpoint: it counts its
// initialisations, holds a device file (STASIS_FAKE_DEVICE) while there is one, and answers nothing without.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

namespace {

constexpr int kUninitialized = 1, kInvalid = 2, kDriverNotLoaded = 9;
std::mutex g_mutex;
unsigned g_count = 0;
int g_device = -1;
int g_devices[2];

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() {
  const std::lock_guard lock(g_mutex);
  if (g_count == 0) {
    const char* path = std::getenv("STASIS_FAKE_DEVICE");
    g_device = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (g_device < 0) return kDriverNotLoaded;
  }
  ++g_count;
  return 0;
}

EXPORT int nvmlShutdown() {
  const std::lock_guard lock(g_mutex);
  if (g_count == 0) return kUninitialized;
  if (--g_count == 0) close(g_device);
  return 0;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  const std::lock_guard lock(g_mutex);
  if (g_count == 0) return kUninitialized;
  *count = 2;
  return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  const std::lock_guard lock(g_mutex);
  if (g_count == 0) return kUninitialized;
  if (index > 1) return kInvalid;
  *device = &g_devices[index];
  return 0;
}

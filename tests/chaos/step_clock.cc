// A clock that a test steps: preloaded, it adds to CLOCK_REALTIME the nanoseconds that the file STEP_CLOCK_FILE holds as an
// int64. Without that file, or for any other clock, it is the kernel's.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr int64_t kSecond = 1000000000;

const std::atomic<int64_t>* Offset() {
  static const std::atomic<int64_t>* const offset = []() -> const std::atomic<int64_t>* {
    const char* path = std::getenv("STEP_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return nullptr;
    void* memory = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return memory == MAP_FAILED ? nullptr : static_cast<const std::atomic<int64_t>*>(memory);
  }();
  return offset;
}

int Kernel(clockid_t clock, timespec* time) {
  using Function = int (*)(clockid_t, timespec*);
  static const Function function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  return function(clock, time);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* result) {
  int status = Kernel(clock, result);
  if (status != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) || !Offset()) return status;
  int64_t sum = result->tv_sec * kSecond + result->tv_nsec + Offset()->load(std::memory_order_relaxed);
  *result = {sum / kSecond, sum % kSecond};
  return 0;
}

int gettimeofday(timeval* result, void*) {
  timespec now;
  int status = clock_gettime(CLOCK_REALTIME, &now);
  *result = {now.tv_sec, now.tv_nsec / 1000};
  return status;
}

time_t time(time_t* result) {
  timespec now;
  (void)clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"

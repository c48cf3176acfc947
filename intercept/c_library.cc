// What only some C libraries have and the code linked into us asks for. It is looked up when it is needed: a
// library that asks for it by name would keep programs of other C libraries from starting, and they have no
// part in any of this.
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <ctime>

namespace {

constexpr long kSecondNs = 1'000'000'000;

// The same moment by the clock that every condition variable knows.
timespec ByRealClock(clockid_t clock, const timespec& until) {
  timespec now{}, real{};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  timespec moved{real.tv_sec + until.tv_sec - now.tv_sec, real.tv_nsec + until.tv_nsec - now.tv_nsec};
  if (moved.tv_nsec < 0) moved = {moved.tv_sec - 1, moved.tv_nsec + kSecondNs};
  if (moved.tv_nsec >= kSecondNs) moved = {moved.tv_sec + 1, moved.tv_nsec - kSecondNs};
  return moved;
}

}  // namespace

extern "C" {

// Read by the C++ library, which may do without atomic operations where it is not 0.
char __libc_single_threaded = 0;

// Of the unwinder, which nothing of ours runs.
int _dl_find_object(void*, struct dl_find_object*) noexcept { return -1; }

int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* object) {
  using Register = int (*)(void (*)(), void (*)(), void (*)(), void*);
  const auto real = reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "__register_atfork"));
  return real == nullptr ? ENOSYS : real(prepare, parent, child, object);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static const auto real = reinterpret_cast<Wait>(dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (real != nullptr) return real(condition, mutex, clock, until);
  const timespec moved = ByRealClock(clock, *until);
  return pthread_cond_timedwait(condition, mutex, &moved);
}

}  // extern "C"

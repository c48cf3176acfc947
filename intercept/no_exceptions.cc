// What the C++ library would throw ends the process, and memory comes from malloc alone. So the library's
// unwinding machinery is not linked in, whose constructors would allocate in every process we are loaded
// into.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/raw_log.h"
#include "intercept/futex.h"

namespace {

[[noreturn]] void Die(const char* what) {
  stasis::RawLog(stasis::LogLevel::kError, "%s", what);
  std::abort();
}

void* Allocate(size_t size) {
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) Die("out of memory");
  return memory;
}

// States of a function's static variable: the first byte is what the compiler's code looks at.
constexpr uint32_t kUntouched = 0, kReady = 1, kBusy = 0x100;

std::atomic<uint32_t>& GuardState(int64_t* guard) { return *reinterpret_cast<std::atomic<uint32_t>*>(guard); }

}  // namespace

extern "C" {

int __cxa_guard_acquire(int64_t* guard) {
  std::atomic<uint32_t>& state = GuardState(guard);
  for (;;) {
    uint32_t seen = kUntouched;
    if (state.compare_exchange_strong(seen, kBusy, std::memory_order_acquire)) return 1;
    if (seen == kReady) return 0;
    stasis::FutexWait(state, seen);
  }
}

void __cxa_guard_release(int64_t* guard) {
  GuardState(guard).store(kReady, std::memory_order_release);
  stasis::FutexWakeAll(GuardState(guard));
}

void __cxa_guard_abort(int64_t* guard) {
  GuardState(guard).store(kUntouched, std::memory_order_release);
  stasis::FutexWakeAll(GuardState(guard));
}

void __cxa_pure_virtual() { Die("a pure virtual function called"); }

// No frame of ours catches or cleans up: an exception of the program passes through to its own frames.
int __gxx_personality_v0(...) {
  constexpr int kContinueUnwind = 8;  // _URC_CONTINUE_UNWIND
  return kContinueUnwind;
}

}  // extern "C"

void std::terminate() noexcept { Die("terminated"); }

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return std::malloc(size == 0 ? 1 : size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace std {

void __throw_bad_alloc() { Die("out of memory"); }
void __throw_bad_array_new_length() { Die("an array too large"); }
void __throw_bad_cast() { Die("a bad cast"); }
void __throw_bad_function_call() { Die("an empty function called"); }
void __throw_length_error(const char* what) { Die(what); }
void __throw_logic_error(const char* what) { Die(what); }
void __throw_invalid_argument(const char* what) { Die(what); }
void __throw_out_of_range(const char* what) { Die(what); }
void __throw_out_of_range_fmt(const char* what, ...) { Die(what); }
void __throw_runtime_error(const char* what) { Die(what); }
void __throw_system_error(int) { Die("a lock failed"); }

}  // namespace std

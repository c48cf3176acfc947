// Monotonic time and deadlines. A Clock is passed in wherever time decides something, so that tests own the
// time.
#ifndef BASE_CLOCK_H_
#define BASE_CLOCK_H_

#include <time.h>

#include <algorithm>
#include <chrono>
#include <climits>

namespace stasis {

using Duration = std::chrono::nanoseconds;

// A point on CLOCK_MONOTONIC, as the time since its arbitrary zero. Comparable within one boot of one
// machine.
using MonotonicTime = Duration;

// Thread-safe. Real() is the kernel's clock; tests derive their own.
class Clock {
 public:
  constexpr Clock() = default;
  virtual MonotonicTime Now() const {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  // Lives as long as the program; needs no constructor to have run.
  static const Clock& Real();

 protected:
  // Clocks are never deleted through this class.
  ~Clock() = default;
};

namespace internal {
struct RealClock final : Clock {};
inline constinit RealClock real_clock;
}  // namespace internal

inline const Clock& Clock::Real() { return internal::real_clock; }

// A clock that moves only when told to. For tests; not thread-safe.
class ManualClock final : public Clock {
 public:
  MonotonicTime Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  MonotonicTime now_{std::chrono::seconds(1)};
};

// The time by which an operation must have ended. A value; cheap to copy; refers to its clock, which must
// outlive it.
class Deadline {
 public:
  static Deadline Never() { return Deadline(Clock::Real(), MonotonicTime::max()); }
  static Deadline After(Duration wait, const Clock& clock = Clock::Real()) {
    MonotonicTime now = clock.Now();
    return Deadline(clock, wait > MonotonicTime::max() - now ? MonotonicTime::max() : now + wait);
  }
  static Deadline At(MonotonicTime when, const Clock& clock = Clock::Real()) { return Deadline(clock, when); }

  bool never() const { return when_ == MonotonicTime::max(); }
  MonotonicTime when() const { return when_; }
  bool Expired() const { return !never() && clock_->Now() >= when_; }
  // Zero once expired; Duration::max() for Never().
  Duration Remaining() const {
    return never() ? Duration::max() : std::max(Duration::zero(), when_ - clock_->Now());
  }
  // For poll(2) and epoll_wait(2): milliseconds rounded up, so that a wait never ends early; -1 for Never().
  int PollTimeout() const {
    if (never()) return -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(Remaining()).count();
    return static_cast<int>(std::min<decltype(left)>(left, INT_MAX));
  }

 private:
  Deadline(const Clock& clock, MonotonicTime when) : clock_(&clock), when_(when) {}
  const Clock* clock_;
  MonotonicTime when_;
};

}  // namespace stasis

#endif  // BASE_CLOCK_H_

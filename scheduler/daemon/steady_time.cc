#include "scheduler/daemon/steady_time.h"

#include <time.h>

#include <algorithm>
#include <utility>

namespace stasis::scheduler {
namespace {

constexpr Time kLargestStep = 3600 * kSecond;

Time Read(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * kSecond + now.tv_nsec / 1'000'000;
}

}  // namespace

SteadyTime::Sources SteadyTime::Real() {
  return {[] { return Read(CLOCK_REALTIME); }, [] { return Read(CLOCK_BOOTTIME); }};
}

SteadyTime::SteadyTime(Sources sources)
    : sources_(std::move(sources)), now_(sources_.wall()), boot_(sources_.boot()) {}

Time SteadyTime::Now() {
  std::lock_guard lock(mutex_);
  const Time boot = sources_.boot(), wall = sources_.wall();
  now_ += std::max<Time>(0, boot - boot_);
  boot_ = boot;
  if (wall > now_ && wall - now_ <= kLargestStep) now_ = wall;
  return now_;
}

}  // namespace stasis::scheduler

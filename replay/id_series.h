// Numbers that a driver gives its objects, which start again in each driver and must not in the program's
// eyes.
//
// Shown numbers are read by any thread; the rest is for the control thread while the gate is closed.
#ifndef REPLAY_ID_SERIES_H_
#define REPLAY_ID_SERIES_H_

#include <atomic>

namespace stasis::replay {

class IdSeries {
 public:
  // The number to show for an object of the present driver that was not made again by us.
  unsigned long long Show(unsigned long long real) const {
    return real + base_.load(std::memory_order_relaxed);
  }
  // A number that was, or may have been, shown.
  void Note(unsigned long long shown) {
    if (shown > highest_) highest_ = shown;
  }
  // A new driver: all it gives comes behind what was noted.
  void Restart() { base_.store(highest_, std::memory_order_relaxed); }

 private:
  std::atomic<unsigned long long> base_{0};
  unsigned long long highest_ = 0;
};

}  // namespace stasis::replay

#endif  // REPLAY_ID_SERIES_H_

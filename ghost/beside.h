// Work beside the caller.
#ifndef GHOST_BESIDE_H_
#define GHOST_BESIDE_H_

#include <functional>
#include <thread>

#include "base/status.h"

namespace stasis {

// Runs `work` beside the caller until Join().
class Beside {
 public:
  explicit Beside(std::function<Status()> work)
      : thread_([this, work = std::move(work)] { status_ = work(); }) {}
  Status Join() {
    if (thread_.joinable()) thread_.join();
    return status_;
  }
  ~Beside() { (void)Join(); }

 private:
  Status status_;
  std::thread thread_;
};

}  // namespace stasis

#endif  // GHOST_BESIDE_H_

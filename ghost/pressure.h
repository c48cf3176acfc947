// Watches whether the program needs the device memory that a snapshot holds (TaskResume of
// base/task_protocol.h), and gives it up then.
#ifndef GHOST_PRESSURE_H_
#define GHOST_PRESSURE_H_

#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "ghost/snapshot.h"

namespace stasis {

class PressureWatch {
 public:
  // For this number of processes. The snapshot outlives the watch.
  static Result<std::unique_ptr<PressureWatch>> Start(Snapshot& snapshot, size_t members);
  // Stops watching. Who waits at that moment is told by its connection.
  ~PressureWatch();
  PressureWatch(const PressureWatch&) = delete;
  PressureWatch& operator=(const PressureWatch&) = delete;

  // A pair of eventfds that nobody watches.
  static Result<std::vector<Fd>> NewEvents();
  // The two eventfds that one process gets: for asking, for the answer.
  Result<std::vector<Fd>> DescriptorsOf(size_t member) const;

 private:
  struct Pair {
    Fd asked;
    Fd released;
  };
  explicit PressureWatch(Snapshot& snapshot) : snapshot_(snapshot) {}
  void Watch();

  Snapshot& snapshot_;
  std::vector<Pair> pairs_;
  Fd stop_;
  std::thread thread_;
};

}  // namespace stasis

#endif  // GHOST_PRESSURE_H_

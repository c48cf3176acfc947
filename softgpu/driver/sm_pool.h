// SmPool: the threads that compute, as a device's SMs do, for one context.
//
// Kernels of different streams share them. When several want to run, each gets turns of about a millisecond,
// longer for higher priority, so that a kernel that waits for another one does not wait for ever.
// Thread-safe, except that Close() is called once, when no more work comes.
#ifndef SOFTGPU_DRIVER_SM_POOL_H_
#define SOFTGPU_DRIVER_SM_POOL_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/driver/device.h"
#include "softgpu/driver/thread.h"
#include "softgpu/ptx/exec/grid.h"

namespace softgpu {

class SmPool {
 public:
  // Called once, on a thread of the pool or inside Submit(), when a grid is over.
  using Ended = std::function<void(const exec::Fault& fault)>;

  explicit SmPool(Device* device);
  ~SmPool();

  // How many workers a grid may be made for (LaunchConfig::workers).
  unsigned width() const { return width_; }
  // `workers` as the grid was made for. A smaller number is a higher priority.
  void Submit(std::unique_ptr<exec::Grid> grid, unsigned workers, int priority, Ended ended);
  // Idles as a device at a fraction of its speed does behind work that took `ran`; cut short by Cancel().
  void SlowDown(stasis::Duration ran);
  // Makes all threads stop computing for a moment. Takes no lock.
  void YieldAll();
  // The context is broken: stops what runs; what is submitted later ends at once.
  void Cancel();
  // False: threads did not end in time and were left behind.
  bool Close(const stasis::Deadline& deadline);
  // Ends the threads for now; no grid is there and nobody submits meanwhile.
  void Rest();

 private:
  struct Launch {
    std::unique_ptr<exec::Grid> grid;
    Ended ended;
    int priority = 0;
    std::vector<unsigned> free_slots;
    unsigned in_use = 0;
    uint64_t served = 0;  // turns, weighted
  };

  void StartThreadsLocked();
  void StartPacerLocked();
  bool PacingNeededLocked() const;
  void Work(unsigned index);
  void Pace();
  Launch* PickLocked();
  exec::Grid::Outcome RunTurn(unsigned index, Launch& launch, unsigned slot);

  Device& device_;
  const unsigned width_;
  std::unique_ptr<std::atomic<bool>[]> yield_;  // by thread
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;
  std::condition_variable work_;  // for workers
  std::condition_variable pace_;  // for the pacer
  std::list<std::unique_ptr<Launch>> launches_;
  std::vector<Thread> threads_;
  Thread pacer_;
  bool pacer_started_ = false;
  bool closing_ = false;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_SM_POOL_H_

// Device memory that the ghost keeps for a snapshot while the program runs: free to the program, which gets
// it back when it needs it. One per process, thread-safe.
#ifndef VMM_HELD_MEMORY_H_
#define VMM_HELD_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/fd.h"

namespace stasis::vmm {

class HeldMemory {
 public:
  static HeldMemory& Get();

  // `bytes` by virtual ordinal. Both descriptors are eventfds: we add to `ask`, the ghost to `given`.
  void Hold(std::map<int, uint64_t> bytes, Fd ask, Fd given);
  // Nothing is held any more. Who waits goes on; the descriptors are closed once the last of them has.
  void Forget();
  // The same when the ghost has gone away with it: the memory comes back once the driver has noticed, of
  // which there is no event.
  void Abandon();
  // What is held on `device` and has not been given back.
  uint64_t Bytes(int device) const;
  // Asks for the memory and waits until it is there. False when none was held there, or when it has not come
  // in time. Not under any lock, and no wait during a capture: the program could not end it.
  bool TakeBack(int device, const Deadline& deadline);
  // Memory of `device` that was abandoned may have come back since the last attempt to get some. False when
  // none is expected any more. Waits a moment, under the same conditions.
  bool AwaitAbandoned(int device);

  // In a child, where others close the descriptors.
  void ResetAfterFork();

 private:
  struct Holding {
    std::map<int, uint64_t> bytes;
    Fd ask, given;
    bool Given() const;
    uint64_t On(int device) const;
  };

  HeldMemory() = default;
  std::shared_ptr<Holding> Current() const;

  mutable std::mutex mutex_;  // a leaf
  std::shared_ptr<Holding> holding_;
  std::shared_ptr<Holding> abandoned_;
  Deadline abandoned_until_ = Deadline::Never();
};

}  // namespace stasis::vmm

#endif  // VMM_HELD_MEMORY_H_

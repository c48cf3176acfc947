// Communicators of the library that another thread may abort, which frees them: after that nobody may name
// them, only return from a call that is inside.
#ifndef INTERCEPT_LIBRARIES_NCCL_HANDLES_H_
#define INTERCEPT_LIBRARIES_NCCL_HANDLES_H_

#include <nccl.h>

#include <mutex>
#include <vector>

#include "base/clock.h"

namespace stasis::nccl {

// Abort() may be called by any thread, all else by one.
class Handles {
 public:
  void Add(ncclComm_t real);
  // All are there, and the library is about to be entered for them.
  void Start();
  // Aborts all of them, after Start().
  void Abort();
  bool aborted();
  // `f` may name them and must not wait; ncclInvalidUsage, without a call, when they have been aborted.
  template <typename Function>
  ncclResult_t Do(Function f) {
    std::lock_guard<std::mutex> lock(mutex_);
    return aborted_ ? ncclInvalidUsage : f();
  }
  // Until a communicator that does not block is ready; ncclInternalError at the deadline.
  ncclResult_t AwaitReady(ncclComm_t real, const Deadline& deadline);

 private:
  std::mutex mutex_;
  std::vector<ncclComm_t> reals_;
  bool started_ = false, aborted_ = false;
};

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_HANDLES_H_

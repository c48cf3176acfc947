// Makes a context current in the calling thread for a scope, as the driver below knows it.
#ifndef REPLAY_CURRENT_CONTEXT_H_
#define REPLAY_CURRENT_CONTEXT_H_

#include "base/status.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

class CurrentContext {
 public:
  explicit CurrentContext(CUcontext real)
      : status_(DriverStatus(Driver().cuCtxPushCurrent_v2(real), "cuCtxPushCurrent")) {}
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (status_.ok()) (void)Driver().cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  // Not OK: the context did not become current.
  const Status& status() const { return status_; }

 private:
  const Status status_;
};

}  // namespace stasis::replay

#endif  // REPLAY_CURRENT_CONTEXT_H_

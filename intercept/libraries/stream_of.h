// The stream that a library's handle works in, which the program may have destroyed meanwhile.
#ifndef INTERCEPT_LIBRARIES_STREAM_OF_H_
#define INTERCEPT_LIBRARIES_STREAM_OF_H_

#include <cuda.h>

#include "base/status.h"
#include "replay/stream_record.h"
#include "vmm/real_driver.h"

namespace stasis::libraries {

// Not thread-safe.
class StreamOf {
 public:
  // `get(&stream)` asks the library; false when it does not know.
  template <typename Get>
  void Read(Get get) {
    CUstream stream = nullptr;
    if (get(&stream)) visible_ = Visible(stream);
  }

  // `set(stream)` tells the library. A stream that is no more is not shown to it: one that has just ended
  // takes its place, so that what uses the handle fails as before.
  template <typename Set>
  Status Apply(Set set) {
    gone_ = !IsAlive();
    if (!gone_) return set(visible_);
    CUstream ended = nullptr;
    RETURN_IF_ERROR(DriverStatus(::cuStreamCreate(&ended, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
    Status status = set(ended);
    (void)::cuStreamDestroy_v2(ended);
    return status;
  }

  // What the library's getter has to answer where it says `stream`.
  CUstream Visible(CUstream stream) const { return gone_ ? visible_ : stream; }
  // The program has set another one.
  void Forget() { gone_ = false; }

 private:
  bool IsAlive() const {
    const bool special =
        visible_ == nullptr || visible_ == CU_STREAM_LEGACY || visible_ == CU_STREAM_PER_THREAD;
    return special || replay::FindAs<replay::StreamRecord>(visible_) != nullptr;
  }

  CUstream visible_ = nullptr;
  bool gone_ = false;
};

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_STREAM_OF_H_

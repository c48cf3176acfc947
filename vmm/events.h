// Events of our own, by which a free in stream order is known to have been reached. Thread-safe.
#ifndef VMM_EVENTS_H_
#define VMM_EVENTS_H_

#include <cuda.h>

#include <map>
#include <mutex>
#include <vector>

namespace stasis::vmm {

class Events {
 public:
  static Events& Get();

  // An event recorded in `stream` (real) of `context` (visible); null when the driver gives none.
  CUevent Record(CUcontext context, CUstream stream);
  // Whether the device has passed it. A broken context has: nothing uses memory there any more.
  bool Passed(CUevent event) const;
  // It will be used again.
  void Return(CUcontext context, CUevent event);
  // The driver has destroyed them with their context.
  void ContextGone(CUcontext context);
  // Destroys all that were returned.
  void DestroyAll();

 private:
  CUevent Take(CUcontext context);

  std::mutex mutex_;  // a leaf
  std::map<CUcontext, std::vector<CUevent>> idle_;
};

}  // namespace stasis::vmm

#endif  // VMM_EVENTS_H_

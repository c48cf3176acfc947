// The stream that an allocation or a free is ordered in.
#ifndef VMM_STREAM_PLACE_H_
#define VMM_STREAM_PLACE_H_

#include <cuda.h>

namespace stasis::vmm {

// Where and when an allocation or a free takes effect.
struct StreamPlace {
  CUstream stream = nullptr;    // real, never null
  unsigned long long id = 0;    // unique among all streams of the process
  CUcontext context = nullptr;  // visible
  int device = -1;              // virtual ordinal
  bool capturing = false;       // then `stream` is all that is known
};
// `stream` is real and not null. The driver's error for a stream that may not be used here. Any thread.
CUresult FindStream(CUstream stream, StreamPlace* place);

}  // namespace stasis::vmm

#endif  // VMM_STREAM_PLACE_H_

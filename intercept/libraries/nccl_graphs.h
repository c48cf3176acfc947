// Operations of NCCL that were captured into graphs. What the library has put there leads to the communicator
// as it is now; no call of the library tells a graph of another one.
#ifndef INTERCEPT_LIBRARIES_NCCL_GRAPHS_H_
#define INTERCEPT_LIBRARIES_NCCL_GRAPHS_H_

#include <nccl.h>

#include "base/status.h"
#include "intercept/libraries/nccl_comms.h"

namespace stasis::nccl {

// The operation `call` was queued in `stream` (visible), which may be capturing.
void NoteCaptured(const CommPtr& comm, cudaStream_t stream, const char* call);
// kUnsupported, naming the call, as long as a graph that may have an operation of the communicator in it can
// be alive. For the pause.
Status CheckCaptured(const CommPtr& comm);

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_GRAPHS_H_

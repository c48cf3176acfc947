// Which streams of the program capture at the moment, beyond their number (captures.h). Thread-safe.
#ifndef INTERCEPT_CAPTURE_STREAMS_H_
#define INTERCEPT_CAPTURE_STREAMS_H_

#include <cuda.h>

#include <vector>

#include "base/task_protocol.h"

namespace stasis {

// A stream was destroyed, or a context with all its streams (visible handles): a capture that began there
// can never be ended. Call them after the driver's call has succeeded.
void CaptureStreamDestroyed(CUstream stream);
void CaptureContextGone(CUcontext context);
// Whether the graph (visible) is one that a capture is making.
bool IsCaptured(CUgraph graph);
// "stream capture", with the thread that began it, for each capture in progress.
std::vector<TaskBlocker> CaptureBlockers();

}  // namespace stasis

#endif  // INTERCEPT_CAPTURE_STREAMS_H_

// What the driver keeps for each thread of the program, and the thread must rebuild itself: the stack of
// current contexts and the capture mode.
//
// One of it belongs to each thread that has called CUDA (CurrentThreadObjects()); only that thread touches
// it, except that the control thread reads it while the gate is closed.
#ifndef REPLAY_THREAD_OBJECTS_H_
#define REPLAY_THREAD_OBJECTS_H_

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace stasis::replay {

struct ThreadObjects {
  std::vector<CUcontext> context_stack;  // visible handles, the current one last
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  uint32_t generation = 0;  // of the last rebuild of this thread
};

// Makes the driver agree with `objects` in the calling thread. Called by the gate when the thread enters for
// the first time since a rebuild.
void RebuildThread(ThreadObjects& objects);

}  // namespace stasis::replay

#endif  // REPLAY_THREAD_OBJECTS_H_

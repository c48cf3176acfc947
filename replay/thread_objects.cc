#include "replay/thread_objects.h"

#include "replay/object_table.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

// A context that is gone leaves the stack: the driver below has nothing that could be put there, and both an
// empty place and a dead context refuse all work.
void RebuildThread(ThreadObjects& objects) {
  std::vector<CUcontext> alive;
  for (CUcontext visible : objects.context_stack) {
    RecordPtr record = ObjectTable::Get().Find(reinterpret_cast<uint64_t>(visible));
    if (record == nullptr || record->real() == 0) continue;
    if (Driver().cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(record->real())) == CUDA_SUCCESS)
      alive.push_back(visible);
  }
  objects.context_stack = std::move(alive);
  CUstreamCaptureMode mode = objects.capture_mode;
  if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) (void)Driver().cuThreadExchangeStreamCaptureMode(&mode);
}

}  // namespace stasis::replay

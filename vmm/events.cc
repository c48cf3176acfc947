#include "vmm/events.h"

#include "vmm/environment.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

Events& Events::Get() {
  static Events* const events = new Events;  // outlives every destructor
  return *events;
}

CUevent Events::Take(CUcontext context) {
  {
    const std::lock_guard lock(mutex_);
    std::vector<CUevent>& idle = idle_[context];
    if (!idle.empty()) {
      CUevent event = idle.back();
      idle.pop_back();
      return event;
    }
  }
  CUevent event = nullptr;
  return Driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? event : nullptr;
}

CUevent Events::Record(CUcontext context, CUstream stream) {
  const RelaxedCapture relaxed;
  const ScopedContext scope(context);
  if (scope.result() != CUDA_SUCCESS) return nullptr;
  CUevent event = Take(context);
  if (event == nullptr || Driver().cuEventRecord(event, stream) == CUDA_SUCCESS) return event;
  Return(context, event);
  return nullptr;
}

bool Events::Passed(CUevent event) const {
  const RelaxedCapture relaxed;
  return Driver().cuEventQuery(event) != CUDA_ERROR_NOT_READY;
}

void Events::Return(CUcontext context, CUevent event) {
  const std::lock_guard lock(mutex_);
  idle_[context].push_back(event);
}

void Events::ContextGone(CUcontext context) {
  const std::lock_guard lock(mutex_);
  idle_.erase(context);
}

void Events::DestroyAll() {
  std::map<CUcontext, std::vector<CUevent>> idle;
  {
    const std::lock_guard lock(mutex_);
    idle.swap(idle_);
  }
  for (const auto& [context, events] : idle) {
    const ScopedContext scope(context);
    for (CUevent event : events) Driver().cuEventDestroy_v2(event);
  }
}

}  // namespace stasis::vmm

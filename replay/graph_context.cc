#include "replay/graph_context.h"

#include "replay/context_record.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

ContextPtr FindContext(CUcontext visible) {
  ContextPtr context = FindAs<ContextRecord>(visible);
  return context != nullptr && context->active() && context->real() != 0 ? context : nullptr;
}

ContextPtr AnyContext() {
  for (const ContextPtr& context : ActiveContexts()) {
    if (context->real() != 0) return context;
  }
  return nullptr;
}

}  // namespace

bool ContextLives(CUcontext visible) { return FindContext(visible) != nullptr; }

ContextScope::ContextScope(CUcontext visible) {
  ContextPtr context = FindContext(visible);
  if (context == nullptr) context = AnyContext();
  if (context == nullptr) return;
  if (Driver().cuCtxPushCurrent_v2(context->real_context()) == CUDA_SUCCESS) real_ = context->real_context();
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (real_ != nullptr) Driver().cuCtxPopCurrent_v2(&popped);
}

}  // namespace stasis::replay

#include "intercept/proc_address.h"

#include <cstring>

namespace stasis {

namespace internal {
extern void* const kWrappers[kFnCount];
}  // namespace internal

namespace {

constexpr FunctionInfo kFunctions[] = {
#define STASIS_INTERCEPT(name, base, how, variant, version) {#name, base, variant, how, version},
#include "functions.inc"
#undef STASIS_INTERCEPT
};
static_assert(sizeof kFunctions / sizeof *kFunctions == kFnCount);

struct Request {
  const char* symbol;
  int cuda_version;
  bool per_thread;
};

// How well a function answers a request: the newest version that the caller may know is best.
int Fit(const FunctionInfo& function, const Request& request) {
  if (std::strcmp(function.base, request.symbol) != 0) return -1;
  const bool has_variant = function.variant[0] != '\0';
  if (has_variant && !request.per_thread) return -1;
  if (function.version > request.cuda_version) return 0;
  return function.version * 2 + (has_variant ? 1 : 0);
}

}  // namespace

void* WrapperOf(Fn function) { return internal::kWrappers[static_cast<size_t>(function)]; }
const FunctionInfo& InfoOf(Fn function) { return kFunctions[static_cast<size_t>(function)]; }

void* WrapperFor(void* real, const char* symbol, int cuda_version, bool per_thread) {
  const Request request{symbol, cuda_version, per_thread};
  int best_same = -2, best_named = 0;
  void* same = nullptr;
  void* named = nullptr;
  for (size_t i = 0; i < kFnCount; ++i) {
    const void* address = DriverAddress(static_cast<Fn>(i));
    if (address == nullptr) continue;
    const int fit = Fit(kFunctions[i], request);
    if (address == real && fit > best_same) {
      best_same = fit;
      same = internal::kWrappers[i];
    }
    if (fit > best_named) {
      best_named = fit;
      named = internal::kWrappers[i];
    }
  }
  return same != nullptr ? same : named;
}

}  // namespace stasis

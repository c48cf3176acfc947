// Exported names without an implementation behind them.
#ifndef SOFTGPU_RUNTIME_UNSUPPORTED_H_
#define SOFTGPU_RUNTIME_UNSUPPORTED_H_

#include <atomic>

namespace softgpu::runtime {

// Names the function on standard error the first time, and returns cudaErrorNotSupported as the last error.
int Unsupported(const char* name, std::atomic<bool>* said);

}  // namespace softgpu::runtime

// Defined without the real prototype: the arguments are never looked at.
#define RT_UNSUPPORTED(name)                                     \
  extern "C" __attribute__((visibility("default"))) int name() { \
    static constinit std::atomic<bool> said{false};              \
    return ::softgpu::runtime::Unsupported(#name, &said);        \
  }

#endif  // SOFTGPU_RUNTIME_UNSUPPORTED_H_

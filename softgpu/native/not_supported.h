// What functions that a stand-in library has only by name say.
#ifndef SOFTGPU_NATIVE_NOT_SUPPORTED_H_
#define SOFTGPU_NATIVE_NOT_SUPPORTED_H_

#include <atomic>

namespace softgpu::native {

// "softgpu libcublas.so.13: cublasCgemm3m is not supported", on the log, once for each `said`.
void SayNotSupported(const char* library, const char* function, std::atomic<bool>* said);

}  // namespace softgpu::native

#endif  // SOFTGPU_NATIVE_NOT_SUPPORTED_H_

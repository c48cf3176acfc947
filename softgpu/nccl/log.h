// What went wrong, for ncclGetLastError and, when NCCL_DEBUG asks for it, on standard error. Thread-safe.
#ifndef SOFTGPU_NCCL_LOG_H_
#define SOFTGPU_NCCL_LOG_H_

#include <nccl.h>

namespace softgpu::nccl {

// Records the message as the process's last error and returns `result`.
ncclResult_t Fail(ncclResult_t result, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The last message, "" when there was none. Valid until the calling thread asks again.
const char* LastError();

#define NCCL_TRY(expression)                                    \
  do {                                                          \
    const ncclResult_t nccl_try_result = (expression);          \
    if (nccl_try_result != ncclSuccess) return nccl_try_result; \
  } while (0)

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_LOG_H_

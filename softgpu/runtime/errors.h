// The runtime's error codes and the calling thread's last error.
#ifndef SOFTGPU_RUNTIME_ERRORS_H_
#define SOFTGPU_RUNTIME_ERRORS_H_

#include <cuda_runtime_api.h>

namespace softgpu::runtime {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

// Every enumerator of cudaError, sorted by code; generated from driver_types.h and error_texts.table.
extern const ErrorText kErrorTexts[];
extern const int kErrorTextCount;

bool IsKnownError(cudaError_t error);

// Remembers an error as the calling thread's last one and hands it back. Success leaves the last error alone.
cudaError_t Report(cudaError_t error);

// A device reset ends the errors that otherwise stay until the process ends.
void ForgetStickyErrors();

}  // namespace softgpu::runtime

// Leaves the enclosing function with the error of `expr`, if it has one.
#define RT_TRY(expr)                                                      \
  do {                                                                    \
    if (const cudaError_t rt_error_ = (expr); rt_error_ != cudaSuccess) { \
      return rt_error_;                                                   \
    }                                                                     \
  } while (false)

#endif  // SOFTGPU_RUNTIME_ERRORS_H_

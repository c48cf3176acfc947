// CUDA error codes: their names and texts, and the codes that fit our own failures.
#ifndef SOFTGPU_DRIVER_ERRORS_H_
#define SOFTGPU_DRIVER_ERRORS_H_

#include <cuda.h>

#include "base/status.h"

namespace softgpu {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
// Null for codes that cuda.h does not have. By reference, because a C caller may pass numbers that are no
// value of the enumeration and must not be read as one.
const ErrorText* FindErrorText(const CUresult& code);

// The code for a failure of the daemon or the system.
CUresult FromStatus(const stasis::Status& status);

// True for the codes after which a context answers nothing else any more.
bool IsSticky(CUresult code);

// Says once in the life of the process that `function` is not offered, and returns CUDA_ERROR_NOT_SUPPORTED.
// `said` is the function's own memory of that.
CUresult NotSupported(const char* function, bool* said);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_ERRORS_H_

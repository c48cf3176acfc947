// Checks for NCCL calls: any error ends the program with one clear line and exit status 1.
#pragma once

#include <nccl.h>

#include "../common/fail.h"

#define NCCL_CHECK(call) ::ranks::CheckNccl((call), #call, __FILE__, __LINE__)

namespace ranks {

inline void CheckNccl(ncclResult_t result, const char* what, const char* file, int line) {
  if (result == ncclSuccess) return;
  sample::Fail(sample::kExitFailure, "%s failed: %s (%s) at %s:%d", what, ncclGetErrorString(result),
               ncclGetLastError(nullptr), file, line);
}

}  // namespace ranks

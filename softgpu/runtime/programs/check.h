// Checks of the programs that run on a device: each failure is one line, and the exit code says whether there
// were any.
#pragma once

#include <cstdio>

inline int failures = 0;

inline void Check(bool passed, const char* what, int line) {
  if (passed) return;
  ++failures;
  std::printf("line %d: failed: %s\n", line, what);
}

inline void CheckError(cudaError_t got, cudaError_t want, const char* what, int line) {
  if (got == want) return;
  ++failures;
  std::printf("line %d: %s: got %s, want %s\n", line, what, cudaGetErrorName(got), cudaGetErrorName(want));
}

#define EXPECT(condition) Check(condition, #condition, __LINE__)
#define OK(call) CheckError(call, cudaSuccess, #call, __LINE__)
#define FAILS(call, error) CheckError(call, error, #call, __LINE__)

inline int Finish() {
  if (failures == 0) std::printf("ok\n");
  return failures == 0 ? 0 : 1;
}

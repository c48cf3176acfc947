// How the fake driver defines its functions.
#ifndef SOFTGPU_RUNTIME_TESTING_FAKE_RECORD_H_
#define SOFTGPU_RUNTIME_TESTING_FAKE_RECORD_H_

#include <cuda.h>

#include <cstdint>
#include <initializer_list>

namespace softgpu::runtime::testing {

// Logs a call and returns what it was told to fail with, if anything.
CUresult Record(const char* name, std::initializer_list<uint64_t> args);

}  // namespace softgpu::runtime::testing

#define FAKE_STRING_(x) #x
#define FAKE_STRING(x) FAKE_STRING_(x)
#define FAKE_API extern "C" __attribute__((visibility("default")))

#endif  // SOFTGPU_RUNTIME_TESTING_FAKE_RECORD_H_

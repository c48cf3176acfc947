// A recording libcuda.so.1 for the tests of the runtime: just enough behaviour to tell right calls from wrong
// ones.
//
// Device memory is host memory, kernels do nothing, and each call is logged under the exact name it was made
// by. When the environment variable FAKE_CUDA_LOG names a file, each call's name is also appended there.
#ifndef SOFTGPU_RUNTIME_TESTING_FAKE_DRIVER_H_
#define SOFTGPU_RUNTIME_TESTING_FAKE_DRIVER_H_

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace softgpu::runtime::testing {

struct FakeCall {
  std::string name;
  std::vector<uint64_t> args;
};

// Images that cuLibraryLoadData takes: the first four bytes of a fat binary, or what cuLinkComplete returned.
constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint32_t kLinkedMagic = 0x4B4E494C;

constexpr size_t kFakeGlobalSize = 64;
constexpr int kFakeDevices = 2;

extern "C" {
// The log of all threads, oldest first. Valid until the next driver call.
const std::vector<FakeCall>* FakeLog();
void FakeClearLog();
// Makes calls of this name fail with `result` until called again with CUDA_SUCCESS.
void FakeFail(const char* name, CUresult result);
}

}  // namespace softgpu::runtime::testing

#endif  // SOFTGPU_RUNTIME_TESTING_FAKE_DRIVER_H_

// Shared by the tests of the runtime: the library under test above the fake driver.
#ifndef SOFTGPU_RUNTIME_RUNTIME_FIXTURE_H_
#define SOFTGPU_RUNTIME_RUNTIME_FIXTURE_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "softgpu/runtime/fatbin.h"
#include "softgpu/runtime/testing/fake_driver.h"

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_name, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void** handle, char* shadow, char* device_name, const char* name, int, size_t, int,
                       int);
void __cudaRegisterManagedVar(void** handle, void** slot, char* device_name, const char* name, int, size_t,
                              int, int);
char __cudaInitModule(void** handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t, cudaStream_t);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** args, size_t,
                                    cudaStream_t);
}

namespace softgpu::runtime::testing {

// Registers a fat binary for as long as it lives, as the start-up code of a program does.
class Registered {
 public:
  explicit Registered(FatbinWrapper* wrapper) : handle_(__cudaRegisterFatBinary(wrapper)) {}
  ~Registered() { __cudaUnregisterFatBinary(handle_); }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  void Kernel(const void* stub, const char* name) {
    __cudaRegisterFunction(handle_, static_cast<const char*>(stub), const_cast<char*>(name), name, -1,
                           nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  void Variable(void* shadow, const char* name) {
    __cudaRegisterVar(handle_, static_cast<char*>(shadow), const_cast<char*>(name), name, 0, kFakeGlobalSize,
                      0, 0);
  }
  void Managed(void** slot, const char* name) {
    __cudaRegisterManagedVar(handle_, slot, const_cast<char*>(name), name, 0, kFakeGlobalSize, 0, 0);
  }
  void** handle() const { return handle_; }

 private:
  void** handle_;
};

// A fat binary without entries; the fake looks at its magic only.
struct EmptyFatbin {
  uint32_t magic = kFatbinMagic;
  uint16_t version = 1;
  uint16_t header_size = 16;
  uint64_t entries_size = 0;
};

class RuntimeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    while (cudaGetLastError() != cudaSuccess) ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
    FakeClearLog();
  }
  void TearDown() override {
    for (const std::string& name : failing_) FakeFail(name.c_str(), CUDA_SUCCESS);
  }

  void Fail(const std::string& name, CUresult result) {
    FakeFail(name.c_str(), result);
    failing_.push_back(name);
  }

  static int Calls(const std::string& name) {
    const std::vector<FakeCall>& log = *FakeLog();
    return static_cast<int>(
        std::count_if(log.begin(), log.end(), [&](const FakeCall& call) { return call.name == name; }));
  }

  // Arguments of the last call of this name; none if there was none.
  static std::vector<uint64_t> Args(const std::string& name) {
    const std::vector<FakeCall>& log = *FakeLog();
    for (auto call = log.rbegin(); call != log.rend(); ++call) {
      if (call->name == name) return call->args;
    }
    ADD_FAILURE() << name << " was not called";
    return std::vector<uint64_t>(16);
  }

  EmptyFatbin fatbin_;
  FatbinWrapper wrapper_{0x466243B1, 1, &fatbin_, nullptr};

 private:
  std::vector<std::string> failing_;
};

}  // namespace softgpu::runtime::testing

#endif  // SOFTGPU_RUNTIME_RUNTIME_FIXTURE_H_

// The runtime where no driver can be opened, and what it does before it opens one.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace {

// The test's environment makes the search for the driver end at a file that is no library.
TEST(NoDriver, EverythingSaysSo) {
  ASSERT_EQ(dlopen("libcuda.so.1", RTLD_NOW), nullptr)
      << "run through ctest, which hides the machine's driver";
  int value = 77;
  EXPECT_EQ(cudaRuntimeGetVersion(&value), cudaSuccess);
  EXPECT_EQ(value, CUDART_VERSION);
  EXPECT_EQ(cudaDriverGetVersion(&value), cudaSuccess);
  EXPECT_EQ(value, 0);
  value = 77;
  EXPECT_EQ(cudaGetDeviceCount(&value), cudaErrorInsufficientDriver);
  EXPECT_EQ(value, 77);
  EXPECT_EQ(cudaGetDevice(&value), cudaErrorInsufficientDriver);
  EXPECT_EQ(value, 77);
  void* memory = &value;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorInsufficientDriver);
  EXPECT_EQ(memory, &value);
  EXPECT_EQ(cudaFree(nullptr), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaLaunchKernel(&value, 1, 1, nullptr, 0, nullptr), cudaErrorInsufficientDriver);
  // It is not an error that reading takes away.
  EXPECT_EQ(cudaGetLastError(), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInsufficientDriver);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorInsufficientDriver),
               "CUDA driver version is insufficient for CUDA runtime version");
}

}  // namespace

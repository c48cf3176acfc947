#include <cuda.h>

#include <thread>

#include "softgpu/runtime/runtime_fixture.h"

namespace softgpu::runtime::testing {
namespace {

class ErrorsTest : public RuntimeTest {};

TEST_F(ErrorsTest, OrdinaryErrorsAreReadOnce) {
  Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);  // success does not clear it
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(ErrorsTest, TheLastErrorBelongsToTheThread) {
  Fail("cuMemAlloc_v2", CUDA_ERROR_OUT_OF_MEMORY);
  std::thread([] {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
  }).join();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(ErrorsTest, StickyErrorsStayUntilAReset) {
  Fail("cuCtxSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(ErrorsTest, NumbersTheRuntimeLacksAreUnknown) {
  Fail("cuCtxSynchronize", CUDA_ERROR_KEY_ROTATION);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorUnknown);
}

TEST_F(ErrorsTest, AFunctionTheDriverLacksNeedsANewerDriver) {
  EXPECT_EQ(cudaOccupancyAvailableDynamicSMemPerBlock(nullptr, reinterpret_cast<void*>(8), 1, 1),
            cudaErrorCallRequiresNewerDriver);
}

TEST_F(ErrorsTest, NamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorString(cudaSuccess), "no error");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorApiFailureBase), "cudaErrorApiFailureBase");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

// Numbers are passed through, so these must mean something in the runtime.
TEST_F(ErrorsTest, SharedErrorsKeepTheirNumber) {
  for (CUresult code :
       {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_HANDLE,
        CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_READY, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_SYSTEM_NOT_READY,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_UNKNOWN}) {
    EXPECT_STRNE(cudaGetErrorName(static_cast<cudaError_t>(code)), "unrecognized error code") << code;
  }
}

TEST_F(ErrorsTest, UnsupportedFunctionsSayTheirNameOnce) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(cudaSetValidDevices(nullptr, 0), cudaErrorNotSupported);
  EXPECT_EQ(cudaSetValidDevices(nullptr, 0), cudaErrorNotSupported);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "softgpu libcudart: cudaSetValidDevices is not supported\n");
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotSupported);
}

}  // namespace
}  // namespace softgpu::runtime::testing

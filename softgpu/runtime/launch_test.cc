#include "softgpu/runtime/runtime_fixture.h"

namespace softgpu::runtime::testing {
namespace {

char g_stub;

class LaunchTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    module_.Kernel(&g_stub, "k");
    ASSERT_EQ(cudaGetKernel(&kernel_, &g_stub), cudaSuccess);
  }
  uint64_t Kernel() const { return reinterpret_cast<uint64_t>(kernel_); }

  Registered module_{&wrapper_};
  cudaKernel_t kernel_ = nullptr;
};

TEST_F(LaunchTest, PassesTheShapeOn) {
  void* args[1] = {nullptr};
  EXPECT_EQ(cudaLaunchKernel(&g_stub, dim3(3), dim3(5), args, 7, cudaStreamPerThread), cudaSuccess);
  EXPECT_EQ(Args("cuLaunchKernel"),
            (std::vector<uint64_t>{Kernel(), 3, 5, 7, 2, reinterpret_cast<uint64_t>(args)}));
}

TEST_F(LaunchTest, PerThreadLaunchesReachThePerThreadEntryPoint) {
  EXPECT_EQ(__cudaLaunchKernel_ptsz(kernel_, 1, 1, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(Calls("cuLaunchKernel_ptsz"), 1);
  EXPECT_EQ(Calls("cuLaunchKernel"), 0);
}

TEST_F(LaunchTest, ImpossibleShapesAreAnInvalidConfiguration) {
  for (dim3 block : {dim3(0), dim3(1025), dim3(1024, 1024, 1)}) {
    EXPECT_EQ(cudaLaunchKernel(&g_stub, 1, block, nullptr, 0, nullptr), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  }
  EXPECT_EQ(cudaLaunchKernel(&g_stub, 0, 1, nullptr, 0, nullptr), cudaErrorInvalidConfiguration);
}

TEST_F(LaunchTest, OtherInvalidValuesStayInvalidValues) {
  Fail("cuLaunchKernel", CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cudaLaunchKernel(&g_stub, 1, 1, nullptr, 1 << 20, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaLaunchKernel(&g_stub, 1, 1, nullptr, size_t{1} << 32, nullptr), cudaErrorInvalidValue);
}

TEST_F(LaunchTest, ExtendedAndCooperative) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(4);
  config.blockDim = dim3(6);
  config.dynamicSmemBytes = 8;
  config.attrs = attributes;
  config.numAttrs = 2;
  EXPECT_EQ(cudaLaunchKernelExC(&config, &g_stub, nullptr), cudaSuccess);
  EXPECT_EQ(Args("cuLaunchKernelEx"),
            (std::vector<uint64_t>{Kernel(), 4, 6, 8, 0, 2, reinterpret_cast<uint64_t>(attributes)}));
  EXPECT_EQ(cudaLaunchCooperativeKernel(&g_stub, 2, 3, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(Calls("cuLaunchCooperativeKernel"), 1);
}

TEST_F(LaunchTest, ConfigurationsNest) {
  EXPECT_EQ(__cudaPushCallConfiguration(1, 2, 3, nullptr), 0u);
  EXPECT_EQ(__cudaPushCallConfiguration(4, 5, 6, cudaStreamLegacy), 0u);
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaSuccess);
  EXPECT_EQ(grid.x, 4u);
  EXPECT_EQ(stream, cudaStreamLegacy);
  ASSERT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaSuccess);
  EXPECT_EQ(block.x, 2u);
  EXPECT_EQ(shared_bytes, 3u);
  EXPECT_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaErrorMissingConfiguration);
}

TEST_F(LaunchTest, AttributesComeFromTheThreadsDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaFuncAttributes attributes{};
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, &g_stub), cudaSuccess);
  EXPECT_EQ(attributes.sharedSizeBytes, 10u + CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 10 + CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  EXPECT_EQ(Args("cuKernelGetAttribute")[2], 101u);
  EXPECT_EQ(cudaFuncSetAttribute(&g_stub, cudaFuncAttributeMaxDynamicSharedMemorySize, 99), cudaSuccess);
  EXPECT_EQ(Args("cuKernelSetAttribute"), (std::vector<uint64_t>{8, 99, Kernel(), 101}));
}

TEST_F(LaunchTest, GraphKernelNodesNameTheHostStub) {
  cudaKernelNodeParams params{};
  params.func = &g_stub;
  params.gridDim = dim3(9);
  params.blockDim = dim3(1);
  cudaGraphNode_t node = nullptr;
  ASSERT_EQ(cudaGraphAddKernelNode(&node, nullptr, nullptr, 0, &params), cudaSuccess);
  EXPECT_EQ(Args("cuGraphAddKernelNode_v2")[0], Kernel());
  cudaKernelNodeParams back{};
  ASSERT_EQ(cudaGraphKernelNodeGetParams(node, &back), cudaSuccess);
  EXPECT_EQ(back.func, &g_stub);
  EXPECT_EQ(back.gridDim.x, 9u);
}

}  // namespace
}  // namespace softgpu::runtime::testing

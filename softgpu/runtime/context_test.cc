#include <cuda.h>

#include <thread>

#include "softgpu/runtime/runtime_fixture.h"

extern "C" cudaError_t cudaGetDriverEntryPointByVersion_ptsz(const char*, void**, unsigned,
                                                             unsigned long long,
                                                             cudaDriverEntryPointQueryResult*);

namespace softgpu::runtime::testing {
namespace {

class ContextTest : public RuntimeTest {};

TEST_F(ContextTest, OrdinalsBecomeHandles) {
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1), cudaSuccess);
  EXPECT_EQ(Args("cuDeviceGetAttribute"), (std::vector<uint64_t>{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 101}));
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDevice(&value), cudaSuccess);
  EXPECT_EQ(value, 0);
}

TEST_F(ContextTest, EveryThreadStartsOnDeviceZero) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  std::thread([] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(Calls("cuCtxSetCurrent"), 1);  // only that of cudaSetDevice
    EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
    EXPECT_EQ(Calls("cuCtxSetCurrent"), 2);
  }).join();
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
}

TEST_F(ContextTest, AContextOfTheProgramsOwnIsUsed) {
  CUcontext mine = nullptr;
  ASSERT_EQ(cuCtxCreate(&mine, nullptr, 0, 101), CUDA_SUCCESS);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(Calls("cuCtxSetCurrent"), 0);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(Calls("cuDevicePrimaryCtxReset_v2"), 0);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  ASSERT_EQ(cuCtxDestroy(mine), CUDA_SUCCESS);
}

TEST_F(ContextTest, ResetGivesBackTheContextAndTheNextCallTakesANewOne) {
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(Args("cuDevicePrimaryCtxReset_v2")[0], 100u);
  EXPECT_EQ(Calls("cuDevicePrimaryCtxRelease_v2"), 1);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(Calls("cuDevicePrimaryCtxRetain"), 1);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(ContextTest, AResetMayHaveReleasedTheContext) {
  Fail("cuDevicePrimaryCtxRelease_v2", CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  Fail("cuDevicePrimaryCtxRelease_v2", CUDA_ERROR_UNKNOWN);
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceReset(), cudaErrorUnknown);
}

TEST_F(ContextTest, AThreadLeftOnAResetContextIsMovedToTheNewOne) {
  ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
  std::thread([] { EXPECT_EQ(cudaDeviceReset(), cudaSuccess); }).join();
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(ContextTest, ResetStaysOnTheDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(Args("cuDevicePrimaryCtxReset_v2")[0], 101u);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
}

TEST_F(ContextTest, DeviceFlags) {
  EXPECT_EQ(cudaSetDeviceFlags(cudaDeviceScheduleYield | cudaDeviceMapHost), cudaSuccess);
  EXPECT_EQ(Args("cuDevicePrimaryCtxSetFlags_v2"), (std::vector<uint64_t>{100, CU_CTX_SCHED_YIELD}));
  EXPECT_EQ(cudaSetDeviceFlags(0x8000), cudaErrorInvalidValue);
  unsigned flags = 0;
  EXPECT_EQ(cudaGetDeviceFlags(&flags), cudaSuccess);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_CTX_SCHED_SPIN | cudaDeviceMapHost));
}

TEST_F(ContextTest, Properties) {
  cudaDeviceProp prop;
  ASSERT_EQ(cudaGetDeviceProperties(&prop, 1), cudaSuccess);
  EXPECT_STREQ(prop.name, "fake 101");
  EXPECT_EQ(prop.uuid.bytes[3], 101);
  EXPECT_EQ(prop.totalGlobalMem, size_t{5} << 30);
  EXPECT_EQ(prop.warpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  EXPECT_EQ(prop.memPitch, static_cast<size_t>(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  EXPECT_EQ(prop.maxTexture3DAlt[2], CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE);
  EXPECT_EQ(prop.hostNumaMultinodeIpcSupported, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED);
  EXPECT_EQ(cudaGetDeviceProperties(&prop, 2), cudaErrorInvalidDevice);
}

TEST_F(ContextTest, EntryPointsAreLookedUpInTheDriver) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuInit", &address, 12030, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_NE(address, nullptr);
  EXPECT_EQ(status, cudaDriverEntryPointSuccess);
  EXPECT_EQ(Args("cuGetProcAddress_v2"), (std::vector<uint64_t>{12030, CU_GET_PROC_ADDRESS_LEGACY_STREAM}));
  EXPECT_EQ(cudaGetDriverEntryPointByVersion_ptsz("cuInit", &address, 12030, cudaEnableDefault, nullptr),
            cudaSuccess);
  EXPECT_EQ(Args("cuGetProcAddress_v2")[1], uint64_t{CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM});
  EXPECT_EQ(cudaGetDriverEntryPointByVersion("cuNone", &address, 12030, cudaEnableDefault, &status),
            cudaSuccess);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(status, cudaDriverEntryPointSymbolNotFound);
}

}  // namespace
}  // namespace softgpu::runtime::testing

#include "softgpu/runtime/runtime_fixture.h"

extern "C" {
cudaError_t cudaMemcpy_ptds(void*, const void*, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync_ptsz(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
}

namespace softgpu::runtime::testing {
namespace {

class MemoryTest : public RuntimeTest {};

TEST_F(MemoryTest, NothingIsAllocatedForNothing) {
  void* memory = reinterpret_cast<void*>(5);
  EXPECT_EQ(cudaMalloc(&memory, 0), cudaSuccess);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaMallocHost(&memory, 0), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFreeArray(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(nullptr, 8), cudaErrorInvalidValue);
  EXPECT_EQ(Calls("cuMemAlloc_v2"), 0);
}

TEST_F(MemoryTest, DirectionChoosesTheDriversCall) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  char host[64] = {1};
  EXPECT_EQ(cudaMemcpy(device, host, 64, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host, device, 64, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, device, 64, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device, host, 64, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host, host, 64, cudaMemcpyHostToHost), cudaSuccess);
  EXPECT_EQ(Calls("cuMemcpyHtoD_v2"), 1);
  EXPECT_EQ(Calls("cuMemcpyDtoH_v2"), 1);
  EXPECT_EQ(Calls("cuMemcpyDtoD_v2"), 1);
  EXPECT_EQ(Calls("cuMemcpy"), 2);
  EXPECT_EQ(cudaMemcpy(device, host, 64, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(MemoryTest, PerThreadCopiesReachThePerThreadEntryPoints) {
  char from[8] = {};
  char to[8] = {};
  EXPECT_EQ(cudaMemcpy_ptds(to, from, 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Calls("cuMemcpyHtoD_v2_ptds"), 1);
  EXPECT_EQ(cudaMemcpyAsync_ptsz(to, from, 8, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync_v2_ptsz"), 1);
  EXPECT_EQ(cudaMemcpyAsync(to, from, 8, cudaMemcpyHostToDevice, nullptr), cudaSuccess);
  EXPECT_EQ(Calls("cuMemcpyHtoDAsync_v2"), 1);
}

TEST_F(MemoryTest, TwoDimensions) {
  char buffer[64] = {};
  EXPECT_EQ(cudaMemcpy2D(buffer, 8, buffer, 4, 4, 3, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Args("cuMemcpy2DUnaligned_v2"),
            (std::vector<uint64_t>{CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE, 4, 3}));
  EXPECT_EQ(cudaMemcpy2D(buffer, 8, buffer, 4, 5, 3, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2D(buffer, 8, buffer, 4, 4, 0, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(Calls("cuMemcpy2DUnaligned_v2"), 1);
}

// Extents count the array's elements (16 bytes here); the offset into plain memory counts bytes.
TEST_F(MemoryTest, ThreeDimensionsWithAnArray) {
  char buffer[64] = {};
  cudaMemcpy3DParms params{};
  params.srcPtr = {buffer, 32, 32, 7};
  params.srcPos = {3, 0, 0};
  params.dstArray = reinterpret_cast<cudaArray_t>(buffer);
  params.dstPos = {2, 0, 0};
  params.extent = {4, 5, 6};
  params.kind = cudaMemcpyHostToDevice;
  EXPECT_EQ(cudaMemcpy3D(&params), cudaSuccess);
  EXPECT_EQ(Args("cuMemcpy3D_v2"),
            (std::vector<uint64_t>{CU_MEMORYTYPE_HOST, 3, CU_MEMORYTYPE_ARRAY, 32, 64, 5, 6, 7, 0}));
  params.dstPtr.ptr = buffer;
  EXPECT_EQ(cudaMemcpy3D(&params), cudaErrorInvalidValue);
}

TEST_F(MemoryTest, CopyNodesComeBackAsTheyWent) {
  char buffer[64] = {};
  cudaMemcpy3DParms params{};
  params.srcArray = reinterpret_cast<cudaArray_t>(buffer);
  params.srcPos = {1, 2, 3};
  params.dstPtr = {buffer, 64, 64, 4};
  params.dstPos = {16, 0, 0};
  params.extent = {3, 4, 5};
  params.kind = cudaMemcpyDeviceToHost;
  cudaGraphNode_t node = nullptr;
  ASSERT_EQ(cudaGraphAddMemcpyNode(&node, nullptr, nullptr, 0, &params), cudaSuccess);
  EXPECT_NE(Args("cuGraphAddMemcpyNode")[0], 0u);
  cudaMemcpy3DParms back{};
  ASSERT_EQ(cudaGraphMemcpyNodeGetParams(node, &back), cudaSuccess);
  EXPECT_EQ(back.srcArray, params.srcArray);
  EXPECT_EQ(back.srcPos.x, 1u);
  EXPECT_EQ(back.dstPos.x, 16u);
  EXPECT_EQ(back.extent.width, 3u);
  EXPECT_EQ(back.dstPtr.ptr, buffer);
}

TEST_F(MemoryTest, FillsAVolumeSliceBySliceWhenRowsAreSkipped) {
  cudaPitchedPtr target{reinterpret_cast<void*>(0x1000), 64, 64, 10};
  EXPECT_EQ(cudaMemset3D(target, 0x101, {32, 10, 3}), cudaSuccess);
  EXPECT_EQ(Args("cuMemsetD2D8_v2"), (std::vector<uint64_t>{0x1000, 64, 1, 32, 30}));
  FakeClearLog();
  EXPECT_EQ(cudaMemset3D(target, 1, {32, 4, 3}), cudaSuccess);
  EXPECT_EQ(Calls("cuMemsetD2D8_v2"), 3);
  EXPECT_EQ(Args("cuMemsetD2D8_v2"), (std::vector<uint64_t>{0x1000 + 2 * 640, 64, 1, 32, 4}));
}

TEST_F(MemoryTest, ForwardsConvertTheirArguments) {
  void* memory = reinterpret_cast<void*>(0x1000);
  const cudaMemLocation location{cudaMemLocationTypeDevice, 1};
  EXPECT_EQ(cudaMemPrefetchAsync(memory, 64, location, 3, cudaStreamPerThread), cudaSuccess);
  const std::vector<uint64_t> args = Args("cuMemPrefetchAsync_v2");
  EXPECT_EQ(args[0], 0x1000u);
  EXPECT_EQ(args[1], 64u);
  EXPECT_EQ(args[2], (uint64_t{1} << 32) | CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(static_cast<unsigned>(args[3]), 3u);
  EXPECT_EQ(args[4], 2u);
  EXPECT_EQ(cudaKernelSetAttributeForDevice(nullptr, cudaFuncAttributePreferredSharedMemoryCarveout, 50, 1),
            cudaSuccess);
  EXPECT_EQ(Args("cuKernelSetAttribute"), (std::vector<uint64_t>{9, 50, 0, 101}));
}

TEST_F(MemoryTest, PointerAttributes) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  cudaPointerAttributes attributes{};
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, device), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.devicePointer, device);
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &device), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.devicePointer, nullptr);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
}  // namespace softgpu::runtime::testing

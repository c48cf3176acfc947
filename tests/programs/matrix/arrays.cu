// Arrays, mipmaps, textures and surfaces, with contents.
#include <vector>

#include "matrix.h"

namespace {

using matrix::Say;
using matrix::SayHash;

constexpr unsigned kWidth = 40, kHeight = 20, kDepth = 5;
float* out;

void MakeOut() { CHECK(cudaMalloc(&out, kWidth * kHeight * kDepth * sizeof(float))); }

std::vector<float> Pattern(size_t count, unsigned seed) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 37 + seed * 101) % 1000) / 8;
  return values;
}

void Fill(cudaArray_t array, unsigned width, unsigned height, unsigned seed) {
  const std::vector<float> values = Pattern(width * height, seed);
  CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), width * sizeof(float), width * sizeof(float), height, cudaMemcpyHostToDevice));
}

void SayArray(cudaArray_t array, unsigned width, unsigned height) {
  CHECK(cudaMemcpy2DFromArray(out, width * sizeof(float), array, 0, 0, width * sizeof(float), height, cudaMemcpyDeviceToDevice));
  SayHash("array", out, width * height * sizeof(float));
}

// ---- Arrays of one to three dimensions, and what they say of themselves.

cudaArray_t line, plane, box;

void MakeArrays() {
  MakeOut();
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocArray(&line, &format, kWidth, 0));
  CHECK(cudaMallocArray(&plane, &format, kWidth, kHeight));
  CHECK(cudaMalloc3DArray(&box, &format, make_cudaExtent(kWidth, kHeight, kDepth)));
  Fill(line, kWidth, 1, 1);
  Fill(plane, kWidth, kHeight, 2);
  cudaMemcpy3DParms copy{};
  std::vector<float> values = Pattern(kWidth * kHeight * kDepth, 3);
  copy.srcPtr = make_cudaPitchedPtr(values.data(), kWidth * sizeof(float), kWidth, kHeight);
  copy.dstArray = box;
  copy.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
}

void StepArrays(unsigned number) {
  SayArray(line, kWidth, 1);
  SayArray(plane, kWidth, kHeight);
  cudaMemcpy3DParms copy{};
  copy.srcArray = box;
  copy.dstPtr = make_cudaPitchedPtr(out, kWidth * sizeof(float), kWidth, kHeight);
  copy.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  copy.kind = cudaMemcpyDeviceToDevice;
  CHECK(cudaMemcpy3D(&copy));
  SayHash("box", out, kWidth * kHeight * kDepth * sizeof(float));
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags = 0;
  CHECK(cudaArrayGetInfo(&format, &extent, &flags, box));
  Say("%d %zu %zu %zu %x", format.x, extent.width, extent.height, extent.depth, flags);
  Fill(plane, kWidth, kHeight, number);
}
MATRIX_CASE(arrays, "array", "kArray", MakeArrays, StepArrays, [] {
  for (cudaArray_t array : {line, plane, box}) CHECK(cudaFreeArray(array));
});

// ---- A texture of an array, which clamps and filters.

__global__ void Sample(cudaTextureObject_t texture, float* to, unsigned width, float shift) {
  const unsigned x = threadIdx.x, y = blockIdx.x;
  to[y * width + x] = tex2D<float>(texture, x + shift, y + shift);
}

cudaTextureObject_t texture;

cudaTextureDesc Filtered() {
  cudaTextureDesc description{};
  description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
  description.filterMode = cudaFilterModeLinear;
  description.readMode = cudaReadModeElementType;
  return description;
}

void MakeTexture() {
  MakeOut();
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocArray(&plane, &format, kWidth, kHeight));
  Fill(plane, kWidth, kHeight, 5);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = plane;
  const cudaTextureDesc description = Filtered();
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
}

void StepTexture(unsigned number) {
  Sample<<<kHeight, kWidth>>>(texture, out, kWidth, number * 0.25f);
  CHECK(cudaGetLastError());
  SayHash("sampled", out, kWidth * kHeight * sizeof(float));
  cudaTextureDesc description;
  CHECK(cudaGetTextureObjectTextureDesc(&description, texture));
  cudaResourceDesc resource;
  CHECK(cudaGetTextureObjectResourceDesc(&resource, texture));
  Say("filter %d same %d", description.filterMode, resource.res.array.array == plane);
  Fill(plane, kWidth, kHeight, number);
}

void EndTexture() {
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeArray(plane));
  CHECK(cudaFree(out));
}
MATRIX_CASE(textures, "texture", "kTexture kArray", MakeTexture, StepTexture, EndTexture);

// ---- Pair: a texture of pitched memory, which kernels write as memory.

float* pitched;
size_t pitch;

void MakePitchedTexture() {
  MakeOut();
  CHECK(cudaMallocPitch(reinterpret_cast<void**>(&pitched), &pitch, kWidth * sizeof(float), kHeight));
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = pitched;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
  resource.res.pitch2D.width = kWidth;
  resource.res.pitch2D.height = kHeight;
  resource.res.pitch2D.pitchInBytes = pitch;
  const cudaTextureDesc description = Filtered();
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
}

void StepPitchedTexture(unsigned number) {
  const std::vector<float> values = Pattern(kWidth * kHeight, number);
  CHECK(cudaMemcpy2D(pitched, pitch, values.data(), kWidth * sizeof(float), kWidth * sizeof(float), kHeight, cudaMemcpyHostToDevice));
  Sample<<<kHeight, kWidth>>>(texture, out, kWidth, 0.5f);
  CHECK(cudaGetLastError());
  SayHash("sampled", out, kWidth * kHeight * sizeof(float));
}

void EndPitchedTexture() {
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFree(pitched));
  CHECK(cudaFree(out));
}
MATRIX_CASE(pitched_textures, "texture-of-pitched-memory", "kTexture kDeviceMemory", MakePitchedTexture, StepPitchedTexture, EndPitchedTexture);

// ---- A surface, which kernels write.

__global__ void WriteSurface(cudaSurfaceObject_t surface, unsigned number) {
  const unsigned x = threadIdx.x, y = blockIdx.x;
  float now;
  surf2Dread(&now, surface, x * sizeof(float), y);
  surf2Dwrite(now * 0.5f + x + y * number, surface, x * sizeof(float), y);
}

cudaSurfaceObject_t surface;

void MakeSurface() {
  MakeOut();
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocArray(&plane, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  Fill(plane, kWidth, kHeight, 5);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = plane;
  CHECK(cudaCreateSurfaceObject(&surface, &resource));
}

void StepSurface(unsigned number) {
  WriteSurface<<<kHeight, kWidth>>>(surface, number);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  SayArray(plane, kWidth, kHeight);
}

void EndSurface() {
  CHECK(cudaDestroySurfaceObject(surface));
  CHECK(cudaFreeArray(plane));
  CHECK(cudaFree(out));
}
MATRIX_CASE(surfaces, "surface", "kSurface kArray", MakeSurface, StepSurface, EndSurface);

// ---- A mipmapped array, its levels, and a texture that reads them.

cudaMipmappedArray_t mipmap;

__global__ void SampleLevels(cudaTextureObject_t of, float* to, float level) {
  to[threadIdx.x] = tex2DLod<float>(of, threadIdx.x / 16.0f, 0.5f, level);
}

void MakeMipmap() {
  MakeOut();
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(16, 16, 0), 3));
  for (unsigned level = 0; level < 3; ++level) {
    cudaArray_t array = nullptr;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    Fill(array, 16 >> level, 16 >> level, level + 1);
  }
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mipmap;
  cudaTextureDesc description = Filtered();
  description.normalizedCoords = 1;
  description.mipmapFilterMode = cudaFilterModePoint;
  description.maxMipmapLevelClamp = 2;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
}

void StepMipmap(unsigned number) {
  for (unsigned level = 0; level < 3; ++level) {
    cudaArray_t array = nullptr;
    CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    SayArray(array, 16 >> level, 16 >> level);
    SampleLevels<<<1, 16>>>(texture, out, static_cast<float>(level));
    CHECK(cudaGetLastError());
    SayHash("level", out, 16 * sizeof(float));
    Fill(array, 16 >> level, 16 >> level, number + level);
  }
}
MATRIX_CASE(mipmaps, "mipmap", "kMipmappedArray kArrayLevel kTexture", MakeMipmap, StepMipmap, [] {
  CHECK(cudaDestroyTextureObject(texture));
  CHECK(cudaFreeMipmappedArray(mipmap));
  CHECK(cudaFree(out));
});

}  // namespace

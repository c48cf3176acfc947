// Memory of every kind through the runtime API.
#include <cstring>
#include <vector>

#include "check.h"

__device__ int device_value = 7;
__constant__ float constants[4];
__managed__ int managed_value = 11;

__global__ void Add(int* data, int count, int amount) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += amount;
}

__global__ void ReadSymbols(float* out) {
  out[0] = static_cast<float>(device_value);
  out[1] = constants[2];
  out[2] = static_cast<float>(managed_value);
  managed_value = 12;
}

__global__ void Sample(cudaTextureObject_t texture, float* out, int width, int height) {
  const int i = threadIdx.x;
  if (i < width * height) out[i] = tex2D<float>(texture, i % width + 0.5f, i / width + 0.5f);
}

static void Linear() {
  constexpr int kCount = 1000;
  std::vector<int> host(kCount, 1);
  int* a = nullptr;
  int* b = nullptr;
  OK(cudaMalloc(&a, kCount * sizeof(int)));
  OK(cudaMalloc(&b, kCount * sizeof(int)));
  OK(cudaMemcpy(a, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  Add<<<4, 256>>>(a, kCount, 41);
  OK(cudaGetLastError());
  OK(cudaMemcpy(b, a, kCount * sizeof(int), cudaMemcpyDeviceToDevice));
  OK(cudaMemcpy(host.data(), b, kCount * sizeof(int), cudaMemcpyDefault));
  EXPECT(host[0] == 42 && host[kCount - 1] == 42);
  OK(cudaMemset(a, 0x01, kCount * sizeof(int)));
  OK(cudaMemcpy(host.data(), a, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT(host[17] == 0x01010101);
  FAILS(cudaMemcpy(a, b, 4, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaGetLastError(), cudaErrorInvalidMemcpyDirection);
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(nullptr));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  OK(cudaMemGetInfo(&free_bytes, &total_bytes));
  EXPECT(free_bytes > 0 && free_bytes <= total_bytes);
}

static void Pitched() {
  constexpr size_t kWidth = 100;
  constexpr size_t kHeight = 7;
  unsigned char host[kHeight][kWidth];
  std::memset(host, 3, sizeof host);
  void* device = nullptr;
  size_t pitch = 0;
  OK(cudaMallocPitch(&device, &pitch, kWidth, kHeight));
  EXPECT(pitch >= kWidth);
  OK(cudaMemset2D(device, pitch, 9, kWidth, kHeight));
  OK(cudaMemcpy2D(static_cast<char*>(device) + pitch, pitch, host[1], kWidth, kWidth, 1,
                  cudaMemcpyHostToDevice));
  OK(cudaMemcpy2D(host, kWidth, device, pitch, kWidth, kHeight, cudaMemcpyDeviceToHost));
  EXPECT(host[0][5] == 9 && host[1][5] == 3 && host[6][99] == 9);
  FAILS(cudaMemcpy2D(host, kWidth - 1, device, pitch, kWidth, 2, cudaMemcpyDeviceToHost),
        cudaErrorInvalidPitchValue);
  FAILS(cudaGetLastError(), cudaErrorInvalidPitchValue);
  OK(cudaFree(device));
}

static void Volume() {
  const cudaExtent extent = make_cudaExtent(16, 4, 3);
  cudaPitchedPtr device{};
  OK(cudaMalloc3D(&device, extent));
  OK(cudaMemset3D(device, 5, extent));
  unsigned char host[3][4][16] = {};
  cudaMemcpy3DParms copy{};
  copy.srcPtr = device;
  copy.dstPtr = make_cudaPitchedPtr(host, 16, 16, 4);
  copy.extent = extent;
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaMemcpy3D(&copy));
  EXPECT(host[0][0][0] == 5 && host[2][3][15] == 5);
  OK(cudaFree(device.ptr));
}

static void Host() {
  int* pinned = nullptr;
  OK(cudaHostAlloc(&pinned, 256 * sizeof(int), cudaHostAllocMapped));
  for (int i = 0; i < 256; ++i) pinned[i] = i;
  int* device_view = nullptr;
  OK(cudaHostGetDevicePointer(&device_view, pinned, 0));
  Add<<<1, 256>>>(device_view, 256, 1);
  OK(cudaDeviceSynchronize());
  EXPECT(pinned[0] == 1 && pinned[255] == 256);
  cudaPointerAttributes attributes{};
  OK(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned);
  OK(cudaFreeHost(pinned));

  static int registered[4096];
  OK(cudaHostRegister(registered, sizeof registered, cudaHostRegisterDefault));
  OK(cudaHostGetDevicePointer(&device_view, registered, 0));
  Add<<<16, 256>>>(device_view, 4096, 2);
  OK(cudaDeviceSynchronize());
  EXPECT(registered[4095] == 2);
  OK(cudaHostUnregister(registered));
  OK(cudaPointerGetAttributes(&attributes, registered));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered);
}

static void Managed() {
  int* shared = nullptr;
  OK(cudaMallocManaged(&shared, 256 * sizeof(int)));
  for (int i = 0; i < 256; ++i) shared[i] = 1;
  Add<<<1, 256>>>(shared, 256, 1);
  OK(cudaDeviceSynchronize());
  EXPECT(shared[128] == 2);
  cudaPointerAttributes attributes{};
  OK(cudaPointerGetAttributes(&attributes, shared));
  EXPECT(attributes.type == cudaMemoryTypeManaged);
  OK(cudaMemPrefetchAsync(shared, 256 * sizeof(int), {cudaMemLocationTypeDevice, 0}, 0, nullptr));
  OK(cudaMemAdvise(shared, 256 * sizeof(int), cudaMemAdviseSetReadMostly, {cudaMemLocationTypeDevice, 0}));
  OK(cudaDeviceSynchronize());
  OK(cudaFree(shared));
}

static void Symbols() {
  const float values[4] = {1, 2, 3, 4};
  OK(cudaMemcpyToSymbol(constants, values, sizeof values));
  const int next = 8;
  OK(cudaMemcpyToSymbol(device_value, &next, sizeof next));
  EXPECT(managed_value == 11);
  float* out = nullptr;
  OK(cudaMalloc(&out, 3 * sizeof(float)));
  ReadSymbols<<<1, 1>>>(out);
  float host[3] = {};
  OK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host[0] == 8 && host[1] == 3 && host[2] == 11);
  EXPECT(managed_value == 12);
  size_t size = 0;
  OK(cudaGetSymbolSize(&size, constants));
  EXPECT(size == sizeof values);
  void* address = nullptr;
  OK(cudaGetSymbolAddress(&address, device_value));
  int read = 0;
  OK(cudaMemcpy(&read, address, sizeof read, cudaMemcpyDeviceToHost));
  EXPECT(read == 8);
  FAILS(cudaMemcpyToSymbol(device_value, &next, sizeof next, 4), cudaErrorInvalidValue);
  FAILS(cudaGetSymbolAddress(&address, static_cast<const void*>(&size)), cudaErrorInvalidSymbol);
  FAILS(cudaGetLastError(), cudaErrorInvalidSymbol);
  OK(cudaFree(out));
}

static void Pools() {
  cudaMemPool_t pool = nullptr;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long threshold = ~0ull;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  int* a = nullptr;
  OK(cudaMallocAsync(&a, 1024, stream));
  OK(cudaMemsetAsync(a, 0, 1024, stream));
  Add<<<1, 256, 0, stream>>>(a, 256, 5);
  int host[256] = {};
  OK(cudaMemcpyAsync(host, a, sizeof host, cudaMemcpyDeviceToHost, stream));
  OK(cudaFreeAsync(a, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(host[200] == 5);
  OK(cudaMemPoolTrimTo(pool, 0));

  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location = {cudaMemLocationTypeDevice, 0};
  cudaMemPool_t own = nullptr;
  OK(cudaMemPoolCreate(&own, &props));
  OK(cudaMallocFromPoolAsync(&a, 64, own, stream));
  OK(cudaFreeAsync(a, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolDestroy(own));
  OK(cudaStreamDestroy(stream));
}

static void Textures() {
  constexpr int kWidth = 8;
  constexpr int kHeight = 4;
  float host[kHeight][kWidth];
  for (int i = 0; i < kWidth * kHeight; ++i) host[i / kWidth][i % kWidth] = static_cast<float>(i);
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array = nullptr;
  OK(cudaMallocArray(&array, &format, kWidth, kHeight));
  OK(cudaMemcpy2DToArray(array, 0, 0, host, sizeof host[0], sizeof host[0], kHeight, cudaMemcpyHostToDevice));
  cudaChannelFormatDesc back{};
  cudaExtent extent{};
  unsigned flags = 1;
  OK(cudaArrayGetInfo(&back, &extent, &flags, array));
  EXPECT(back.x == 32 && back.f == cudaChannelFormatKindFloat && extent.width == kWidth &&
         extent.height == kHeight);
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  cudaTextureDesc sampling{};
  sampling.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  OK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
  float* out = nullptr;
  OK(cudaMalloc(&out, sizeof host));
  Sample<<<1, kWidth * kHeight>>>(texture, out, kWidth, kHeight);
  float sampled[kHeight][kWidth] = {};
  OK(cudaMemcpy(sampled, out, sizeof sampled, cudaMemcpyDeviceToHost));
  EXPECT(std::memcmp(sampled, host, sizeof host) == 0);
  OK(cudaMemcpy2DFromArray(sampled, sizeof sampled[0], array, 0, 0, sizeof sampled[0], kHeight,
                           cudaMemcpyDeviceToHost));
  EXPECT(sampled[3][7] == 31);
  OK(cudaDestroyTextureObject(texture));
  OK(cudaFree(out));
  OK(cudaFreeArray(array));
}

int main() {
  Linear();
  Pitched();
  Volume();
  Host();
  Managed();
  Symbols();
  Pools();
  Textures();
  return Finish();
}

// Many textures and surfaces of arrays of every shape, one step for each line of standard input. Their
// numbers lie in device memory only, in a table that kernels read, so that nobody can change them on the way.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

static void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::fflush(stdout);
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

constexpr int kSide = 8, kDepth = 3, kSlots = 24, kKinds = 5;

struct Slot {
  cudaTextureObject_t texture;
  cudaSurfaceObject_t surface;  // 0: a texture alone
  int kind;                     // -1: empty
};

// What belongs to a slot and is not in device memory.
struct Host {
  cudaArray_t array = nullptr;
  cudaMipmappedArray_t mipmap = nullptr;
  unsigned* linear = nullptr;
  bool orphan = false;  // the array was freed before its texture
};

static Slot* table;
static unsigned long long* sums;
static Host hosts[kSlots];
static unsigned state = 12345;

static unsigned Random() { return state = state * 1664525u + 1013904223u; }

__device__ unsigned Texel(const Slot& slot, int x, int y, int z) {
  switch (slot.kind) {
    case 0:
      return tex2D<unsigned>(slot.texture, x, y);
    case 1:
      return tex3D<unsigned>(slot.texture, x, y, z);
    case 2:
      return tex2DLayered<unsigned>(slot.texture, x, y, z);
    case 3:
      return tex1Dfetch<unsigned>(slot.texture, x + kSide * y);
    default:
      return tex2D<unsigned>(slot.texture, x, y);
  }
}

// One block a slot: the order in which its threads add does not matter.
__global__ void Sum(const Slot* slots, unsigned long long* to) {
  const Slot slot = slots[blockIdx.x];
  if (slot.kind < 0) return;
  const int x = threadIdx.x, y = threadIdx.y;
  unsigned long long sum = 0;
  for (int z = 0; z < kDepth; ++z) sum += Texel(slot, x, y, z) * (1ull + x + kSide * y + kSide * kSide * z);
  atomicAdd(to + blockIdx.x, sum);
}

// Every texel of a surface changes with its place.
__global__ void Change(const Slot* slots, unsigned seed) {
  const Slot slot = slots[blockIdx.x];
  if (slot.kind < 0 || slot.surface == 0) return;
  const int x = threadIdx.x, y = threadIdx.y;
  const unsigned old = surf2Dread<unsigned>(slot.surface, x * 4, y);
  surf2Dwrite(old * 3 + seed + x * y, slot.surface, x * 4, y);
}

static void FillArray(cudaArray_t array, int width, int height, int depth) {
  std::vector<unsigned> texels(width * height * depth);
  for (unsigned& texel : texels) texel = Random() >> 8;
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(texels.data(), width * 4, width, height);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(width, height, depth);
  copy.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&copy));
}

static cudaResourceDesc MakeResource(int kind, Host* host) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
  cudaResourceDesc resource{};
  resource.resType = cudaResourceTypeArray;
  if (kind == 3) {
    std::vector<unsigned> words(kSide * kSide);
    for (unsigned& word : words) word = Random() >> 8;
    CHECK(cudaMalloc(&host->linear, words.size() * 4));
    CHECK(cudaMemcpy(host->linear, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = host->linear;
    resource.res.linear.desc = format;
    resource.res.linear.sizeInBytes = words.size() * 4;
    return resource;
  }
  if (kind == 4) {
    CHECK(cudaMallocMipmappedArray(&host->mipmap, &format, make_cudaExtent(kSide, kSide, 0), 3));
    for (unsigned level = 0; level < 3; ++level) {
      cudaArray_t array = nullptr;
      CHECK(cudaGetMipmappedArrayLevel(&array, host->mipmap, level));
      FillArray(array, kSide >> level, kSide >> level, 1);
    }
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = host->mipmap;
    return resource;
  }
  const int depth = kind == 0 ? 0 : kDepth;
  const unsigned flags = kind == 0 ? cudaArraySurfaceLoadStore : kind == 2 ? cudaArrayLayered : 0;
  CHECK(cudaMalloc3DArray(&host->array, &format, make_cudaExtent(kSide, kSide, depth), flags));
  FillArray(host->array, kSide, kSide, depth == 0 ? 1 : depth);
  resource.res.array.array = host->array;
  return resource;
}

static Slot Read(int index) {
  Slot slot;
  CHECK(cudaMemcpy(&slot, table + index, sizeof slot, cudaMemcpyDeviceToHost));
  return slot;
}

static void Write(int index, const Slot& slot) {
  CHECK(cudaMemcpy(table + index, &slot, sizeof slot, cudaMemcpyHostToDevice));
}

static void Make(int index) {
  Slot slot{};
  slot.kind = static_cast<int>((Random() >> 10) % kKinds);
  const cudaResourceDesc resource = MakeResource(slot.kind, &hosts[index]);
  cudaTextureDesc texture{};
  for (cudaTextureAddressMode& mode : texture.addressMode) mode = cudaAddressModeClamp;
  texture.readMode = cudaReadModeElementType;
  if (slot.kind == 0 && Random() % 1024 < 512) CHECK(cudaCreateSurfaceObject(&slot.surface, &resource));
  CHECK(cudaCreateTextureObject(&slot.texture, &resource, &texture, nullptr));
  if (slot.kind == 0 && slot.surface == 0) CHECK(cudaCreateSurfaceObject(&slot.surface, &resource));
  Write(index, slot);
}

static void FreeResource(Host* host) {
  if (host->array != nullptr) CHECK(cudaFreeArray(host->array));
  if (host->mipmap != nullptr) CHECK(cudaFreeMipmappedArray(host->mipmap));
  if (host->linear != nullptr) CHECK(cudaFree(host->linear));
  *host = Host{};
}

static void Drop(int index) {
  const Slot slot = Read(index);
  CHECK(cudaDestroyTextureObject(slot.texture));
  if (slot.surface != 0) CHECK(cudaDestroySurfaceObject(slot.surface));
  FreeResource(&hosts[index]);
  Write(index, Slot{0, 0, -1});
}

// The resource goes; the objects stay for now, and no kernel looks at them.
static void Orphan(int index) {
  FreeResource(&hosts[index]);
  hosts[index].orphan = true;
  Slot slot = Read(index);
  slot.kind = -2;
  Write(index, slot);
}

static void Show(int step) {
  unsigned long long found[kSlots];
  CHECK(cudaMemset(sums, 0, sizeof found));
  Sum<<<kSlots, dim3(kSide, kSide)>>>(table, sums);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(found, sums, sizeof found, cudaMemcpyDeviceToHost));
  unsigned long long all = 0;
  int objects = 0;
  for (int i = 0; i < kSlots; ++i) {
    all = all * 31 + found[i];
    const Slot slot = Read(i);
    objects += (slot.texture != 0) + (slot.surface != 0);
    if (slot.kind < 0 || slot.kind == 3) continue;
    cudaResourceDesc resource;
    CHECK(cudaGetTextureObjectResourceDesc(&resource, slot.texture));
    const bool same = slot.kind == 4 ? resource.res.mipmap.mipmap == hosts[i].mipmap
                                     : resource.res.array.array == hosts[i].array;
    if (!same) std::printf("slot %d: another array\n", i);
  }
  std::printf("step %d: %016llx objects %d\n", step, all, objects);
  std::fflush(stdout);
}

static void Step(unsigned seed) {
  for (int change = 0; change < 6; ++change) {
    const int index = static_cast<int>((Random() >> 9) % kSlots);
    const Slot slot = Read(index);
    if (slot.kind == -1) {
      Make(index);
    } else if (slot.kind >= 0 && Random() % 4096 < 1024) {
      Orphan(index);
    } else {
      Drop(index);
    }
  }
  Change<<<kSlots, dim3(kSide, kSide)>>>(table, seed);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}

int main() {
  CHECK(cudaMalloc(&table, kSlots * sizeof(Slot)));
  CHECK(cudaMalloc(&sums, kSlots * sizeof *sums));
  for (int i = 0; i < kSlots; ++i) Write(i, Slot{0, 0, -1});
  for (int i = 0; i < kSlots; i += 2) Make(i);
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  for (int step = 1; std::getline(std::cin, line) && line.empty(); ++step) {
    Step(static_cast<unsigned>(step));
    Show(step);
  }
  for (int i = 0; i < kSlots; ++i) {
    if (Read(i).kind != -1) Drop(i);
  }
  CHECK(cudaFree(table));
  CHECK(cudaFree(sums));
  std::printf("done\n");
  return 0;
}

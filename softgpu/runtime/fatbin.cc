#include "softgpu/runtime/fatbin.h"

#include <cstring>

#include "softgpu/runtime/driver.h"
#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243B1;
constexpr uint32_t kFatbinMagic = 0xBA55ED50;

// Header of a fat binary; its entries follow.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_size;
  uint64_t entries_size;
};
static_assert(sizeof(FatbinHeader) == 16);

cudaError_t LoadImage(const void* image, CUlibrary* library) {
  return CU(cuLibraryLoadData)(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

cudaError_t AddPart(CUlinkState state, const void* part) {
  FatbinHeader header;
  std::memcpy(&header, part, sizeof header);
  if (header.magic != kFatbinMagic) return cudaErrorInvalidKernelImage;
  return CU(cuLinkAddData)(state, CU_JIT_INPUT_FATBINARY, const_cast<void*>(part),
                           header.header_size + header.entries_size, "fatbin", 0, nullptr, nullptr);
}

// A part without code for the device does not keep the others from being linked: nvcc adds its device runtime library
// to every relocatable program, with PTX for the newest devices only. What is missing shows when it is looked up.
cudaError_t AddParts(CUlinkState state, const void* const* parts) {
  bool any = false;
  for (; *parts != nullptr; ++parts) {
    const cudaError_t error = AddPart(state, *parts);
    if (error != cudaSuccess && error != cudaErrorNoKernelImageForDevice) return error;
    any |= error == cudaSuccess;
  }
  return any ? cudaSuccess : cudaErrorNoKernelImageForDevice;
}

cudaError_t LinkAndLoad(CUlinkState state, const void* const* parts, CUlibrary* library) {
  RT_TRY(AddParts(state, parts));
  void* image = nullptr;
  size_t size = 0;
  RT_TRY(CU(cuLinkComplete)(state, &image, &size));
  return LoadImage(image, library);
}

// The linked image belongs to the link state, and the library keeps its own copy.
cudaError_t LoadParts(const void* const* parts, CUlibrary* library) {
  CUlinkState state = nullptr;
  RT_TRY(CU(cuLinkCreate)(0, nullptr, nullptr, &state));
  const cudaError_t error = LinkAndLoad(state, parts, library);
  const cudaError_t destroyed = CU(cuLinkDestroy)(state);
  return error != cudaSuccess ? error : destroyed;
}

}  // namespace

cudaError_t LoadFatbin(const FatbinWrapper* wrapper, CUlibrary* library) {
  if (wrapper == nullptr || wrapper->magic != kWrapperMagic) return cudaErrorInvalidKernelImage;
  if (wrapper->version == 1) return LoadImage(wrapper->data, library);
  if (wrapper->version != 2 || wrapper->parts == nullptr) return cudaErrorInvalidKernelImage;
  return LoadParts(wrapper->parts, library);
}

}  // namespace softgpu::runtime

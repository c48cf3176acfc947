// Entry points: texture and surface objects.
#include <cuda.h>

#include <optional>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

TextureTable& Textures(const Entry& entry) { return entry.state().memory().textures(); }

// Copies what `read` finds in the object.
template <typename T, typename Read>
CUresult Describe(T* out, uint64_t handle, bool surface, Read read) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::optional<TextureObject> object = Textures(entry).Get(entry.context().handle(), handle, surface);
  if (out == nullptr || !object) return CUDA_ERROR_INVALID_VALUE;
  return read(*object, out);
}

CUresult ReadResource(const TextureObject& object, CUDA_RESOURCE_DESC* out) {
  *out = object.resource;
  return CUDA_SUCCESS;
}

CUresult ReadTexture(const TextureObject& object, CUDA_TEXTURE_DESC* out) {
  *out = object.texture;
  return CUDA_SUCCESS;
}

CUresult ReadView(const TextureObject& object, CUDA_RESOURCE_VIEW_DESC* out) {
  if (!object.resource_view) return CUDA_ERROR_INVALID_VALUE;
  *out = *object.resource_view;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuTexObjectCreate(CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                                   const CUDA_TEXTURE_DESC* pTexDesc,
                                   const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Textures(entry).CreateTexture(entry.context().handle(), *pResDesc, *pTexDesc, pResViewDesc,
                                       pTexObject);
}

CUresult CUDAAPI cuTexObjectDestroy(CUtexObject texObject) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  return Textures(entry).Destroy(entry.context().handle(), texObject, false);
}

CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  return Describe(pResDesc, texObject, false, ReadResource);
}

CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  return Describe(pTexDesc, texObject, false, ReadTexture);
}

CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                                CUtexObject texObject) {
  return Describe(pResViewDesc, texObject, false, ReadView);
}

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pSurfObject == nullptr || pResDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Textures(entry).CreateSurface(entry.context().handle(), *pResDesc, pSurfObject);
}

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject surfObject) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  return Textures(entry).Destroy(entry.context().handle(), surfObject, true);
}

CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC* pResDesc, CUsurfObject surfObject) {
  return Describe(pResDesc, surfObject, true, ReadResource);
}

}  // extern "C"

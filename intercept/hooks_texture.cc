// Texture and surface objects. Their handles are never translated: see replay/texture_record.h.
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/texture_record.h"

namespace stasis::hooks {
namespace {

using replay::TextureObject;
using replay::TextureSort;

// Answers with what the program gave. The object below may be another one's stand-in, and names real handles.
template <typename T, typename Read>
CUresult Describe(CUresult result, uint64_t number, TextureSort sort, T* out, Read read) {
  if (result != CUDA_SUCCESS || !replay::Translating()) return result;
  const replay::TexturePtr object = replay::FindTexture(number, sort);
  if (object != nullptr) *out = read(*object);
  return result;
}

CUDA_RESOURCE_DESC ResourceOf(const TextureObject& object) { return object.resource; }

}  // namespace

CUresult cuTexObjectCreate(const Call& call, CUtexObject* pTexObject, const CUDA_RESOURCE_DESC* pResDesc,
                           const CUDA_TEXTURE_DESC* pTexDesc, const CUDA_RESOURCE_VIEW_DESC* pResViewDesc) {
  const RealStruct<CUDA_RESOURCE_DESC> resource(pResDesc);
  const CUresult result =
      call.Real<decltype(&::cuTexObjectCreate)>()(pTexObject, resource.get(), pTexDesc, pResViewDesc);
  if (result == CUDA_SUCCESS &&
      !replay::NoteTexture(*pTexObject, TextureSort::kTexture, *pResDesc, pTexDesc, pResViewDesc))
    TaintOnce(call.fn, false);
  return result;
}

CUresult cuTexObjectDestroy(const Call& call, CUtexObject texObject) {
  const replay::DyingTexture dying = replay::PrepareTextureDestroy(texObject, TextureSort::kTexture);
  const CUresult result = call.Real<decltype(&::cuTexObjectDestroy)>()(texObject);
  if (result == CUDA_SUCCESS) replay::NoteTextureDestroyed(dying, texObject, TextureSort::kTexture);
  return result;
}

CUresult cuTexObjectGetResourceDesc(const Call& call, CUDA_RESOURCE_DESC* pResDesc, CUtexObject texObject) {
  const CUresult result = call.Real<decltype(&::cuTexObjectGetResourceDesc)>()(pResDesc, texObject);
  return Describe(result, texObject, TextureSort::kTexture, pResDesc, ResourceOf);
}

CUresult cuTexObjectGetTextureDesc(const Call& call, CUDA_TEXTURE_DESC* pTexDesc, CUtexObject texObject) {
  const CUresult result = call.Real<decltype(&::cuTexObjectGetTextureDesc)>()(pTexDesc, texObject);
  return Describe(result, texObject, TextureSort::kTexture, pTexDesc,
                  [](const TextureObject& object) { return object.texture; });
}

CUresult cuTexObjectGetResourceViewDesc(const Call& call, CUDA_RESOURCE_VIEW_DESC* pResViewDesc,
                                        CUtexObject texObject) {
  const CUresult result = call.Real<decltype(&::cuTexObjectGetResourceViewDesc)>()(pResViewDesc, texObject);
  if (!replay::Translating() || pResViewDesc == nullptr) return result;
  const replay::TexturePtr object = replay::FindTexture(texObject, TextureSort::kTexture);
  if (object == nullptr || !object->view.has_value()) return result;
  *pResViewDesc = *object->view;
  return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(const Call& call, CUsurfObject* pSurfObject, const CUDA_RESOURCE_DESC* pResDesc) {
  const RealStruct<CUDA_RESOURCE_DESC> resource(pResDesc);
  const CUresult result = call.Real<decltype(&::cuSurfObjectCreate)>()(pSurfObject, resource.get());
  if (result == CUDA_SUCCESS &&
      !replay::NoteTexture(*pSurfObject, TextureSort::kSurface, *pResDesc, nullptr, nullptr))
    TaintOnce(call.fn, false);
  return result;
}

CUresult cuSurfObjectDestroy(const Call& call, CUsurfObject surfObject) {
  const replay::DyingTexture dying = replay::PrepareTextureDestroy(surfObject, TextureSort::kSurface);
  const CUresult result = call.Real<decltype(&::cuSurfObjectDestroy)>()(surfObject);
  if (result == CUDA_SUCCESS) replay::NoteTextureDestroyed(dying, surfObject, TextureSort::kSurface);
  return result;
}

CUresult cuSurfObjectGetResourceDesc(const Call& call, CUDA_RESOURCE_DESC* pResDesc,
                                     CUsurfObject surfObject) {
  const CUresult result = call.Real<decltype(&::cuSurfObjectGetResourceDesc)>()(pResDesc, surfObject);
  return Describe(result, surfObject, TextureSort::kSurface, pResDesc, ResourceOf);
}

}  // namespace stasis::hooks

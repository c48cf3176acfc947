// Texture and surface objects: descriptors that kernels name by a 64-bit handle.
//
// A handle is the number of a place in a table of its context, as the hardware's descriptor index is: small,
// the lowest free one first, shared by both sorts of objects, the same number again in other contexts. How
// NVIDIA's driver numbers them is not documented; this is what it is taken for.
#ifndef SOFTGPU_DRIVER_TEXTURE_H_
#define SOFTGPU_DRIVER_TEXTURE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/array.h"
#include "softgpu/ptx/exec/grid.h"

namespace softgpu {

struct TextureObject {
  bool surface = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC texture{};
  std::optional<CUDA_RESOURCE_VIEW_DESC> resource_view;
  exec::TextureView view;
};

// Thread-safe; Find may be called by running kernels. A destroyed object's view stays readable until its
// context goes, because a kernel may be looking at it.
class TextureTable {
 public:
  TextureTable(MemoryManager& memory, ArrayTable& arrays) : memory_(memory), arrays_(arrays) {}

  CUresult CreateTexture(CUcontext context, const CUDA_RESOURCE_DESC& resource,
                         const CUDA_TEXTURE_DESC& texture, const CUDA_RESOURCE_VIEW_DESC* view,
                         CUtexObject* out);
  CUresult CreateSurface(CUcontext context, const CUDA_RESOURCE_DESC& resource, CUsurfObject* out);
  // INVALID_VALUE when the handle is no live object of that sort of the context.
  CUresult Destroy(CUcontext context, uint64_t handle, bool surface);
  // Null when the handle is no live object of that sort of the context.
  const exec::TextureView* Find(uint64_t handle, CUcontext context, bool surface) const;
  std::optional<TextureObject> Get(CUcontext context, uint64_t handle, bool surface) const;
  void RemoveContext(CUcontext context);

 private:
  // The places of one context. Place 0 stays empty: a handle is not 0.
  struct Places {
    std::vector<std::unique_ptr<TextureObject>> objects = std::vector<std::unique_ptr<TextureObject>>(1);
    std::set<uint64_t> free;
    std::vector<std::unique_ptr<TextureObject>> destroyed;
  };
  // `part`: what of the resource is seen; null for all.
  CUresult DescribeResource(const CUDA_RESOURCE_DESC& resource, const CUDA_RESOURCE_VIEW_DESC* part,
                            exec::TextureView* view, bool surface) const;
  uint64_t Insert(CUcontext context, std::unique_ptr<TextureObject> object);
  // Needs mutex_. Null when there is none of that sort.
  const TextureObject* FindLocked(CUcontext context, uint64_t handle, bool surface) const;

  MemoryManager& memory_;
  ArrayTable& arrays_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<CUcontext, Places> places_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_TEXTURE_H_

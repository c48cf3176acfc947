// Texture and surface objects: descriptors that kernels name by a 64-bit handle.
#ifndef SOFTGPU_DRIVER_TEXTURE_H_
#define SOFTGPU_DRIVER_TEXTURE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/array.h"
#include "softgpu/ptx/exec/grid.h"

namespace softgpu {

struct TextureObject {
  CUcontext context = nullptr;
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
  // INVALID_VALUE when the handle is no live object of that sort.
  CUresult Destroy(uint64_t handle, bool surface);
  // Null when the handle is no live object of that sort of the context.
  const exec::TextureView* Find(uint64_t handle, CUcontext context, bool surface) const;
  std::optional<TextureObject> Get(uint64_t handle, bool surface) const;
  void RemoveContext(CUcontext context);

 private:
  CUresult DescribeResource(const CUDA_RESOURCE_DESC& resource, exec::TextureView* view, bool surface) const;
  uint64_t Insert(std::unique_ptr<TextureObject> object);

  MemoryManager& memory_;
  ArrayTable& arrays_;
  mutable std::shared_mutex mutex_;
  uint64_t next_ = 1;
  std::unordered_map<uint64_t, std::unique_ptr<TextureObject>> objects_;
  std::vector<std::unique_ptr<TextureObject>> destroyed_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_TEXTURE_H_

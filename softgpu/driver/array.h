// CUDA arrays: texel storage that only copies, textures and surfaces reach.
//
// The layout is plain: rows of texels padded to kArrayPitch, slices (or layers) one after the other. A
// CUarray is the address of an Array, a CUmipmappedArray that of a MipmappedArray; the table knows which of
// them are alive.
#ifndef SOFTGPU_DRIVER_ARRAY_H_
#define SOFTGPU_DRIVER_ARRAY_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {

inline constexpr uint64_t kArrayPitch = 128;  // bytes; rows are multiples of it

// Bytes of one channel and the number of channels that the format itself fixes (0 = the descriptor says).
// False for formats that are not offered (planar video, block compression).
struct FormatInfo {
  uint8_t bytes = 0;
  bool is_signed = false, is_float = false;
};
bool DescribeFormat(CUarray_format format, FormatInfo* info);

struct Array {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  CUcontext context = nullptr;
  int device = 0;
  uint64_t data = 0;       // device address of the first texel
  uint64_t row_pitch = 0;  // bytes
  uint64_t slice_pitch = 0;
  uint32_t texel_bytes = 0;
  bool owns_memory = true;  // false for the levels of a mipmapped array

  bool layered() const { return (desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0; }
  // Sizes with 1 for dimensions that are not there.
  uint64_t rows() const { return desc.Height == 0 ? 1 : desc.Height; }
  uint64_t slices() const { return desc.Depth == 0 ? 1 : desc.Depth; }
  uint64_t row_bytes() const { return desc.Width * texel_bytes; }
};

struct MipmappedArray {
  CUDA_ARRAY3D_DESCRIPTOR desc{};
  CUcontext context = nullptr;
  uint64_t data = 0;
  std::vector<CUarray> levels;
};

// Thread-safe; its lock is held across calls to the MemoryManager's tables, never across anything that waits
// on work.
class ArrayTable {
 public:
  explicit ArrayTable(MemoryManager& memory) : memory_(memory) {}

  CUresult Create(CUcontext context, int device, const CUDA_ARRAY3D_DESCRIPTOR& desc, CUarray* out);
  // The context's work must be drained. INVALID_HANDLE also for a level of a mipmapped array.
  CUresult Destroy(CUarray array);
  CUresult CreateMipmapped(CUcontext context, int device, const CUDA_ARRAY3D_DESCRIPTOR& desc,
                           unsigned levels, CUmipmappedArray* out);
  CUresult GetLevel(CUmipmappedArray mipmap, unsigned level, CUarray* out);
  CUresult DestroyMipmapped(CUmipmappedArray mipmap);
  // A copy of what the handle stands for; null when it is none of ours.
  std::shared_ptr<const Array> Find(CUarray array) const;
  std::shared_ptr<const MipmappedArray> Find(CUmipmappedArray mipmap) const;
  // Forgets the context's arrays; their memory goes with the context.
  void RemoveContext(CUcontext context);

 private:
  MemoryManager& memory_;
  mutable std::mutex mutex_;
  std::unordered_map<CUarray, std::shared_ptr<Array>> arrays_;
  std::unordered_map<CUmipmappedArray, std::shared_ptr<MipmappedArray>> mipmaps_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_ARRAY_H_

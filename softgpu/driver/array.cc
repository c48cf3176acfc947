#include "softgpu/driver/array.h"

#include <algorithm>
#include <utility>

namespace softgpu {
namespace {

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                                 CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_COLOR_ATTACHMENT;
// The limits of compute capability 7.5 (CUDA C++ Programming Guide, technical specifications).
constexpr uint64_t kMax1dWidth = 131072, kMax1dLayers = 2048, kMax2dSide = 131072, kMax2dHeight = 65536,
                   kMaxLayeredSide = 32768, kMax3dSide = 16384;

bool CheckCubemap(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  if (desc.Width != desc.Height || desc.Width > kMaxLayeredSide) return false;
  bool layered = (desc.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  return layered ? desc.Depth != 0 && desc.Depth % 6 == 0 && desc.Depth <= 2046 : desc.Depth == 6;
}

bool CheckExtent(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  if (desc.Width == 0) return false;
  if ((desc.Flags & CUDA_ARRAY3D_CUBEMAP) != 0) return CheckCubemap(desc);
  if ((desc.Flags & CUDA_ARRAY3D_LAYERED) != 0) {
    bool sides = desc.Width <= kMaxLayeredSide && desc.Height <= kMaxLayeredSide;
    return desc.Depth != 0 && desc.Depth <= kMax1dLayers && sides;
  }
  if (desc.Depth != 0) {
    return desc.Height != 0 && std::max({desc.Width, desc.Height, desc.Depth}) <= kMax3dSide;
  }
  if (desc.Height != 0) return desc.Width <= kMax2dSide && desc.Height <= kMax2dHeight;
  return desc.Width <= kMax1dWidth;
}

bool CheckDescriptor(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  FormatInfo info;
  bool channels = desc.NumChannels == 1 || desc.NumChannels == 2 || desc.NumChannels == 4;
  if (!DescribeFormat(desc.Format, &info) || !channels || (desc.Flags & ~kKnownFlags) != 0) return false;
  bool gather = (desc.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0;
  if (gather && (desc.Height == 0 || desc.Depth != 0)) return false;
  return CheckExtent(desc);
}

std::shared_ptr<Array> LayOut(CUcontext context, int device, const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  FormatInfo info;
  STASIS_CHECK(DescribeFormat(desc.Format, &info));
  auto array = std::make_shared<Array>();
  array->desc = desc;
  array->context = context;
  array->device = device;
  array->texel_bytes = info.bytes * desc.NumChannels;
  array->row_pitch = RoundUp(array->row_bytes(), kArrayPitch);
  array->slice_pitch = array->row_pitch * array->rows();
  return array;
}

uint64_t Bytes(const Array& array) { return array.slice_pitch * array.slices(); }

CUarray HandleOf(const std::shared_ptr<Array>& array) { return reinterpret_cast<CUarray>(array.get()); }

// One level down: halved, not below one, layers kept.
CUDA_ARRAY3D_DESCRIPTOR NextLevel(CUDA_ARRAY3D_DESCRIPTOR desc) {
  auto halve = [](size_t& side) { side = side == 0 ? 0 : std::max<size_t>(1, side / 2); };
  halve(desc.Width);
  halve(desc.Height);
  if ((desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) halve(desc.Depth);
  return desc;
}

unsigned MaxLevels(const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  bool layered = (desc.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  uint64_t side = std::max<uint64_t>({desc.Width, desc.Height, layered ? 0 : desc.Depth});
  unsigned levels = 0;
  for (; side != 0; side /= 2) ++levels;
  return levels;
}

}  // namespace

bool DescribeFormat(CUarray_format format, FormatInfo* info) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
      *info = {1, false, false};
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT16:
      *info = {2, false, false};
      return true;
    case CU_AD_FORMAT_UNSIGNED_INT32:
      *info = {4, false, false};
      return true;
    case CU_AD_FORMAT_SIGNED_INT8:
      *info = {1, true, false};
      return true;
    case CU_AD_FORMAT_SIGNED_INT16:
      *info = {2, true, false};
      return true;
    case CU_AD_FORMAT_SIGNED_INT32:
      *info = {4, true, false};
      return true;
    case CU_AD_FORMAT_HALF:
      *info = {2, true, true};
      return true;
    case CU_AD_FORMAT_FLOAT:
      *info = {4, true, true};
      return true;
    default:
      return false;
  }
}

CUresult ArrayTable::Create(CUcontext context, int device, const CUDA_ARRAY3D_DESCRIPTOR& desc,
                            CUarray* out) {
  if (!CheckDescriptor(desc)) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Array> array = LayOut(context, device, desc);
  CUdeviceptr data = 0;
  CUresult allocated = memory_.AllocateDevice(context, Bytes(*array), BlockKind::kArray, &data);
  if (allocated != CUDA_SUCCESS) return allocated;
  array->data = data;
  std::lock_guard lock(mutex_);
  *out = HandleOf(array);
  arrays_.emplace(*out, std::move(array));
  return CUDA_SUCCESS;
}

CUresult ArrayTable::Destroy(CUarray array) {
  std::shared_ptr<Array> found;
  {
    std::lock_guard lock(mutex_);
    auto it = arrays_.find(array);
    if (it == arrays_.end()) return CUDA_ERROR_INVALID_HANDLE;
    if (!it->second->owns_memory) return CUDA_ERROR_INVALID_HANDLE;
    found = std::move(it->second);
    arrays_.erase(it);
  }
  return memory_.Free(found->data, BlockKind::kArray);
}

CUresult ArrayTable::CreateMipmapped(CUcontext context, int device, const CUDA_ARRAY3D_DESCRIPTOR& desc,
                                     unsigned levels, CUmipmappedArray* out) {
  if (!CheckDescriptor(desc) || levels == 0) return CUDA_ERROR_INVALID_VALUE;
  levels = std::min(levels, MaxLevels(desc));
  std::vector<std::shared_ptr<Array>> arrays;
  uint64_t bytes = 0;
  CUDA_ARRAY3D_DESCRIPTOR level_desc = desc;
  for (unsigned level = 0; level < levels; ++level, level_desc = NextLevel(level_desc)) {
    arrays.push_back(LayOut(context, device, level_desc));
    arrays.back()->owns_memory = false;
    arrays.back()->data = bytes;
    bytes += RoundUp(Bytes(*arrays.back()), 512);
  }
  CUdeviceptr data = 0;
  CUresult allocated = memory_.AllocateDevice(context, bytes, BlockKind::kArray, &data);
  if (allocated != CUDA_SUCCESS) return allocated;
  auto mipmap = std::make_shared<MipmappedArray>();
  mipmap->desc = desc;
  mipmap->context = context;
  mipmap->data = data;
  std::lock_guard lock(mutex_);
  for (std::shared_ptr<Array>& array : arrays) {
    array->data += data;
    mipmap->levels.push_back(HandleOf(array));
    arrays_.emplace(HandleOf(array), array);
  }
  *out = reinterpret_cast<CUmipmappedArray>(mipmap.get());
  mipmaps_.emplace(*out, std::move(mipmap));
  return CUDA_SUCCESS;
}

CUresult ArrayTable::GetLevel(CUmipmappedArray mipmap, unsigned level, CUarray* out) {
  std::shared_ptr<const MipmappedArray> found = Find(mipmap);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (level >= found->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = found->levels[level];
  return CUDA_SUCCESS;
}

CUresult ArrayTable::DestroyMipmapped(CUmipmappedArray mipmap) {
  std::shared_ptr<MipmappedArray> found;
  {
    std::lock_guard lock(mutex_);
    auto it = mipmaps_.find(mipmap);
    if (it == mipmaps_.end()) return CUDA_ERROR_INVALID_HANDLE;
    found = std::move(it->second);
    mipmaps_.erase(it);
    for (CUarray level : found->levels) arrays_.erase(level);
  }
  return memory_.Free(found->data, BlockKind::kArray);
}

std::shared_ptr<const Array> ArrayTable::Find(CUarray array) const {
  std::lock_guard lock(mutex_);
  auto found = arrays_.find(array);
  return found == arrays_.end() ? nullptr : found->second;
}

std::shared_ptr<const MipmappedArray> ArrayTable::Find(CUmipmappedArray mipmap) const {
  std::lock_guard lock(mutex_);
  auto found = mipmaps_.find(mipmap);
  return found == mipmaps_.end() ? nullptr : found->second;
}

void ArrayTable::RemoveContext(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::erase_if(arrays_, [context](const auto& entry) { return entry.second->context == context; });
  std::erase_if(mipmaps_, [context](const auto& entry) { return entry.second->context == context; });
}

}  // namespace softgpu

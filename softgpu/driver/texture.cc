#include "softgpu/driver/texture.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace softgpu {
namespace {

using Format = exec::TextureView::Format;
using AddressMode = exec::TextureView::Address;

// Linear textures are addressed by texel: at most 2^27 of them
// (CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH), and begin at a multiple of
// CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT.
constexpr uint64_t kMaxLinearTexels = 1ull << 27, kTextureAlignment = 512, kPitchAlignment = 32;
constexpr unsigned kKnownFlags = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                                 CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION | CU_TRSF_SEAMLESS_CUBEMAP;

bool SetFormat(CUarray_format format, unsigned channels, exec::TextureView* view) {
  FormatInfo info;
  if (!DescribeFormat(format, &info) || (channels != 1 && channels != 2 && channels != 4)) return false;
  view->channels = static_cast<uint8_t>(channels);
  view->channel_bytes = info.bytes;
  view->format = info.is_float ? Format::kFloat : info.is_signed ? Format::kSint : Format::kUint;
  return true;
}

CUresult DescribeArray(const Array& array, exec::TextureView* view) {
  if (!SetFormat(array.desc.Format, array.desc.NumChannels, view)) return CUDA_ERROR_INVALID_VALUE;
  view->data = array.data;
  view->width = static_cast<uint32_t>(array.desc.Width);
  view->height = static_cast<uint32_t>(array.desc.Height);
  (array.layered() ? view->layers : view->depth) = static_cast<uint32_t>(array.desc.Depth);
  view->row_pitch = array.row_pitch;
  view->slice_pitch = array.slice_pitch;
  return CUDA_SUCCESS;
}

CUresult DescribeLinear(const CUDA_RESOURCE_DESC& resource, exec::TextureView* view) {
  const auto& linear = resource.res.linear;
  if (!SetFormat(linear.format, linear.numChannels, view)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t texels = linear.sizeInBytes / (view->channels * view->channel_bytes);
  if (linear.devPtr % kTextureAlignment != 0 || texels > kMaxLinearTexels) return CUDA_ERROR_INVALID_VALUE;
  view->data = linear.devPtr;
  view->width = static_cast<uint32_t>(texels);
  view->row_pitch = linear.sizeInBytes;
  view->linear_memory = true;
  return CUDA_SUCCESS;
}

CUresult DescribePitched(const CUDA_RESOURCE_DESC& resource, exec::TextureView* view) {
  const auto& pitched = resource.res.pitch2D;
  if (!SetFormat(pitched.format, pitched.numChannels, view)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t row = pitched.width * view->channels * view->channel_bytes;
  bool sizes =
      pitched.width != 0 && pitched.height != 0 && pitched.width <= 131072 && pitched.height <= 65000;
  bool pitch = pitched.pitchInBytes >= row && pitched.pitchInBytes % kPitchAlignment == 0;
  if (pitched.devPtr % kTextureAlignment != 0 || !sizes || !pitch) return CUDA_ERROR_INVALID_VALUE;
  view->data = pitched.devPtr;
  view->width = static_cast<uint32_t>(pitched.width);
  view->height = static_cast<uint32_t>(pitched.height);
  view->row_pitch = pitched.pitchInBytes;
  view->slice_pitch = pitched.pitchInBytes * pitched.height;
  return CUDA_SUCCESS;
}

CUresult ApplyTextureDesc(const CUDA_TEXTURE_DESC& desc, exec::TextureView* view) {
  if ((desc.flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < 3; ++i) {
    if (desc.addressMode[i] < CU_TR_ADDRESS_MODE_WRAP || desc.addressMode[i] > CU_TR_ADDRESS_MODE_BORDER) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    view->address[i] = static_cast<AddressMode>(desc.addressMode[i]);
  }
  view->linear_filter = desc.filterMode == CU_TR_FILTER_MODE_LINEAR;
  view->normalized_coords = (desc.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  view->srgb = (desc.flags & CU_TRSF_SRGB) != 0;
  // 8 and 16 bit integers become [0,1] or [-1,1] unless asked otherwise; other formats are read as they are.
  bool small_integer = view->format != Format::kFloat && view->channel_bytes < 4;
  view->read_as_float = small_integer && (desc.flags & CU_TRSF_READ_AS_INTEGER) == 0;
  bool floats = view->format == Format::kFloat || view->read_as_float;
  if (view->linear_filter && !floats) return CUDA_ERROR_INVALID_VALUE;
  std::copy(desc.borderColor, desc.borderColor + 4, view->border);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult TextureTable::DescribeResource(const CUDA_RESOURCE_DESC& resource, exec::TextureView* view,
                                        bool surface) const {
  if (resource.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      std::shared_ptr<const Array> array = arrays_.Find(resource.res.array.hArray);
      if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (surface && (array->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
      return DescribeArray(*array, view);
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      // Only the finest level is sampled: the executor knows no level of detail.
      std::shared_ptr<const MipmappedArray> mipmap = arrays_.Find(resource.res.mipmap.hMipmappedArray);
      std::shared_ptr<const Array> array = mipmap == nullptr ? nullptr : arrays_.Find(mipmap->levels[0]);
      if (array == nullptr || surface) return CUDA_ERROR_INVALID_VALUE;
      return DescribeArray(*array, view);
    }
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      if (surface || !memory_.Covers(linear.devPtr, linear.sizeInBytes)) return CUDA_ERROR_INVALID_VALUE;
      return DescribeLinear(resource, view);
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      if (surface || !memory_.Covers(pitched.devPtr, 1)) return CUDA_ERROR_INVALID_VALUE;
      CUresult described = DescribePitched(resource, view);
      if (described != CUDA_SUCCESS) return described;
      uint64_t row = pitched.width * view->channels * view->channel_bytes;
      uint64_t bytes = pitched.pitchInBytes * (pitched.height - 1) + row;
      return memory_.Covers(pitched.devPtr, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult TextureTable::CreateTexture(CUcontext context, const CUDA_RESOURCE_DESC& resource,
                                     const CUDA_TEXTURE_DESC& texture, const CUDA_RESOURCE_VIEW_DESC* view,
                                     CUtexObject* out) {
  auto object = std::make_unique<TextureObject>();
  object->context = context;
  object->resource = resource;
  object->texture = texture;
  if (view != nullptr) object->resource_view = *view;
  CUresult described = DescribeResource(resource, &object->view, false);
  if (described == CUDA_SUCCESS) described = ApplyTextureDesc(texture, &object->view);
  if (described != CUDA_SUCCESS) return described;
  // A view may only say again what the array is: reinterpreting formats is not offered.
  if (view != nullptr && view->format != CU_RES_VIEW_FORMAT_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  *out = Insert(std::move(object));
  return CUDA_SUCCESS;
}

CUresult TextureTable::CreateSurface(CUcontext context, const CUDA_RESOURCE_DESC& resource,
                                     CUsurfObject* out) {
  auto object = std::make_unique<TextureObject>();
  object->context = context;
  object->surface = true;
  object->resource = resource;
  CUresult described = DescribeResource(resource, &object->view, true);
  if (described != CUDA_SUCCESS) return described;
  *out = Insert(std::move(object));
  return CUDA_SUCCESS;
}

uint64_t TextureTable::Insert(std::unique_ptr<TextureObject> object) {
  std::unique_lock lock(mutex_);
  uint64_t handle = next_++;
  objects_.emplace(handle, std::move(object));
  return handle;
}

CUresult TextureTable::Destroy(uint64_t handle, bool surface) {
  std::unique_lock lock(mutex_);
  auto found = objects_.find(handle);
  if (found == objects_.end() || found->second->surface != surface) return CUDA_ERROR_INVALID_VALUE;
  destroyed_.push_back(std::move(found->second));
  objects_.erase(found);
  return CUDA_SUCCESS;
}

const exec::TextureView* TextureTable::Find(uint64_t handle, CUcontext context, bool surface) const {
  std::shared_lock lock(mutex_);
  auto found = objects_.find(handle);
  if (found == objects_.end()) return nullptr;
  const TextureObject& object = *found->second;
  return object.surface == surface && object.context == context ? &object.view : nullptr;
}

std::optional<TextureObject> TextureTable::Get(uint64_t handle, bool surface) const {
  std::shared_lock lock(mutex_);
  auto found = objects_.find(handle);
  if (found == objects_.end() || found->second->surface != surface) return std::nullopt;
  return *found->second;
}

void TextureTable::RemoveContext(CUcontext context) {
  std::unique_lock lock(mutex_);
  std::erase_if(objects_, [context](const auto& entry) { return entry.second->context == context; });
  std::erase_if(destroyed_, [context](const auto& object) { return object->context == context; });
}

}  // namespace softgpu

#include "softgpu/driver/texture.h"

#include <algorithm>
#include <iterator>
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

// The formats of views stand in the order of their numbers: sorts by size, each with 1, 2 and 4 channels.
bool SetViewFormat(CUresourceViewFormat format, exec::TextureView* view) {
  constexpr CUarray_format kSorts[] = {CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
                                       CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
                                       CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
                                       CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
  if (format == CU_RES_VIEW_FORMAT_NONE) return true;
  const unsigned index = static_cast<unsigned>(format) - CU_RES_VIEW_FORMAT_UINT_1X8;
  if (index >= 3 * std::size(kSorts)) return false;  // block compression
  const unsigned bytes = view->channels * view->channel_bytes;
  SetFormat(kSorts[index / 3], 1u << index % 3, view);
  return bytes == view->channels * view->channel_bytes;
}

// What a view shows of an array: all of its texels, read as another format of the same size, or some layers.
// `base`: the array itself, or the finest level of what it is a level of.
CUresult DescribeArrayPart(const Array& base, const Array& array, const CUDA_RESOURCE_VIEW_DESC* part,
                           exec::TextureView* view) {
  CUresult described = DescribeArray(array, view);
  if (described != CUDA_SUCCESS || part == nullptr) return described;
  if (!SetViewFormat(part->format, view)) return CUDA_ERROR_INVALID_VALUE;
  const bool whole = part->width == base.desc.Width && part->height == base.desc.Height;
  if (!array.layered()) return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (!whole || part->firstLayer > part->lastLayer || part->lastLayer >= array.desc.Depth)
    return CUDA_ERROR_INVALID_VALUE;
  view->data += part->firstLayer * array.slice_pitch;
  view->layers = part->lastLayer - part->firstLayer + 1;
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

CUresult TextureTable::DescribeResource(const CUDA_RESOURCE_DESC& resource,
                                        const CUDA_RESOURCE_VIEW_DESC* part, exec::TextureView* view,
                                        bool surface) const {
  const bool of_array =
      resource.resType == CU_RESOURCE_TYPE_ARRAY || resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  if (resource.flags != 0 || (part != nullptr && !of_array)) return CUDA_ERROR_INVALID_VALUE;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY: {
      std::shared_ptr<const Array> array = arrays_.Find(resource.res.array.hArray);
      if (array == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (surface && (array->desc.Flags & CUDA_ARRAY3D_SURFACE_LDST) == 0) return CUDA_ERROR_INVALID_VALUE;
      return DescribeArrayPart(*array, *array, part, view);
    }
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: {
      // Only the finest level of the view is sampled: the executor knows no level of detail.
      std::shared_ptr<const MipmappedArray> mipmap = arrays_.Find(resource.res.mipmap.hMipmappedArray);
      if (mipmap == nullptr || surface) return CUDA_ERROR_INVALID_VALUE;
      const size_t first = part == nullptr ? 0 : part->firstMipmapLevel;
      const size_t last = part == nullptr ? 0 : part->lastMipmapLevel;
      if (first > last || last >= mipmap->levels.size()) return CUDA_ERROR_INVALID_VALUE;
      std::shared_ptr<const Array> base = arrays_.Find(mipmap->levels[0]);
      std::shared_ptr<const Array> array = arrays_.Find(mipmap->levels[first]);
      if (base == nullptr || array == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return DescribeArrayPart(*base, *array, part, view);
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
  object->resource = resource;
  object->texture = texture;
  if (view != nullptr) object->resource_view = *view;
  CUresult described = DescribeResource(resource, view, &object->view, false);
  if (described == CUDA_SUCCESS) described = ApplyTextureDesc(texture, &object->view);
  if (described != CUDA_SUCCESS) return described;
  *out = Insert(context, std::move(object));
  return CUDA_SUCCESS;
}

CUresult TextureTable::CreateSurface(CUcontext context, const CUDA_RESOURCE_DESC& resource,
                                     CUsurfObject* out) {
  auto object = std::make_unique<TextureObject>();
  object->surface = true;
  object->resource = resource;
  CUresult described = DescribeResource(resource, nullptr, &object->view, true);
  if (described != CUDA_SUCCESS) return described;
  *out = Insert(context, std::move(object));
  return CUDA_SUCCESS;
}

uint64_t TextureTable::Insert(CUcontext context, std::unique_ptr<TextureObject> object) {
  std::unique_lock lock(mutex_);
  Places& places = places_[context];
  if (places.free.empty()) {
    places.objects.push_back(std::move(object));
    return places.objects.size() - 1;
  }
  const uint64_t handle = *places.free.begin();
  places.free.erase(places.free.begin());
  places.objects[handle] = std::move(object);
  return handle;
}

CUresult TextureTable::Destroy(CUcontext context, uint64_t handle, bool surface) {
  std::unique_lock lock(mutex_);
  if (FindLocked(context, handle, surface) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Places& places = places_[context];
  places.destroyed.push_back(std::move(places.objects[handle]));
  places.free.insert(handle);
  return CUDA_SUCCESS;
}

const TextureObject* TextureTable::FindLocked(CUcontext context, uint64_t handle, bool surface) const {
  auto found = places_.find(context);
  if (found == places_.end() || handle >= found->second.objects.size()) return nullptr;
  const TextureObject* object = found->second.objects[handle].get();
  return object != nullptr && object->surface == surface ? object : nullptr;
}

const exec::TextureView* TextureTable::Find(uint64_t handle, CUcontext context, bool surface) const {
  std::shared_lock lock(mutex_);
  const TextureObject* object = FindLocked(context, handle, surface);
  return object == nullptr ? nullptr : &object->view;
}

std::optional<TextureObject> TextureTable::Get(CUcontext context, uint64_t handle, bool surface) const {
  std::shared_lock lock(mutex_);
  const TextureObject* object = FindLocked(context, handle, surface);
  return object == nullptr ? std::nullopt : std::optional(*object);
}

void TextureTable::RemoveContext(CUcontext context) {
  std::unique_lock lock(mutex_);
  places_.erase(context);
}

}  // namespace softgpu

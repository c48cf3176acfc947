#include "softgpu/runtime/array_format.h"

#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {
namespace {

struct PlainFormat {
  cudaChannelFormatKind kind;
  int bits;
  CUarray_format format;
};
constexpr PlainFormat kPlain[] = {
    {cudaChannelFormatKindUnsigned, 8, CU_AD_FORMAT_UNSIGNED_INT8},
    {cudaChannelFormatKindUnsigned, 16, CU_AD_FORMAT_UNSIGNED_INT16},
    {cudaChannelFormatKindUnsigned, 32, CU_AD_FORMAT_UNSIGNED_INT32},
    {cudaChannelFormatKindSigned, 8, CU_AD_FORMAT_SIGNED_INT8},
    {cudaChannelFormatKindSigned, 16, CU_AD_FORMAT_SIGNED_INT16},
    {cudaChannelFormatKindSigned, 32, CU_AD_FORMAT_SIGNED_INT32},
    {cudaChannelFormatKindFloat, 16, CU_AD_FORMAT_HALF},
    {cudaChannelFormatKindFloat, 32, CU_AD_FORMAT_FLOAT},
};

// Formats whose kind alone fixes the number of channels and their width.
struct NormalizedFormat {
  cudaChannelFormatKind kind;
  int bits;
  unsigned channels;
  CUarray_format format;
};
constexpr NormalizedFormat kNormalized[] = {
    {cudaChannelFormatKindUnsignedNormalized8X1, 8, 1, CU_AD_FORMAT_UNORM_INT8X1},
    {cudaChannelFormatKindUnsignedNormalized8X2, 8, 2, CU_AD_FORMAT_UNORM_INT8X2},
    {cudaChannelFormatKindUnsignedNormalized8X4, 8, 4, CU_AD_FORMAT_UNORM_INT8X4},
    {cudaChannelFormatKindUnsignedNormalized16X1, 16, 1, CU_AD_FORMAT_UNORM_INT16X1},
    {cudaChannelFormatKindUnsignedNormalized16X2, 16, 2, CU_AD_FORMAT_UNORM_INT16X2},
    {cudaChannelFormatKindUnsignedNormalized16X4, 16, 4, CU_AD_FORMAT_UNORM_INT16X4},
    {cudaChannelFormatKindSignedNormalized8X1, 8, 1, CU_AD_FORMAT_SNORM_INT8X1},
    {cudaChannelFormatKindSignedNormalized8X2, 8, 2, CU_AD_FORMAT_SNORM_INT8X2},
    {cudaChannelFormatKindSignedNormalized8X4, 8, 4, CU_AD_FORMAT_SNORM_INT8X4},
    {cudaChannelFormatKindSignedNormalized16X1, 16, 1, CU_AD_FORMAT_SNORM_INT16X1},
    {cudaChannelFormatKindSignedNormalized16X2, 16, 2, CU_AD_FORMAT_SNORM_INT16X2},
    {cudaChannelFormatKindSignedNormalized16X4, 16, 4, CU_AD_FORMAT_SNORM_INT16X4},
};

// Channels in use; 0 unless they come first, have the same width, and number 1, 2 or 4.
unsigned ChannelCount(const cudaChannelFormatDesc& desc) {
  const int widths[] = {desc.x, desc.y, desc.z, desc.w};
  unsigned count = 0;
  while (count < 4 && widths[count] != 0) ++count;
  for (unsigned i = 0; i < 4; ++i) {
    if (widths[i] != (i < count ? desc.x : 0)) return 0;
  }
  return count == 3 ? 0 : count;
}

cudaChannelFormatDesc Describe(cudaChannelFormatKind kind, int bits, unsigned channels) {
  return {bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 3 ? bits : 0, kind};
}

}  // namespace

cudaError_t ToDriver(const cudaChannelFormatDesc& desc, CUarray_format* format, unsigned* channels) {
  *channels = ChannelCount(desc);
  if (*channels == 0) return cudaErrorInvalidChannelDescriptor;
  for (const PlainFormat& plain : kPlain) {
    if (plain.kind != desc.f || plain.bits != desc.x) continue;
    *format = plain.format;
    return cudaSuccess;
  }
  for (const NormalizedFormat& normalized : kNormalized) {
    if (normalized.kind != desc.f || normalized.bits != desc.x || normalized.channels != *channels) continue;
    *format = normalized.format;
    return cudaSuccess;
  }
  return cudaErrorInvalidChannelDescriptor;
}

cudaChannelFormatDesc FromDriver(CUarray_format format, unsigned channels) {
  for (const PlainFormat& plain : kPlain) {
    if (plain.format == format) return Describe(plain.kind, plain.bits, channels);
  }
  for (const NormalizedFormat& normalized : kNormalized) {
    if (normalized.format == format) return Describe(normalized.kind, normalized.bits, normalized.channels);
  }
  return Describe(cudaChannelFormatKindNone, 0, 1);
}

size_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  const cudaChannelFormatDesc desc = FromDriver(descriptor.Format, descriptor.NumChannels);
  return static_cast<size_t>(desc.x + desc.y + desc.z + desc.w) / 8;
}

}  // namespace softgpu::runtime

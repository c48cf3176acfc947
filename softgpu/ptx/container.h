// The container that linking hands out in place of a cubin: the PTX of every unit, little endian.
#ifndef SOFTGPU_PTX_CONTAINER_H_
#define SOFTGPU_PTX_CONTAINER_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace softgpu::ptx {

// The first byte is in no text and in no other image's magic number.
inline constexpr char kLinkedMagic[8] = {'\x7f', 'S', 'G', 'L', 'I', 'N', 'K', '\0'};

// kCorrupt for bytes that PackLinked did not write.
stasis::Result<std::vector<std::string>> UnpackLinked(std::span<const std::byte> data);

// The whole container at `data`, whose magic number the caller has seen.
stasis::Result<std::span<const std::byte>> SpanOfLinked(const std::byte* data);

}  // namespace softgpu::ptx

#endif  // SOFTGPU_PTX_CONTAINER_H_

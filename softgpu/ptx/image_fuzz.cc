// Any bytes as a code image.
#include <cstddef>
#include <cstdint>

#include "softgpu/ptx/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> image = std::as_bytes(std::span(data, size));
  const auto texts = softgpu::ptx::ReadImage(image, 9, 0);
  const auto entries = softgpu::ptx::ReadFatbin(image);
  if (!entries.ok()) return 0;
  for (const softgpu::ptx::FatbinEntry& entry : *entries) {
    STASIS_CHECK(entry.payload.empty() ||
                 (entry.payload.data() >= image.data() &&
                  entry.payload.data() + entry.payload.size() <= image.data() + size));
    (void)softgpu::ptx::PtxText(entry).ok();
  }
  return 0;
}

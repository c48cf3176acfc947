// The manifest of an image, as it comes from a disk or from elsewhere.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dedup/image_manifest.h"

namespace {

using Bytes = std::vector<std::byte>;

void Try(const Bytes& bytes) {
  stasis::Result<stasis::ImageManifest> manifest = stasis::ParseImageManifest(bytes, "fuzz");
  if (!manifest.ok()) return;
  (void)stasis::DistinctChunks(*manifest);
  // What was accepted can be written and is accepted again.
  stasis::Result<Bytes> again = stasis::SerializeImageManifest(*manifest);
  if (!again.ok() || !stasis::ParseImageManifest(*again, "again").ok()) __builtin_trap();
}

// Nothing that is random has a good sum, and who means harm makes one.
void Seal(Bytes* bytes) {
  uint64_t size = bytes->size();
  std::memcpy(bytes->data() + 16, &size, sizeof size);
  stasis::Hash128 sum = stasis::HashBytes(std::span(*bytes).first(size - sizeof sum));
  std::memcpy(bytes->data() + size - sizeof sum, &sum, sizeof sum);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  Bytes bytes(input.begin(), input.end());
  Try(bytes);
  if (size < 40) return 0;
  Seal(&bytes);
  Try(bytes);
  return 0;
}

// An image's manifest with its meta, as it comes from disk.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ghost/image.h"
#include "ghost/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stasis::Result<stasis::Json> json =
      stasis::ParseImageManifest(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  stasis::Result<stasis::Manifest> manifest = stasis::ParseManifest((*json)["meta"]);
  if (!manifest.ok()) return 0;
  // What was accepted can be written and is accepted again.
  if (!stasis::ParseManifest(stasis::ManifestJson(*manifest)).ok()) __builtin_trap();
  return 0;
}

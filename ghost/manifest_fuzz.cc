// What an image says about the task in it, as it comes from disk.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ghost/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stasis::Result<stasis::Json> json =
      stasis::ParseJsonObject(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  stasis::Result<stasis::Manifest> manifest = stasis::ParseManifest(*json);
  if (!manifest.ok()) return 0;
  // What was accepted can be written and is accepted again.
  if (!stasis::ParseManifest(stasis::ManifestJson(*manifest)).ok()) __builtin_trap();
  return 0;
}

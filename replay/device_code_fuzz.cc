// Images of device code come from strangers: whatever they hold, reading them ends in facts or an error.
#include <cstddef>
#include <cstdint>

#include "replay/device_code.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)stasis::replay::ReadDeviceCode({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}

// What a pause must know of an image of device code: which variables it has, and whether it keeps state in
// places that nobody can save.
#ifndef REPLAY_DEVICE_CODE_H_
#define REPLAY_DEVICE_CODE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

struct DeviceCodeFacts {
  // Names of all variables of module scope, each once. May name some that the loaded code does not have.
  std::vector<std::string> variables;
  // A function of the device runtime whose effects live in memory of the driver ("malloc"); empty: none.
  std::string hidden_state;
};

// Facts of an image in any form that we know: fat binary, cubin, PTX text. kUnsupported for another form or
// one that hides its names (LTO), kCorrupt for damage.
Result<DeviceCodeFacts> ReadDeviceCode(std::span<const std::byte> image);
// The size of the image at `data` as its own header or terminating NUL says; 0 for a form that we do not
// know.
size_t DeviceCodeSize(const void* data);
// The image behind `data`: what a fat binary's wrapper points to, else `data` itself.
const void* UnwrapDeviceCode(const void* data);
// Adds what `more` has.
void MergeFacts(const DeviceCodeFacts& more, DeviceCodeFacts* facts);

// The forms by themselves.
Result<DeviceCodeFacts> ReadPtx(std::string_view text);
Result<DeviceCodeFacts> ReadCubin(std::span<const std::byte> elf);
bool IsHiddenStateFunction(std::string_view name);

}  // namespace stasis::replay

#endif  // REPLAY_DEVICE_CODE_H_

#include "ghost/criu_wire.h"

#include <cstring>

namespace stasis {
namespace {

uint32_t Word(std::span<const std::byte> bytes) {
  uint32_t word;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

}  // namespace

Status ForCriuEntries(std::span<const std::byte> image, uint32_t magic,
                      const std::function<bool(std::span<const std::byte>)>& entry) {
  if (image.size() < 8 || Word(image) != kCriuCommonMagic || Word(image.subspan(4)) != magic)
    return Status(StatusCode::kCorrupt, "this is no such image of CRIU");
  image = image.subspan(8);
  while (!image.empty()) {
    if (image.size() < 4 || Word(image) > image.size() - 4)
      return Status(StatusCode::kCorrupt, "the image is cut");
    uint32_t size = Word(image);
    if (!entry(image.subspan(4, size)))
      return Status(StatusCode::kCorrupt, "the image holds an unreadable entry");
    image = image.subspan(4 + size);
  }
  return Status();
}

}  // namespace stasis

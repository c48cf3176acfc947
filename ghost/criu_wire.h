// Reading CRIU's images: two magic words, then entries of a 32-bit length and one protobuf message. Only a
// handful of integer and string fields are wanted, so the wire format is read here rather than through a
// library.
#ifndef GHOST_CRIU_WIRE_H_
#define GHOST_CRIU_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/status.h"

namespace stasis {

class Wire {
 public:
  explicit Wire(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty() || !ok_; }
  bool ok() const { return ok_; }

  uint64_t Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_ = rest_.subspan(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    ok_ = false;
    return 0;
  }
  std::span<const std::byte> Bytes(uint64_t size) {
    if (size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::span<const std::byte> bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return bytes;
  }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

// One field of a message: an integer, or bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  std::span<const std::byte> bytes;
};

inline Field NextField(Wire& wire, bool* ok) {
  Field field;
  uint64_t tag = wire.Varint();
  field.number = tag >> 3;
  switch (tag & 7) {
    case 0:
      field.value = wire.Varint();
      break;
    case 1:
      wire.Bytes(8);
      break;
    case 2:
      field.bytes = wire.Bytes(wire.Varint());
      break;
    case 5:
      wire.Bytes(4);
      break;
    default:
      *ok = false;
  }
  *ok = *ok && wire.ok();
  return field;
}

inline constexpr uint32_t kCriuCommonMagic = 0x54564319;
inline constexpr uint32_t kCriuFilesMagic = 0x56303138;

// Calls entry(message) for each entry of an image with this second magic word; false says that the message
// cannot be read. kCorrupt for anything malformed.
Status ForCriuEntries(std::span<const std::byte> image, uint32_t magic,
                      const std::function<bool(std::span<const std::byte>)>& entry);

}  // namespace stasis

#endif  // GHOST_CRIU_WIRE_H_

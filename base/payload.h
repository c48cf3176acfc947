// Writing and reading the payload of a message: fixed-width integers, strings and byte blobs, one after
// another. Values are in host byte order: unix sockets do not leave the machine. Not thread-safe, like any
// value.
#ifndef BASE_PAYLOAD_H_
#define BASE_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"

namespace stasis {

class PayloadWriter {
 public:
  void U8(uint8_t value) { Raw(&value, sizeof value); }
  void U16(uint16_t value) { Raw(&value, sizeof value); }
  void U32(uint32_t value) { Raw(&value, sizeof value); }
  void U64(uint64_t value) { Raw(&value, sizeof value); }
  void I32(int32_t value) { Raw(&value, sizeof value); }
  void I64(int64_t value) { Raw(&value, sizeof value); }
  void F64(double value) { Raw(&value, sizeof value); }
  // A u32 length, then the bytes.
  void String(std::string_view text);
  void Bytes(std::span<const std::byte> bytes);

  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  void Raw(const void* data, size_t size);
  std::vector<std::byte> bytes_;
};

// Reads what PayloadWriter wrote. Never reads outside the payload: the first value that does not fit makes
// the reader fail for good, and every later value reads as zero or empty; so a parser reads all its fields
// and asks once.
class PayloadReader {
 public:
  // `payload` must outlive the reader.
  explicit PayloadReader(std::span<const std::byte> payload) : rest_(payload) {}

  uint8_t U8() { return Integer<uint8_t>(); }
  uint16_t U16() { return Integer<uint16_t>(); }
  uint32_t U32() { return Integer<uint32_t>(); }
  uint64_t U64() { return Integer<uint64_t>(); }
  int32_t I32() { return Integer<int32_t>(); }
  int64_t I64() { return Integer<int64_t>(); }
  // Any bit pattern, infinities and NaN included: check the range where it matters.
  double F64() { return Integer<double>(); }
  // A longer string than `max_length` makes the reader fail.
  std::string String(size_t max_length);
  std::vector<std::byte> Bytes(size_t max_length);
  // The number of elements of a list whose elements take at least `element_size` bytes each (more than zero):
  // a count that cannot fit into the rest of the payload makes the reader fail, so nobody reserves memory for
  // it.
  uint32_t Count(size_t element_size);

  bool ok() const { return ok_; }
  size_t remaining() const { return rest_.size(); }
  // kCorrupt if a value did not fit, or if bytes are left over.
  Status Finish() const;

 private:
  template <typename T>
  T Integer() {
    T value{};
    std::span<const std::byte> bytes = Raw(sizeof value);
    if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::span<const std::byte> Raw(size_t size);

  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace stasis

#endif  // BASE_PAYLOAD_H_

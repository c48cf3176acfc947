#include "base/payload.h"

namespace stasis {

void PayloadWriter::Raw(const void* data, size_t size) {
  const std::byte* from = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), from, from + size);
}

void PayloadWriter::String(std::string_view text) {
  Bytes(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void PayloadWriter::Bytes(std::span<const std::byte> bytes) {
  STASIS_CHECK(bytes.size() <= UINT32_MAX);
  U32(static_cast<uint32_t>(bytes.size()));
  Raw(bytes.data(), bytes.size());
}

std::span<const std::byte> PayloadReader::Raw(size_t size) {
  if (!ok_ || size > rest_.size()) {
    ok_ = false;
    return {};
  }
  std::span<const std::byte> bytes = rest_.first(size);
  rest_ = rest_.subspan(size);
  return bytes;
}

std::vector<std::byte> PayloadReader::Bytes(size_t max_length) {
  uint32_t length = U32();
  if (length > max_length) ok_ = false;
  std::span<const std::byte> bytes = Raw(length);
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

std::string PayloadReader::String(size_t max_length) {
  std::vector<std::byte> bytes = Bytes(max_length);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

uint32_t PayloadReader::Count(size_t element_size) {
  uint32_t count = U32();
  if (count > rest_.size() / element_size) ok_ = false;
  return ok_ ? count : 0;
}

Status PayloadReader::Finish() const {
  if (!ok_) return Status(StatusCode::kCorrupt, "payload too short for its fields");
  if (!rest_.empty()) {
    return Errorf(StatusCode::kCorrupt, "%zu bytes left over after the payload's fields", rest_.size());
  }
  return Status();
}

}  // namespace stasis

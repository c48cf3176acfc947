#include "softgpu/ptx/container.h"

#include <cstdint>
#include <cstring>

#include "softgpu/ptx/image.h"

namespace softgpu::ptx {
namespace {

using stasis::Result;
using stasis::Status;
using stasis::StatusCode;
using Bytes = std::span<const std::byte>;

constexpr uint32_t kVersion = 1;
constexpr uint64_t kMaxSize = uint64_t{1} << 31;

// Followed by `units` times: u64 size, then the text without NUL.
struct Header {
  char magic[sizeof(kLinkedMagic)];
  uint32_t version;
  uint32_t units;
  uint64_t size;      // of the whole container
  uint64_t checksum;  // FNV-1a of everything behind the header
};
static_assert(sizeof(Header) == 32);

uint64_t Checksum(Bytes data) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte byte : data) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

Status Damaged() { return Status(StatusCode::kCorrupt, "linked image is damaged"); }

Status CheckHeader(const Header& header) {
  if (header.version != kVersion) return Status(StatusCode::kCorrupt, "linked image of an unknown version");
  return header.size >= sizeof(Header) && header.size <= kMaxSize ? Status() : Damaged();
}

void Append(std::vector<std::byte>* out, const void* data, size_t size) {
  const std::byte* bytes = static_cast<const std::byte*>(data);
  out->insert(out->end(), bytes, bytes + size);
}

}  // namespace

std::vector<std::byte> PackLinked(const std::vector<std::string>& units) {
  std::vector<std::byte> out(sizeof(Header));
  for (const std::string& unit : units) {
    const uint64_t size = unit.size();
    Append(&out, &size, sizeof(size));
    Append(&out, unit.data(), unit.size());
  }
  Header header{};
  std::memcpy(header.magic, kLinkedMagic, sizeof(kLinkedMagic));
  header.version = kVersion;
  header.units = static_cast<uint32_t>(units.size());
  header.size = out.size();
  header.checksum = Checksum(Bytes(out).subspan(sizeof(Header)));
  std::memcpy(out.data(), &header, sizeof(header));
  return out;
}

Result<std::vector<std::string>> UnpackLinked(Bytes data) {
  Header header;
  if (data.size() < sizeof(header)) return Damaged();
  std::memcpy(&header, data.data(), sizeof(header));
  RETURN_IF_ERROR(CheckHeader(header));
  if (header.size > data.size()) return Damaged();
  Bytes rest = data.subspan(sizeof(header), header.size - sizeof(header));
  if (Checksum(rest) != header.checksum) return Damaged();
  std::vector<std::string> units;
  for (uint32_t i = 0; i < header.units; ++i) {
    uint64_t size = 0;
    if (rest.size() < sizeof(size)) return Damaged();
    std::memcpy(&size, rest.data(), sizeof(size));
    rest = rest.subspan(sizeof(size));
    if (size > rest.size()) return Damaged();
    units.emplace_back(reinterpret_cast<const char*>(rest.data()), size);
    rest = rest.subspan(size);
  }
  if (!rest.empty() || units.empty()) return Damaged();
  return units;
}

Result<Bytes> SpanOfLinked(const std::byte* data) {
  Header header;
  std::memcpy(&header, data, sizeof(header));
  RETURN_IF_ERROR(CheckHeader(header));
  return Bytes(data, header.size);
}

}  // namespace softgpu::ptx

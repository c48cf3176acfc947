// An image as one self-contained file. See docs/image-format.md.
//
//   header    magic (8 bytes), version (u32), zero (u32), size of the manifest (u64), XXH3 of those (u64)
//   manifest  as in a store: image_manifest.h
//   records   each distinct chunk that is not zero, in the order of first use, as in a pack: pack.h
//   footer    magic (8 bytes), number of records (u64), size of the file (u64), XXH3-128 of the manifest
//   (high
//             half, low half), zero (u64), XXH3 of those (u64)
//
// Little-endian. Every byte is under a sum, and the footer ties the manifest to its file.
#ifndef DEDUP_IMAGE_EXPORT_H_
#define DEDUP_IMAGE_EXPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "dedup/hash.h"

namespace stasis {

inline constexpr uint32_t kExportVersion = 1;
inline constexpr size_t kExportHeaderBytes = 32;
inline constexpr size_t kExportFooterBytes = 56;

struct ExportFooter {
  uint64_t records = 0;
  uint64_t file_bytes = 0;
  Hash128 manifest;
  bool operator==(const ExportFooter&) const = default;
};

std::array<std::byte, kExportHeaderBytes> EncodeExportHeader(uint64_t manifest_bytes);
// The manifest's size. `file` is named in errors. kUnsupported names both versions.
Result<uint64_t> DecodeExportHeader(std::span<const std::byte, kExportHeaderBytes> bytes,
                                    const std::string& file);

std::array<std::byte, kExportFooterBytes> EncodeExportFooter(const ExportFooter& footer);
// kCorrupt when it is damaged, or is not `expected`.
Status CheckExportFooter(std::span<const std::byte, kExportFooterBytes> bytes, const ExportFooter& expected);

}  // namespace stasis

#endif  // DEDUP_IMAGE_EXPORT_H_

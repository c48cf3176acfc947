#include "replay/fatbin.h"

#include <lz4.h>
#include <zstd.h>

#include <cstring>

namespace stasis::replay {

namespace {

// Layouts as measured from the output of nvcc 13.0; little endian.
struct Header {
  uint32_t magic;
  uint16_t version;
  uint16_t header_size;
  uint64_t entries_size;
};
static_assert(sizeof(Header) == 16);

struct EntryHeader {
  uint16_t kind;
  uint16_t unknown;
  uint32_t header_size;
  uint64_t payload_size;     // padded to 8
  uint32_t compressed_size;  // exact; 0 when stored plain
  uint32_t options;
  uint16_t minor, major;
  uint32_t sm;
  uint32_t name_offset, name_size;
  uint64_t flags;
  uint64_t reserved;
  uint64_t uncompressed_size;  // 0 when stored plain
};
static_assert(sizeof(EntryHeader) == 64);

constexpr uint16_t kVersion = 1;
constexpr uint16_t kKindPtx = 1, kKindElf = 2;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000;
constexpr uint64_t kLargestEntry = uint64_t{256} << 20;

Status Corrupt(const char* what, uint64_t offset) {
  return Errorf(StatusCode::kCorrupt, "fat binary: %s at offset %llu", what,
                static_cast<unsigned long long>(offset));
}

FatbinEntry::Kind KindOf(const EntryHeader& header) {
  if (header.kind == kKindPtx) return FatbinEntry::Kind::kPtx;
  return header.kind == kKindElf ? FatbinEntry::Kind::kElf : FatbinEntry::Kind::kOther;
}

FatbinEntry::Codec CodecOf(const EntryHeader& header) {
  if ((header.flags & kFlagZstd) != 0) return FatbinEntry::Codec::kZstd;
  return (header.flags & kFlagLz4) != 0 ? FatbinEntry::Codec::kLz4 : FatbinEntry::Codec::kPlain;
}

// Reads the entry at `*offset` and moves it on to the next.
Result<FatbinEntry> ReadEntry(std::span<const std::byte> data, uint64_t* offset) {
  EntryHeader header;
  const uint64_t left = data.size() - *offset;
  if (left < sizeof header) return Corrupt("truncated entry", *offset);
  std::memcpy(&header, data.data() + *offset, sizeof header);
  if (header.header_size < sizeof header || header.header_size > left ||
      header.payload_size > left - header.header_size)
    return Corrupt("an entry that leaves the data", *offset);
  FatbinEntry entry{.kind = KindOf(header), .codec = CodecOf(header), .payload = {}};
  const bool plain = entry.codec == FatbinEntry::Codec::kPlain;
  const uint64_t stored = plain ? header.payload_size : header.compressed_size;
  if (stored > header.payload_size) return Corrupt("a compressed size above the stored one", *offset);
  entry.payload = data.subspan(*offset + header.header_size, stored);
  entry.size = plain ? stored : header.uncompressed_size;
  *offset += header.header_size + header.payload_size;
  return entry;
}

bool Unpack(const FatbinEntry& entry, std::vector<std::byte>* out) {
  const char* from = reinterpret_cast<const char*>(entry.payload.data());
  char* to = reinterpret_cast<char*>(out->data());
  if (entry.codec == FatbinEntry::Codec::kZstd)
    return ZSTD_decompress(to, out->size(), from, entry.payload.size()) == out->size();
  const int size = static_cast<int>(out->size());
  return LZ4_decompress_safe(from, to, static_cast<int>(entry.payload.size()), size) == size;
}

}  // namespace

uint64_t FatbinSize(const void* data) {
  Header header;
  std::memcpy(&header, data, sizeof header);
  if (header.magic != kFatbinMagic || header.version != kVersion || header.header_size < sizeof header)
    return 0;
  const uint64_t size = header.header_size + header.entries_size;
  return size < header.entries_size ? 0 : size;
}

Result<std::vector<FatbinEntry>> ReadFatbin(std::span<const std::byte> data) {
  if (data.size() < sizeof(Header)) return Corrupt("truncated header", 0);
  const uint64_t size = FatbinSize(data.data());
  if (size == 0 || size > data.size()) return Corrupt("bad header", 0);
  Header header;
  std::memcpy(&header, data.data(), sizeof header);
  std::vector<FatbinEntry> entries;
  for (uint64_t offset = header.header_size; offset < size;) {
    ASSIGN_OR_RETURN(FatbinEntry entry, ReadEntry(data.first(size), &offset));
    entries.push_back(entry);
  }
  return entries;
}

Result<std::vector<std::byte>> Decompress(const FatbinEntry& entry) {
  if (entry.codec == FatbinEntry::Codec::kPlain)
    return std::vector<std::byte>(entry.payload.begin(), entry.payload.end());
  if (entry.size > kLargestEntry || entry.payload.size() > kLargestEntry)
    return Errorf(StatusCode::kUnsupported, "fat binary: an entry of %llu bytes",
                  static_cast<unsigned long long>(entry.size));
  std::vector<std::byte> bytes(entry.size);
  if (!Unpack(entry, &bytes))
    return Errorf(StatusCode::kCorrupt, "fat binary: an entry does not decompress to its size");
  return bytes;
}

}  // namespace stasis::replay

#include "softgpu/ptx/image.h"

#include <elf.h>
#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "softgpu/ptx/container.h"
#include "softgpu/ptx/lexer.h"

namespace softgpu::ptx {
namespace {

using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;
using Bytes = std::span<const std::byte>;

constexpr uint32_t kFatbinMagic = 0xba55ed50;
constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint64_t kMaxText = uint64_t{256} << 20;

// Layouts as measured from nvcc 13.0's output.
struct FatbinHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_size;
  uint64_t size;  // of all entries
};
static_assert(sizeof(FatbinHeader) == 16);

struct EntryHeader {
  uint16_t kind;
  uint16_t unknown;
  uint32_t header_size;
  uint64_t payload_size;     // with padding
  uint32_t compressed_size;  // exact, 0 when stored plain
  uint32_t options_offset;
  uint16_t minor, major;
  uint32_t sm;
  uint32_t name_offset, name_size;
  uint64_t flags;
  uint64_t reserved;
  uint64_t uncompressed_size;
};
static_assert(sizeof(EntryHeader) == 64);

// fatbinary_section.h of the toolkit.
struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* prelinked;
};

constexpr uint16_t kKindPtx = 1, kKindElf = 2;
constexpr uint64_t kFlagLz4 = 0x2000, kFlagZstd = 0x8000, kFlagArchSpecific = 0x100000,
                   kFlagFamily = 0x200000;

template <typename T>
bool Load(Bytes data, uint64_t offset, T* value) {
  if (offset > data.size() || data.size() - offset < sizeof(T)) return false;
  std::memcpy(value, data.data() + offset, sizeof(T));
  return true;
}

Status BadFatbin(const char* what, uint64_t offset) {
  return Errorf(StatusCode::kCorrupt, "fat binary: %s at offset %llu", what,
                static_cast<unsigned long long>(offset));
}

FatbinEntry::Kind KindOf(uint16_t kind) {
  if (kind == kKindPtx) return FatbinEntry::Kind::kPtx;
  return kind == kKindElf ? FatbinEntry::Kind::kElf : FatbinEntry::Kind::kOther;
}

FatbinEntry::Codec CodecOf(const EntryHeader& header) {
  if (header.flags & kFlagZstd) return FatbinEntry::Codec::kZstd;
  return header.flags & kFlagLz4 ? FatbinEntry::Codec::kLz4 : FatbinEntry::Codec::kPlain;
}

// The entry at *offset, which moves behind it. `data` ends where the fat binary says.
Status ReadEntry(Bytes data, uint64_t* offset, FatbinEntry* entry) {
  EntryHeader header;
  if (!Load(data, *offset, &header)) return BadFatbin("truncated entry header", *offset);
  const uint64_t left = data.size() - *offset;
  if (header.header_size < sizeof(header) || header.header_size > left)
    return BadFatbin("bad entry header", *offset);
  if (header.payload_size > left - header.header_size)
    return BadFatbin("payload runs out of the data", *offset);
  entry->kind = KindOf(header.kind);
  entry->sm = static_cast<int>(std::min<uint32_t>(header.sm, 1 << 20));
  entry->suffix = header.flags & kFlagArchSpecific ? 'a' : header.flags & kFlagFamily ? 'f' : '\0';
  entry->codec = CodecOf(header);
  const bool plain = entry->codec == FatbinEntry::Codec::kPlain;
  entry->stored_size = plain ? header.payload_size : header.compressed_size;
  if (entry->stored_size > header.payload_size)
    return BadFatbin("compressed size above the stored one", *offset);
  if (header.uncompressed_size > kMaxText && !plain) return BadFatbin("entry is too large", *offset);
  entry->uncompressed_size = plain ? 0 : header.uncompressed_size;
  entry->payload = data.subspan(*offset + header.header_size, entry->stored_size);
  *offset += header.header_size + header.payload_size;
  return Status();
}

Status ReadHeader(Bytes data, FatbinHeader* header) {
  if (!Load(data, 0, header) || header->magic != kFatbinMagic) return BadFatbin("no header", 0);
  if (header->version != 1 || header->header_size < sizeof(*header)) return BadFatbin("unknown version", 4);
  return Status();
}

bool Decompress(const FatbinEntry& entry, std::string* text) {
  const char* from = reinterpret_cast<const char*>(entry.payload.data());
  if (entry.codec == FatbinEntry::Codec::kZstd) {
    if (ZSTD_getFrameContentSize(from, entry.payload.size()) != text->size()) return false;
    return ZSTD_decompress(text->data(), text->size(), from, entry.payload.size()) == text->size();
  }
  const int size = static_cast<int>(text->size());
  return LZ4_decompress_safe(from, text->data(), static_cast<int>(entry.payload.size()), size) == size;
}

bool StartsWith(Bytes data, const void* magic, size_t size) {
  return data.size() >= size && std::memcmp(data.data(), magic, size) == 0;
}

// Architecture-specific code runs on the one device it is for, family-specific code on that and newer ones
// with the same major number, all other PTX on anything not older.
bool RunsOn(int sm, char suffix, int major, int minor) {
  const int device = 10 * major + minor;
  if (suffix == 'a') return sm == device;
  return sm <= device && (suffix != 'f' || sm / 10 == major);
}

// Among entries for the same SM the more specific one has the faster code.
int Preference(const FatbinEntry& entry) {
  return entry.sm * 4 + (entry.suffix == 'a' ? 2 : entry.suffix == 'f');
}

Status NoImage(int major, int minor) {
  return Errorf(StatusCode::kUnsupported, "no PTX for compute capability %d.%d", major, minor);
}

Result<std::vector<std::string>> ReadFatbinImage(Bytes data, int major, int minor) {
  ASSIGN_OR_RETURN(const std::vector<FatbinEntry> entries, ReadFatbin(data));
  const FatbinEntry* best = nullptr;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != FatbinEntry::Kind::kPtx || !RunsOn(entry.sm, entry.suffix, major, minor)) continue;
    if (best == nullptr || Preference(entry) > Preference(*best)) best = &entry;
  }
  if (best == nullptr) return NoImage(major, minor);
  ASSIGN_OR_RETURN(std::string text, PtxText(*best));
  return std::vector<std::string>{std::move(text)};
}

// The architecture that ".target" names; false when there is none where the language wants it.
bool TargetOf(std::string_view text, int* sm, char* suffix) {
  Cursor in(text);
  if (!in.AcceptDot("version") || !in.AtNumber()) return false;
  in.Advance();
  if (!in.AcceptDot("target")) return false;
  const std::string_view word = in.now().text;
  if (word.substr(0, 3) != "sm_") return false;
  const char* end = word.data() + word.size();
  const std::from_chars_result result = std::from_chars(word.data() + 3, end, *sm);
  *suffix = result.ptr < end ? *result.ptr : '\0';
  return result.ec == std::errc();
}

Status CheckTarget(std::string_view text, int major, int minor) {
  int sm = 0;
  char suffix = '\0';
  if (!TargetOf(text, &sm, &suffix)) return Status(StatusCode::kCorrupt, "PTX without .version and .target");
  return RunsOn(sm, suffix, major, minor) ? Status() : NoImage(major, minor);
}

Result<std::vector<std::string>> ReadText(Bytes data, int major, int minor) {
  const std::string_view all(reinterpret_cast<const char*>(data.data()), data.size());
  const std::string_view text = all.substr(0, all.find('\0'));
  if (text.size() > kMaxText) return Status(StatusCode::kCorrupt, "PTX text is too large");
  if (!Cursor(text).AtDot("version"))
    return Status(StatusCode::kCorrupt, "neither a fat binary, nor ELF, nor PTX");
  RETURN_IF_ERROR(CheckTarget(text, major, minor));
  return std::vector<std::string>{std::string(text)};
}

Result<std::vector<std::string>> ReadLinked(Bytes data, int major, int minor) {
  ASSIGN_OR_RETURN(std::vector<std::string> units, UnpackLinked(data));
  for (const std::string& unit : units) RETURN_IF_ERROR(CheckTarget(unit, major, minor));
  return units;
}

// Bytes up to the end of the section or program headers, whichever is last: in what toolkits write, the
// file's end.
Result<Bytes> SpanOfElf(const std::byte* data) {
  Elf64_Ehdr header;
  std::memcpy(&header, data, sizeof(header));
  if (header.e_ident[EI_CLASS] != ELFCLASS64) return Status(StatusCode::kCorrupt, "ELF image is not 64-bit");
  const uint64_t sections = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  const uint64_t programs = header.e_phoff + uint64_t{header.e_phnum} * header.e_phentsize;
  if (header.e_shoff > kMaxText || header.e_phoff > kMaxText) {
    return Status(StatusCode::kCorrupt, "ELF image is too large");
  }
  return Bytes(data, std::max({sections, programs, uint64_t{sizeof(header)}}));
}

// Whether the bytes begin as PTX does. Stops at the first byte that rules it out, so that nothing beyond is
// read.
bool BeginsAsText(const char* data) {
  const char* at = data;
  for (;;) {
    while (*at == ' ' || (*at >= '\t' && *at <= '\r')) ++at;
    if (at[0] != '/') break;
    if (at[1] == '/') {
      while (*at != '\0' && *at != '\n') ++at;
    } else if (at[1] == '*') {
      for (at += 2; *at != '\0' && !(at[0] == '*' && at[1] == '/'); ++at) continue;
      if (*at != '\0') at += 2;
    } else {
      return false;
    }
  }
  return std::strncmp(at, ".version", 8) == 0;
}

Result<Bytes> SpanOfText(const char* data) {
  if (!BeginsAsText(data)) return Status(StatusCode::kCorrupt, "neither a fat binary, nor ELF, nor PTX");
  const size_t length = strnlen(data, kMaxText + 1);
  if (length > kMaxText) return Status(StatusCode::kCorrupt, "PTX text is too large");
  return std::as_bytes(std::span(data, length + 1));
}

// Compares byte by byte: what is shorter than a magic number ends in NUL and must not be read beyond.
bool HasMagic(const void* data, const void* magic, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (static_cast<const char*>(data)[i] != static_cast<const char*>(magic)[i]) return false;
  }
  return true;
}

}  // namespace

Result<std::vector<FatbinEntry>> ReadFatbin(Bytes data) {
  FatbinHeader header;
  RETURN_IF_ERROR(ReadHeader(data, &header));
  if (header.header_size > data.size() || header.size > data.size() - header.header_size) {
    return BadFatbin("entries run out of the data", 8);
  }
  const Bytes all = data.first(header.header_size + header.size);
  std::vector<FatbinEntry> entries;
  for (uint64_t offset = header.header_size; offset < all.size();) {
    RETURN_IF_ERROR(ReadEntry(all, &offset, &entries.emplace_back()));
  }
  return entries;
}

Result<std::string> PtxText(const FatbinEntry& entry) {
  if (entry.kind != FatbinEntry::Kind::kPtx)
    return Status(StatusCode::kInvalidArgument, "entry holds no PTX");
  std::string text;
  if (entry.codec == FatbinEntry::Codec::kPlain) {
    if (entry.payload.size() > kMaxText) return Status(StatusCode::kCorrupt, "PTX text is too large");
    text.assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  } else {
    if (entry.uncompressed_size > kMaxText) return Status(StatusCode::kCorrupt, "PTX text is too large");
    text.resize(entry.uncompressed_size);
    if (!Decompress(entry, &text)) return Status(StatusCode::kCorrupt, "compressed PTX is damaged");
  }
  text.resize(std::min(text.size(), text.find('\0')));
  return text;
}

Result<std::vector<std::string>> ReadImage(Bytes data, int major, int minor) {
  if (StartsWith(data, &kFatbinMagic, sizeof(kFatbinMagic))) return ReadFatbinImage(data, major, minor);
  if (StartsWith(data, kLinkedMagic, sizeof(kLinkedMagic))) return ReadLinked(data, major, minor);
  if (StartsWith(data, ELFMAG, SELFMAG)) {
    return Status(StatusCode::kUnsupported, "the image holds machine code only, and no PTX");
  }
  return ReadText(data, major, minor);
}

Result<Bytes> SpanOfImage(const void* data) {
  if (data == nullptr) return Status(StatusCode::kInvalidArgument, "no image");
  if (HasMagic(data, &kWrapperMagic, sizeof(kWrapperMagic))) {
    Wrapper wrapper;
    std::memcpy(&wrapper, data, sizeof(wrapper));
    data = wrapper.data;
    if (data == nullptr) return Status(StatusCode::kCorrupt, "fat binary wrapper without data");
  }
  const std::byte* bytes = static_cast<const std::byte*>(data);
  if (HasMagic(data, &kFatbinMagic, sizeof(kFatbinMagic))) {
    FatbinHeader header;
    RETURN_IF_ERROR(ReadHeader(Bytes(bytes, sizeof(header)), &header));
    if (header.size > UINT64_MAX / 2) return BadFatbin("impossible size", 8);
    return Bytes(bytes, header.header_size + header.size);
  }
  if (HasMagic(data, kLinkedMagic, sizeof(kLinkedMagic))) return SpanOfLinked(bytes);
  if (HasMagic(data, ELFMAG, SELFMAG)) return SpanOfElf(bytes);
  return SpanOfText(static_cast<const char*>(data));
}

}  // namespace softgpu::ptx

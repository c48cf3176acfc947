#include "replay/device_code.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "replay/fatbin.h"

namespace stasis::replay {

namespace {

// fatbinary_section.h of the toolkit.
struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
  const void* parts;
};
constexpr uint32_t kWrapperMagic = 0x466243B1;

bool IsElf(const void* data) { return std::memcmp(data, ELFMAG, SELFMAG) == 0; }

// Printable text with a first line break or space early on: PTX begins with a comment or a directive.
bool IsText(const char* data) {
  return *data == '.' || *data == '/' || *data == '\n' || *data == '\r' || *data == ' ' || *data == '\t';
}

uint64_t TableEnd(uint64_t offset, uint64_t count, uint64_t size) { return offset + count * size; }

size_t ElfSize(const void* data) {
  Elf64_Ehdr header;
  std::memcpy(&header, data, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) return 0;
  uint64_t size = std::max(TableEnd(header.e_shoff, header.e_shnum, sizeof(Elf64_Shdr)),
                           TableEnd(header.e_phoff, header.e_phnum, header.e_phentsize));
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, static_cast<const char*>(data) + header.e_shoff + i * sizeof section,
                sizeof section);
    if (section.sh_type != SHT_NOBITS) size = std::max(size, section.sh_offset + section.sh_size);
  }
  return size;
}

Result<DeviceCodeFacts> ReadEntryFacts(const FatbinEntry& entry) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, Decompress(entry));
  if (entry.kind == FatbinEntry::Kind::kElf) return ReadCubin(bytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return ReadPtx(text.substr(0, text.find('\0')));
}

Result<DeviceCodeFacts> ReadFatbinFacts(std::span<const std::byte> image) {
  ASSIGN_OR_RETURN(const std::vector<FatbinEntry> entries, ReadFatbin(image));
  DeviceCodeFacts facts;
  bool readable = entries.empty();
  for (const FatbinEntry& entry : entries) {
    if (entry.kind == FatbinEntry::Kind::kOther) continue;
    ASSIGN_OR_RETURN(const DeviceCodeFacts more, ReadEntryFacts(entry));
    MergeFacts(more, &facts);
    readable = true;
  }
  if (!readable) return Errorf(StatusCode::kUnsupported, "device code in a form that hides its variables");
  return facts;
}

}  // namespace

bool IsHiddenStateFunction(std::string_view name) {
  return name == "malloc" || name.starts_with("cudaLaunchDevice") ||
         name.starts_with("cudaGetParameterBuffer") || name.starts_with("__cudaCDP");
}

void MergeFacts(const DeviceCodeFacts& more, DeviceCodeFacts* facts) {
  if (facts->hidden_state.empty()) facts->hidden_state = more.hidden_state;
  std::vector<std::string>& names = facts->variables;
  names.insert(names.end(), more.variables.begin(), more.variables.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

const void* UnwrapDeviceCode(const void* data) {
  Wrapper wrapper;
  uint32_t magic;
  std::memcpy(&magic, data, sizeof magic);
  if (magic != kWrapperMagic) return data;
  std::memcpy(&wrapper, data, sizeof wrapper);
  return wrapper.data;
}

size_t DeviceCodeSize(const void* data) {
  if (IsText(static_cast<const char*>(data))) return std::strlen(static_cast<const char*>(data)) + 1;
  if (IsElf(data)) return ElfSize(data);
  return FatbinSize(data);
}

Result<DeviceCodeFacts> ReadDeviceCode(std::span<const std::byte> image) {
  if (image.size() >= SELFMAG && IsElf(image.data())) return ReadCubin(image);
  uint32_t magic = 0;
  if (image.size() >= sizeof magic) std::memcpy(&magic, image.data(), sizeof magic);
  if (magic == kFatbinMagic) return ReadFatbinFacts(image);
  std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  if (!text.empty() && IsText(text.data())) return ReadPtx(text.substr(0, text.find('\0')));
  return Errorf(StatusCode::kUnsupported, "device code of an unknown form");
}

Result<DeviceCodeFacts> ReadCubin(std::span<const std::byte> elf) {
  const Status corrupt = Errorf(StatusCode::kCorrupt, "cubin: a table that leaves the data");
  auto fits = [&](uint64_t offset, uint64_t size) {
    return offset <= elf.size() && size <= elf.size() - offset;
  };
  Elf64_Ehdr header;
  if (!fits(0, sizeof header)) return corrupt;
  std::memcpy(&header, elf.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 ||
      (header.e_shnum != 0 && header.e_shentsize != sizeof(Elf64_Shdr)) ||
      !fits(header.e_shoff, uint64_t{header.e_shnum} * sizeof(Elf64_Shdr)))
    return corrupt;
  auto section = [&](uint32_t index) {
    Elf64_Shdr result;
    std::memcpy(&result, elf.data() + header.e_shoff + index * sizeof result, sizeof result);
    return result;
  };
  DeviceCodeFacts facts;
  for (uint32_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type != SHT_SYMTAB) continue;
    if (symbols.sh_link >= header.e_shnum || !fits(symbols.sh_offset, symbols.sh_size)) return corrupt;
    const Elf64_Shdr strings = section(symbols.sh_link);
    if (!fits(strings.sh_offset, strings.sh_size)) return corrupt;
    std::string_view names(reinterpret_cast<const char*>(elf.data()) + strings.sh_offset, strings.sh_size);
    for (uint64_t at = 0; symbols.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, elf.data() + symbols.sh_offset + at, sizeof symbol);
      if (symbol.st_name >= names.size()) return corrupt;
      std::string_view name = names.substr(symbol.st_name);
      name = name.substr(0, name.find('\0'));
      if (IsHiddenStateFunction(name)) facts.hidden_state = name;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && !name.empty()) facts.variables.emplace_back(name);
    }
  }
  MergeFacts({}, &facts);
  return facts;
}

}  // namespace stasis::replay

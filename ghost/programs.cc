#include "ghost/programs.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <span>

#include "base/files.h"

namespace stasis {
namespace {

constexpr size_t kMaxNotes = 1 << 16;

template <typename T>
bool ReadStruct(const Fd& fd, uint64_t offset, T* out) {
  return ReadAt(fd.get(), std::as_writable_bytes(std::span(out, 1)), offset).ok();
}

std::string HexOf(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15];
  }
  return text;
}

std::string FindBuildId(std::span<const std::byte> notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    std::memcpy(&note, notes.data(), sizeof note);
    uint64_t name = (note.n_namesz + 3ull) & ~3ull, size = (note.n_descsz + 3ull) & ~3ull;
    notes = notes.subspan(sizeof note);
    if (name + note.n_descsz > notes.size()) return "";
    bool gnu = note.n_namesz == 4 && std::memcmp(notes.data(), "GNU", 4) == 0;
    if (gnu && note.n_type == NT_GNU_BUILD_ID) return HexOf(notes.subspan(name, note.n_descsz));
    if (name + size > notes.size()) return "";
    notes = notes.subspan(name + size);
  }
  return "";
}

}  // namespace

std::string BuildIdOf(const std::string& path) {
  Result<Fd> fd = OpenFile(path, O_RDONLY);
  Elf64_Ehdr header;
  if (!fd.ok() || !ReadStruct(*fd, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "";
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    if (!ReadStruct(*fd, header.e_phoff + i * sizeof part, &part)) return "";
    if (part.p_type != PT_NOTE || part.p_filesz > kMaxNotes) continue;
    std::vector<std::byte> notes(part.p_filesz);
    if (!ReadAt(fd->get(), notes, part.p_offset).ok()) return "";
    std::string id = FindBuildId(notes);
    if (!id.empty()) return id;
  }
  return "";
}

Result<ManifestProgram> DescribeProgram(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return Status(StatusCode::kNotFound, path + " is missing");
  ManifestProgram program;
  program.path = path;
  program.build_id = BuildIdOf(path);
  program.size = static_cast<uint64_t>(info.st_size);
  program.mtime = std::max<int64_t>(info.st_mtime, 0);
  return program;
}

Status CheckProgram(const ManifestProgram& was) {
  Result<ManifestProgram> now = DescribeProgram(was.path);
  if (!now.ok()) return Status(StatusCode::kUnsupported, std::string(now.status().message()));
  if (was.build_id != now->build_id) {
    return Status(StatusCode::kUnsupported, was.path + " was replaced since the checkpoint: build id " +
                                                (was.build_id.empty() ? "none" : was.build_id) + ", now " +
                                                (now->build_id.empty() ? "none" : now->build_id));
  }
  if (was.size != now->size) {
    return Errorf(StatusCode::kUnsupported, "%s was replaced since the checkpoint: %llu bytes, now %llu",
                  was.path.c_str(), static_cast<unsigned long long>(was.size),
                  static_cast<unsigned long long>(now->size));
  }
  if (was.build_id.empty() && was.mtime != now->mtime) {
    return Status(StatusCode::kUnsupported, was.path + " was written since the checkpoint");
  }
  return Status();
}

Status CheckPrograms(const std::vector<ManifestProgram>& programs, std::string* remedy) {
  *remedy = "put the version of the checkpoint back";
  for (const ManifestProgram& was : programs) RETURN_IF_ERROR(CheckProgram(was));
  remedy->clear();
  return Status();
}

}  // namespace stasis

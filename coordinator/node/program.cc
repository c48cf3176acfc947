#include "coordinator/node/program.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/fd.h"

namespace stasis {
namespace {

constexpr size_t kMaxScriptLine = 256;  // what the kernel reads of a script
constexpr int kMaxInterpreters = 4;     // as in the kernel

bool IsExecutable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  std::string absolute = std::filesystem::absolute(path, error).string();
  return error ? path : absolute;
}

template <typename T>
bool ReadAt(int file, off_t offset, T* value) {
  return pread(file, value, sizeof *value, offset) == static_cast<ssize_t>(sizeof *value);
}

// A program without an interpreter segment starts without ld.so, and so without preloads.
bool HasInterpreter(int file, const Elf64_Ehdr& header) {
  for (int i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    off_t offset = static_cast<off_t>(header.e_phoff) + i * header.e_phentsize;
    if (!ReadAt(file, offset, &segment)) return false;
    if (segment.p_type == PT_INTERP) return true;
  }
  return false;
}

std::string WhyElfUnmanaged(int file, const Elf64_Ehdr& header) {
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return "it is not a 64-bit x86 program";
  }
  if (!HasInterpreter(file, header)) return "it is statically linked";
  return "";
}

std::string WhyPrivileged(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return "";
  if ((info.st_mode & S_ISUID) != 0 && info.st_uid != geteuid()) return "it is setuid";
  if ((info.st_mode & S_ISGID) != 0 && info.st_gid != getegid()) return "it is setgid";
  if (geteuid() != 0 && fgetxattr(file, "security.capability", nullptr, 0) > 0) {
    return "it has file capabilities";
  }
  return "";
}

// The interpreter that "#!..." names, or "".
std::string ScriptInterpreter(int file) {
  char line[kMaxScriptLine];
  ssize_t got = pread(file, line, sizeof line, 0);
  if (got < 3 || line[0] != '#' || line[1] != '!') return "";
  std::string_view text(line + 2, static_cast<size_t>(got) - 2);
  text = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return std::string(text.substr(0, text.find_first_of(" \t")));
}

}  // namespace

Result<std::string> FindProgram(const std::string& name, std::string_view path, const std::string& folder) {
  if (name.empty()) return Status(StatusCode::kInvalidArgument, "the program's name is empty");
  bool found_unusable = false;
  if (name.find('/') != std::string::npos) {
    std::string file = name[0] == '/' || folder.empty() ? name : folder + "/" + name;
    if (IsExecutable(file)) return AbsolutePath(file);
    found_unusable = access(file.c_str(), F_OK) == 0;
  } else {
    while (!path.empty()) {
      size_t end = std::min(path.find(':'), path.size());
      std::string place(path.substr(0, end));
      path.remove_prefix(std::min(end + 1, path.size()));
      std::string candidate = (place.empty() ? "." : place) + "/" + name;
      if (IsExecutable(candidate)) return AbsolutePath(candidate);
      found_unusable = found_unusable || access(candidate.c_str(), F_OK) == 0;
    }
  }
  if (found_unusable) return Status(StatusCode::kPermissionDenied, name + " cannot be executed");
  return Status(StatusCode::kNotFound, "no program " + name + " found");
}

Result<std::string> WhyUnmanaged(const std::string& program) {
  std::string path = program;
  for (int depth = 0; depth < kMaxInterpreters; depth++) {
    Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    // One may be allowed to execute a program without being allowed to read it.
    if (!file.valid()) return "it cannot be read (" + std::string(std::strerror(errno)) + ")";
    std::string why = WhyPrivileged(file.get());
    if (!why.empty()) return why;
    Elf64_Ehdr header{};
    if (ReadAt(file.get(), 0, &header) && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
      return WhyElfUnmanaged(file.get(), header);
    }
    path = ScriptInterpreter(file.get());
    if (path.empty()) return std::string();
  }
  return std::string();
}

}  // namespace stasis

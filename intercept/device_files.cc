#include "intercept/device_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace stasis {
namespace {

// One line of /proc/self/maps: the longest path, and what stands before it.
constexpr size_t kLongestLine = 4096 + 128;

struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  int access = PROT_NONE;
};

uintptr_t TakeHex(const char** at) {
  uintptr_t value = 0;
  for (;; ++*at) {
    const char c = **at;
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uintptr_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uintptr_t>(c - 'a' + 10);
    } else {
      return value;
    }
  }
}

// "7f00-7f10 rw-s 00000000 00:06 1139 /dev/nvidia0"; false when the path begins otherwise.
bool ParseLine(const char* line, const char* prefix, Range* range) {
  range->begin = TakeHex(&line);
  if (*line++ != '-') return false;
  range->end = TakeHex(&line);
  if (*line++ != ' ' || std::strlen(line) < 4) return false;
  range->access =
      (line[0] == 'r' ? PROT_READ : 0) | (line[1] == 'w' ? PROT_WRITE : 0) | (line[2] == 'x' ? PROT_EXEC : 0);
  const char* path = std::strchr(line, '/');
  return path != nullptr && std::strncmp(path, prefix, std::strlen(prefix)) == 0;
}

// The first mapping from `from` on; false when there is none. Reads the file anew: it changes below a reader.
bool FindMapping(const char* prefix, uintptr_t from, Range* range) {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char line[kLongestLine];
  size_t have = 0;
  bool found = false;
  for (ssize_t got = 1; got > 0 && !found;) {
    got = read(fd, line + have, sizeof line - 1 - have);
    if (got > 0) have += static_cast<size_t>(got);
    line[have] = '\0';
    char* start = line;
    for (char* end = std::strchr(start, '\n'); end != nullptr && !found; end = std::strchr(start, '\n')) {
      *end = '\0';
      found = ParseLine(start, prefix, range) && range->begin >= from;
      start = end + 1;
    }
    have -= static_cast<size_t>(start - line);
    std::memmove(line, start, have);
    if (have == sizeof line - 1) break;  // no line is that long
  }
  close(fd);
  return found;
}

void DropMappings(const char* prefix) {
  Range range;
  for (uintptr_t from = 0; FindMapping(prefix, from, &range); from = range.end)
    (void)mmap(reinterpret_cast<void*>(range.begin), range.end - range.begin, range.access,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

// What getdents64(2) gives.
struct Entry {
  uint64_t inode;
  int64_t offset;
  unsigned short size;
  unsigned char type;
  char name[];
};

// -1: the name in /proc/self/fd is no descriptor of a file whose path begins with `prefix`.
int NumberOf(int folder, const char* name, const char* prefix) {
  char target[256];
  const ssize_t length = readlinkat(folder, name, target, sizeof target);
  if (length < static_cast<ssize_t>(std::strlen(prefix)) ||
      std::strncmp(target, prefix, std::strlen(prefix)) != 0)
    return -1;
  int fd = 0;
  for (const char* digit = name; *digit >= '0' && *digit <= '9'; ++digit) fd = 10 * fd + (*digit - '0');
  return fd;
}

template <typename Visit>
void ForEachDescriptor(const char* prefix, Visit visit) {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(Entry) char buffer[4096];
  for (long got; folder >= 0 && (got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got;) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      const int fd = entry->name[0] == '.' ? -1 : NumberOf(folder, entry->name, prefix);
      if (fd >= 0) visit(fd);
      at += entry->size;
    }
  }
  if (folder >= 0) close(folder);
}

void DropDescriptors(const char* prefix) {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  ForEachDescriptor(prefix, [nothing](int fd) { (void)dup3(nothing, fd, O_CLOEXEC); });
  close(nothing);
}

}  // namespace

void DropDeviceFiles(const char* prefix) {
  DropMappings(prefix);
  DropDescriptors(prefix);
}

bool HoldsDeviceFiles(const char* prefix) {
  Range range;
  bool holds = FindMapping(prefix, 0, &range);
  ForEachDescriptor(prefix, [&holds](int) { holds = true; });
  return holds;
}

}  // namespace stasis

#include "dedup/hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/files.h"

namespace stasis {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

Hash128 FromXxh(XXH128_hash_t hash) { return {hash.high64, hash.low64}; }

}  // namespace

Hash128 HashBytes(std::span<const std::byte> bytes) {
  return FromXxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Result<Hash128> HashFile(const std::string& path, uint64_t* size) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_NOFOLLOW));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + " is no regular file");
  *size = static_cast<uint64_t>(info.st_size);
  std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  STASIS_CHECK(state && XXH3_128bits_reset(state.get()) == XXH_OK);
  std::vector<std::byte> buffer(std::min<uint64_t>(*size, 1 << 20));
  for (uint64_t at = 0; at < *size; at += buffer.size()) {
    std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), *size - at));
    RETURN_IF_ERROR(ReadAt(fd.get(), part, at).WithContext(path));
    STASIS_CHECK(XXH3_128bits_update(state.get(), part.data(), part.size()) == XXH_OK);
  }
  return FromXxh(XXH3_128bits_digest(state.get()));
}

std::string HashText(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

Result<Hash128> ParseHash(const std::string& text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return Status(StatusCode::kCorrupt, "a checksum that is none");
  }
  Hash128 hash;
  hash.high = std::strtoull(text.substr(0, 16).c_str(), nullptr, 16);
  hash.low = std::strtoull(text.substr(16).c_str(), nullptr, 16);
  return hash;
}

bool AllZero(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  return bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

}  // namespace stasis

// XXH3-128: finds every damage that is not made on purpose. Not a cryptographic hash: who may write an image
// may also write its sums.
#ifndef DEDUP_HASH_H_
#define DEDUP_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace stasis {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
};

Hash128 HashBytes(std::span<const std::byte> bytes);
// Of a whole file, and its size.
Result<Hash128> HashFile(const std::string& path, uint64_t* size);
// 32 lower-case hexadecimal digits, and back; kCorrupt for anything else.
std::string HashText(const Hash128& hash);
Result<Hash128> ParseHash(const std::string& text);
bool AllZero(std::span<const std::byte> bytes);

}  // namespace stasis

#endif  // DEDUP_HASH_H_

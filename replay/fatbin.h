// Fat binaries as nvcc makes them: several images of the same device code in one.
#ifndef REPLAY_FATBIN_H_
#define REPLAY_FATBIN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

inline constexpr uint32_t kFatbinMagic = 0xBA55ED50;

struct FatbinEntry {
  enum class Kind : uint8_t { kPtx, kElf, kOther };
  enum class Codec : uint8_t { kPlain, kLz4, kZstd };
  Kind kind = Kind::kOther;
  Codec codec = Codec::kPlain;
  std::span<const std::byte> payload;  // as stored
  uint64_t size = 0;                   // uncompressed
};

// The size that the header at `data` states, itself included; 0 when it is no fat binary. Reads 16 bytes.
uint64_t FatbinSize(const void* data);
// The entries; spans point into `data`. kCorrupt for bytes that cannot be a fat binary.
Result<std::vector<FatbinEntry>> ReadFatbin(std::span<const std::byte> data);
// The bytes of an entry as they were before compression. kCorrupt, and kUnsupported above 256 MiB.
Result<std::vector<std::byte>> Decompress(const FatbinEntry& entry);

}  // namespace stasis::replay

#endif  // REPLAY_FATBIN_H_

// How the bytes of one chunk are kept: as they are, or as one zstd frame where that saves enough.
// Thread-safe: working memory is each thread's own.
#ifndef DEDUP_CODEC_H_
#define DEDUP_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace stasis {

enum class Coding : uint32_t {
  kRaw = 1,
  kZstd = 2,
  // The same, encrypted: crypt.h. Not for the two functions below.
  kSealedRaw = 3,
  kSealedZstd = 4,
};

inline bool IsSealed(Coding coding) { return coding == Coding::kSealedRaw || coding == Coding::kSealedZstd; }
// What a seal adds to the bytes: a nonce and a tag.
inline constexpr size_t kSealBytes = 24 + 16;

struct EncodedChunk {
  Coding coding = Coding::kRaw;
  // The chunk's own bytes, or memory of this thread that lasts until its next call.
  std::span<const std::byte> bytes;
};

// At most kMaxChunkBytes. Never longer than `raw`. Level 0: never compressed.
EncodedChunk EncodeChunk(std::span<const std::byte> raw, int level);
// Fills `out`; kCorrupt when the bytes do not give exactly that much. Takes no more memory than `out` has,
// whatever they are.
Status DecodeChunk(Coding coding, std::span<const std::byte> stored, std::span<std::byte> out);

// A guess from a small part of the bytes, for a few percent of the time that compressing takes.
bool LooksCompressible(std::span<const std::byte> raw);

}  // namespace stasis

#endif  // DEDUP_CODEC_H_

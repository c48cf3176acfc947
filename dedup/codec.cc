#include "dedup/codec.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "dedup/store.h"

namespace stasis {
namespace {

// A compressed chunk is slower to read: it must pay with this part of its size.
constexpr size_t kMinSaving = 16;
constexpr size_t kAlwaysTry = 4096;  // shorter chunks are too small for a guess

struct Contexts {
  ~Contexts() {
    ZSTD_freeCCtx(compress);
    ZSTD_freeDCtx(decompress);
  }
  ZSTD_CCtx* compress = nullptr;
  ZSTD_DCtx* decompress = nullptr;
  std::unique_ptr<std::byte[]> buffer;
  size_t buffer_size = 0;
};

Contexts& ThreadContexts() {
  thread_local Contexts contexts;
  return contexts;
}

constexpr size_t kWindows = 16;
constexpr size_t kWindowBytes = 256;
constexpr size_t kSampleBytes = kWindows * kWindowBytes;

// Bits per byte that an order-0 code needs for windows spread over the bytes.
double SampleEntropy(std::span<const std::byte> raw) {
  // Four tables: a run of equal bytes would otherwise wait for its own last store.
  std::array<std::array<uint16_t, 256>, 4> counts{};
  const size_t step = (raw.size() - kWindowBytes) / (kWindows - 1);
  for (size_t window = 0; window < kWindows; ++window) {
    const std::byte* at = raw.data() + window * step;
    for (size_t i = 0; i < kWindowBytes; i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) ++counts[lane][static_cast<uint8_t>(at[i + lane])];
    }
  }
  double sum = 0;
  for (size_t value = 0; value < 256; ++value) {
    unsigned count = counts[0][value] + counts[1][value] + counts[2][value] + counts[3][value];
    if (count != 0) sum += count * std::log2(static_cast<float>(count));
  }
  return std::log2(static_cast<double>(kSampleBytes)) - sum / kSampleBytes;
}

// Words that occur twice in the first part. Which words are looked at depends on their content, so that of
// two equal ones both are.
bool HasRepeats(std::span<const std::byte> raw) {
  constexpr size_t kLookedAt = 16 << 10;
  constexpr unsigned kTableBits = 10;
  std::array<uint64_t, 1 << kTableBits> table{};
  const size_t end = std::min(raw.size(), kLookedAt) & ~size_t{7};
  size_t sampled = 0, repeats = 0;
  for (size_t at = 0; at < end; at += 8) {
    uint64_t word;
    std::memcpy(&word, raw.data() + at, sizeof word);
    uint64_t mixed = word * 0x9e3779b97f4a7c15u;
    if ((mixed >> 60) != 0) continue;
    uint64_t& slot = table[(mixed >> (60 - kTableBits)) & ((1 << kTableBits) - 1)];
    ++sampled;
    if (slot == word) ++repeats;
    slot = word;
  }
  return repeats * kMinSaving > sampled;
}

}  // namespace

bool LooksCompressible(std::span<const std::byte> raw) {
  if (raw.size() < kAlwaysTry) return true;
  // 4096 bytes drawn evenly measure 7.95 to 7.96.
  constexpr double kBitsThatPay = 7.6;
  return SampleEntropy(raw) < kBitsThatPay || HasRepeats(raw);
}

EncodedChunk EncodeChunk(std::span<const std::byte> raw, int level) {
  const EncodedChunk as_it_is{Coding::kRaw, raw};
  const size_t most = raw.size() - raw.size() / kMinSaving;
  if (level == 0 || raw.size() < kMinSaving || !LooksCompressible(raw)) return as_it_is;
  Contexts& contexts = ThreadContexts();
  if (contexts.compress == nullptr) contexts.compress = ZSTD_createCCtx();
  if (contexts.buffer_size < most) {
    contexts.buffer = std::make_unique_for_overwrite<std::byte[]>(most);
    contexts.buffer_size = most;
  }
  if (contexts.compress == nullptr) return as_it_is;
  size_t size =
      ZSTD_compressCCtx(contexts.compress, contexts.buffer.get(), most, raw.data(), raw.size(), level);
  if (ZSTD_isError(size)) return as_it_is;  // does not fit: saves too little
  return {Coding::kZstd, {contexts.buffer.get(), size}};
}

Status DecodeChunk(Coding coding, std::span<const std::byte> stored, std::span<std::byte> out) {
  if (coding == Coding::kRaw) {
    if (stored.size() != out.size()) return Status(StatusCode::kCorrupt, "a chunk of another size");
    std::copy(stored.begin(), stored.end(), out.begin());
    return Status();
  }
  if (coding != Coding::kZstd) return Status(StatusCode::kCorrupt, "an unknown coding");
  Contexts& contexts = ThreadContexts();
  if (contexts.decompress == nullptr) contexts.decompress = ZSTD_createDCtx();
  if (contexts.decompress == nullptr)
    return Status(StatusCode::kResourceExhausted, "no memory to decompress");
  // Into the caller's memory at once: zstd then keeps no window of its own.
  size_t size =
      ZSTD_decompressDCtx(contexts.decompress, out.data(), out.size(), stored.data(), stored.size());
  if (ZSTD_isError(size)) return Errorf(StatusCode::kCorrupt, "zstd: %s", ZSTD_getErrorName(size));
  if (size != out.size()) return Status(StatusCode::kCorrupt, "zstd: fewer bytes than said");
  return Status();
}

}  // namespace stasis

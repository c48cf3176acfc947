// Packs and their indexes, and the records in them, as they come from a disk. The first byte says which.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "dedup/keys.h"
#include "dedup/pack.h"

namespace {

constexpr uint64_t kId = 0x1234;
using Bytes = std::vector<std::byte>;

class Memory : public stasis::StoreFile {
 public:
  explicit Memory(const Bytes& bytes) : bytes_(bytes) {}
  stasis::Status WriteAt(std::span<const std::byte>, uint64_t) override { __builtin_trap(); }
  stasis::Status ReadAt(std::span<std::byte> out, uint64_t offset) const override {
    // Nothing outside of the file is ever asked for by who knows its size.
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset)
      return stasis::Status(stasis::StatusCode::kCorrupt, "the file ends too early");
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return stasis::Status();
  }
  stasis::Status Sync() override { return stasis::Status(); }
  stasis::Result<uint64_t> Size() const override { return uint64_t{bytes_.size()}; }

 private:
  const Bytes& bytes_;
};

void TryPack(const Bytes& bytes) {
  Memory file(bytes);
  uint64_t end = 0;
  stasis::PackWalk walk;
  walk.damaged = [](uint64_t, std::string_view) {};
  walk.chunk = [&](const stasis::RecordHeader& header, const stasis::PackEntry& entry,
                   std::span<const std::byte> raw) {
    if (!raw.empty() && (raw.size() != header.raw_size || stasis::HashBytes(raw) != header.hash))
      __builtin_trap();
    if (entry.offset < end || entry.end() > bytes.size()) __builtin_trap();
    end = entry.end();
  };
  stasis::Result<std::vector<stasis::PackEntry>> entries = stasis::WalkPack(file, kId, walk);
  if (!entries.ok()) __builtin_trap();
  (void)stasis::CheckPackEnds(file, "fuzz", kId, entries->size());
  (void)stasis::ReadPackKey(file, kId);
}

// A pack of records that have good sums, as who means harm makes them.
void TryRecords(std::span<const std::byte> input) {
  const bool key = !input.empty() && (static_cast<unsigned>(input[0]) & 1) != 0;
  const uint32_t key_bytes = key ? 144 : 0;
  Bytes pack(stasis::kPackHeaderBytes + key_bytes);
  stasis::EncodePackHeader(kId, key_bytes, std::span(pack).first<stasis::kPackHeaderBytes>());
  uint64_t records = 0;
  while (input.size() > 24) {
    stasis::RecordHeader header;
    header.coding = static_cast<stasis::Coding>(static_cast<unsigned>(input[0]) % 6);
    std::memcpy(&header.raw_size, input.data() + 1, 4);
    header.raw_size %= 1 << 17;
    header.stored_size = static_cast<unsigned>(input[5]);
    std::memcpy(&header.hash, input.data() + 6, 16);
    input = input.subspan(24);
    header.stored_size = static_cast<uint32_t>(std::min<size_t>(header.stored_size, input.size()));
    if (header.coding == stasis::Coding::kRaw) header.raw_size = header.stored_size;
    std::span<const std::byte> stored = input.first(header.stored_size);
    if (header.coding != stasis::Coding::kRaw) header.stored_sum = stasis::StoredSum(stored);
    const size_t at = pack.size();
    pack.resize(at + stasis::kRecordHeaderBytes);
    stasis::EncodeRecordHeader(header, std::span<std::byte, stasis::kRecordHeaderBytes>(
                                           pack.data() + at, stasis::kRecordHeaderBytes));
    pack.insert(pack.end(), stored.begin(), stored.end());
    input = input.subspan(header.stored_size);
    ++records;
  }
  const size_t at = pack.size();
  pack.resize(at + stasis::kPackFooterBytes);
  stasis::EncodePackFooter(
      kId, records, pack.size(),
      std::span<std::byte, stasis::kPackFooterBytes>(pack.data() + at, stasis::kPackFooterBytes));
  TryPack(pack);
}

void TryIndex(std::span<const std::byte> input, bool seal) {
  Bytes bytes(input.begin(), input.end());
  stasis::Hash128 sum;
  if (seal && bytes.size() >= sizeof sum) {
    sum = stasis::HashBytes(std::span(bytes).first(bytes.size() - sizeof sum));
    std::memcpy(bytes.data() + bytes.size() - sizeof sum, &sum, sizeof sum);
  }
  uint64_t size = 0;
  stasis::Result<std::vector<stasis::PackEntry>> entries = stasis::DecodeIndex(bytes, kId, &size);
  if (!entries.ok()) return;
  for (const stasis::PackEntry& entry : *entries) {
    if (entry.end() > size || entry.raw_size > stasis::kMaxChunkBytes) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::span<const std::byte> input = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 5) {
    case 0:
      TryPack(Bytes(input.begin(), input.end()));
      break;
    case 1:
      TryRecords(input);
      break;
    case 2:
      TryIndex(input, true);
      break;
    case 3:
      TryIndex(input, false);
      break;
    default:
      (void)stasis::ParsePublicKey({reinterpret_cast<const char*>(input.data()), input.size()});
  }
  return 0;
}

// The bytes of packs and their indexes. Fixed-width fields, little endian, no padding, every byte under a
// sum.
//
//   ID.pack  header | record header, bytes | ... | footer
//            version 2, of encrypted chunks: the key that they are encrypted with follows the header
//            (crypt.h)
//   ID.idx   header | entries in the order of the pack | XXH3-128 of all that
//
// The footer makes a pack that was cut between two records as visible as one cut inside. Bytes kept as they
// are are covered by the chunk's hash; compressed ones have a sum of their own as well, since not every bit
// of a zstd frame matters for what comes out.
//
// Encoding and decoding: no state, thread-safe. Input is untrusted.
#ifndef DEDUP_PACK_H_
#define DEDUP_PACK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/codec.h"
#include "dedup/file_system.h"
#include "dedup/hash.h"
#include "dedup/store.h"

namespace stasis {

inline constexpr uint32_t kPackVersion = 1;
inline constexpr uint32_t kSealedPackVersion = 2;
inline constexpr size_t kPackHeaderBytes = 32;
inline constexpr size_t kRecordHeaderBytes = 48;
inline constexpr size_t kPackFooterBytes = 40;

// Ids of packs, and the numbers of their locks. The first few numbers are no ids.
inline constexpr uint64_t kCollectorLock = 0;
inline constexpr uint64_t kCreatorLock = 1;  // of who makes a new store
inline constexpr uint64_t kFirstPackId = 16;
uint64_t RandomPackId();
std::string PackIdText(uint64_t id);  // 16 hexadecimal digits
std::optional<uint64_t> ParsePackId(std::string_view text);
// The id in "ID" + `suffix`; none when `name` is something else.
std::optional<uint64_t> PackIdOfName(std::string_view name, std::string_view suffix);

// kCorrupt: "FILE at offset N: WHAT".
Status CorruptAt(const std::string& file, uint64_t offset, std::string_view what);
// The parts of such a message; all of it, at offset 0 of `file`, when it is none.
Damage DamageOf(const std::string& file, const Status& status);

struct RecordHeader {
  Coding coding = Coding::kRaw;
  uint32_t raw_size = 0;
  uint32_t stored_size = 0;
  Hash128 hash;             // of an encrypted chunk: its name
  uint64_t stored_sum = 0;  // of the bytes as they are stored; 0 for those of kRaw
};

// What an index says of one record. `offset` is that of the record's header.
struct PackEntry {
  Hash128 hash;
  uint64_t offset = 0;
  uint32_t raw_size = 0;
  uint32_t stored_size = 0;
  bool operator==(const PackEntry&) const = default;
  uint64_t end() const { return offset + kRecordHeaderBytes + stored_size; }
};

// `key_bytes`: what follows of a key; 0: nothing in the pack is encrypted.
void EncodePackHeader(uint64_t id, uint32_t key_bytes, std::span<std::byte, kPackHeaderBytes> out);
Result<uint32_t> DecodePackHeader(std::span<const std::byte, kPackHeaderBytes> bytes, uint64_t id);
// What follows the header of a key; empty when nothing is encrypted.
Result<std::vector<std::byte>> ReadPackKey(const StoreFile& file, uint64_t id);

RecordHeader MakeRecordHeader(const Hash128& hash, size_t raw_size, const EncodedChunk& chunk);
void EncodeRecordHeader(const RecordHeader& header, std::span<std::byte, kRecordHeaderBytes> out);
Result<RecordHeader> DecodeRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes);
uint64_t StoredSum(std::span<const std::byte> stored);
// Size and sum of the bytes behind a header. All that can be said of an encrypted chunk without its key.
Status CheckStored(const RecordHeader& header, std::span<const std::byte> stored);
// The bytes behind a header, checked against it, into `out`, which is as long as the chunk. kCorrupt: also
// when they are encrypted.
Status DecodeRecord(const RecordHeader& header, std::span<const std::byte> stored, std::span<std::byte> out);

// `size` is that of the whole file.
void EncodePackFooter(uint64_t id, uint64_t records, uint64_t size,
                      std::span<std::byte, kPackFooterBytes> out);
bool IsPackFooter(std::span<const std::byte> bytes);  // begins like one
Status DecodePackFooter(std::span<const std::byte, kPackFooterBytes> bytes, uint64_t id, uint64_t records,
                        uint64_t size);

std::vector<std::byte> EncodeIndex(uint64_t id, uint64_t pack_size, std::span<const PackEntry> entries);
Result<std::vector<PackEntry>> DecodeIndex(std::span<const std::byte> bytes, uint64_t id,
                                           uint64_t* pack_size);

// The header and footer of a whole pack that should hold so many records. kCorrupt names `label` and the
// offset.
Status CheckPackEnds(const StoreFile& file, const std::string& label, uint64_t id, uint64_t records);

// A walk over a pack from its first byte to its last. The first damage of the layout ends it (what follows a
// header that cannot be read is not known); damage of a record's bytes does not. `damaged` gets the offset.
struct PackWalk {
  // Null: bytes behind headers are not read. `raw` is empty where the chunk is encrypted and `open` null.
  std::function<void(const RecordHeader& header, const PackEntry& entry, std::span<const std::byte> raw)>
      chunk;
  // Of an encrypted chunk; may be null.
  std::function<Status(const RecordHeader& header, std::span<const std::byte> stored,
                       std::span<std::byte> out)>
      open;
  std::function<void(uint64_t offset, std::string_view what)> damaged;
  // Bytes done since the last call; may be null.
  std::function<void(uint64_t)> progress;
};
// What was found, in order. An error is of reading the file, not of what is in it.
Result<std::vector<PackEntry>> WalkPack(const StoreFile& file, uint64_t id, const PackWalk& walk);

}  // namespace stasis

#endif  // DEDUP_PACK_H_

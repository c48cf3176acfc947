#include "dedup/chunk_copy.h"

#include <algorithm>

#include "dedup/crypt.h"

namespace stasis {
namespace {

struct Record {
  RecordHeader header;
  std::span<const std::byte> stored;
};

Result<Record> Split(const ChunkPlace& place, std::span<const std::byte> record) {
  const std::string file = StoreCore::PackLabel(place.pack);
  Result<RecordHeader> header = DecodeRecordHeader(record.first<kRecordHeaderBytes>());
  if (!header.ok()) return CorruptAt(file, place.entry.offset, header.status().message());
  if (header->hash != place.entry.hash || header->stored_size != place.entry.stored_size ||
      header->raw_size != place.entry.raw_size) {
    return CorruptAt(file, place.entry.offset, "the chunk is not the one that was looked for");
  }
  return Record{*header, record.subspan(kRecordHeaderBytes)};
}

Status At(const ChunkPlace& place, Status status) {
  if (status.code() != StatusCode::kCorrupt) return status;
  return CorruptAt(StoreCore::PackLabel(place.pack), place.entry.offset + kRecordHeaderBytes,
                   status.message());
}

// As a record that is not encrypted, under its own hash again.
Result<SealedChunk> Unseal(const ChunkPlace& place, const Record& record, const Hash128& hash,
                           const KeySource& key) {
  ASSIGN_OR_RETURN(std::shared_ptr<const DataKey> of_pack, key());
  if (!of_pack)
    return At(place, Status(StatusCode::kCorrupt, "an encrypted chunk in a pack that has no key"));
  Result<SealedChunk> chunk = UnsealChunk(*of_pack, record.header, record.stored);
  if (!chunk.ok()) return At(place, chunk.status());
  chunk->header.hash = hash;
  return chunk;
}

Result<std::vector<std::byte>> ReadBytes(const StoreFile& pack, const ChunkPlace& place) {
  std::vector<std::byte> record(place.entry.end() - place.entry.offset);
  Status status = pack.ReadAt(record, place.entry.offset);
  if (status.code() == StatusCode::kCorrupt) {
    return CorruptAt(StoreCore::PackLabel(place.pack), place.entry.offset,
                     "the pack ends before the chunk does");
  }
  RETURN_IF_ERROR(status);
  return record;
}

}  // namespace

Status CheckRecord(const ChunkPlace& place, const Hash128& hash, std::span<const std::byte> record,
                   const KeySource& key, std::span<std::byte> out) {
  ASSIGN_OR_RETURN(Record split, Split(place, record));
  if (IsSealed(split.header.coding)) {
    ASSIGN_OR_RETURN(SealedChunk chunk, Unseal(place, split, hash, key));
    return At(place, DecodeRecord(chunk.header, chunk.stored, out));
  }
  // Under the name of an encrypted chunk there is nothing else.
  if (split.header.hash != hash) {
    return CorruptAt(StoreCore::PackLabel(place.pack), place.entry.offset,
                     "the chunk is not the one that was looked for");
  }
  return At(place, DecodeRecord(split.header, split.stored, out));
}

Status ReadChunk(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash, const KeySource& key,
                 std::span<std::byte> out) {
  ASSIGN_OR_RETURN(std::vector<std::byte> record, ReadBytes(pack, place));
  return CheckRecord(place, hash, record, key, out);
}

Result<std::vector<std::byte>> ReadRecord(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash,
                                          const KeySource& key, std::span<std::byte> out) {
  ASSIGN_OR_RETURN(std::vector<std::byte> record, ReadBytes(pack, place));
  RETURN_IF_ERROR(CheckRecord(place, hash, record, key, out));
  ASSIGN_OR_RETURN(Record split, Split(place, record));
  if (!IsSealed(split.header.coding)) return record;
  ASSIGN_OR_RETURN(SealedChunk chunk, Unseal(place, split, hash, key));
  std::vector<std::byte> plain(kRecordHeaderBytes + chunk.stored.size());
  EncodeRecordHeader(chunk.header, std::span(plain).first<kRecordHeaderBytes>());
  std::copy(chunk.stored.begin(), chunk.stored.end(), plain.begin() + kRecordHeaderBytes);
  return plain;
}

Result<std::vector<std::byte>> ReadStored(const StoreFile& pack, const ChunkPlace& place) {
  ASSIGN_OR_RETURN(std::vector<std::byte> record, ReadBytes(pack, place));
  ASSIGN_OR_RETURN(Record split, Split(place, record));
  if (IsSealed(split.header.coding)) {
    RETURN_IF_ERROR(At(place, CheckStored(split.header, split.stored)));
    return record;
  }
  std::vector<std::byte> raw(split.header.raw_size);
  RETURN_IF_ERROR(At(place, DecodeRecord(split.header, split.stored, raw)));
  return record;
}

}  // namespace stasis

#include "dedup/chunk_copy.h"

namespace stasis {

Status CheckRecord(const ChunkPlace& place, const Hash128& hash, std::span<const std::byte> record,
                   std::span<std::byte> out) {
  const std::string file = StoreCore::PackLabel(place.pack);
  Result<RecordHeader> header = DecodeRecordHeader(record.first<kRecordHeaderBytes>());
  if (!header.ok()) return CorruptAt(file, place.entry.offset, header.status().message());
  if (header->hash != hash || header->stored_size != place.entry.stored_size ||
      header->raw_size != out.size()) {
    return CorruptAt(file, place.entry.offset, "the chunk is not the one that was looked for");
  }
  Status status = DecodeRecord(*header, record.subspan(kRecordHeaderBytes), out);
  if (status.code() != StatusCode::kCorrupt) return status;
  return CorruptAt(file, place.entry.offset + kRecordHeaderBytes, status.message());
}

Result<std::vector<std::byte>> ReadRecord(const StoreFile& pack, const ChunkPlace& place, const Hash128& hash,
                                          std::span<std::byte> out) {
  std::vector<std::byte> record(place.entry.end() - place.entry.offset);
  Status status = pack.ReadAt(record, place.entry.offset);
  if (status.code() == StatusCode::kCorrupt) {
    return CorruptAt(StoreCore::PackLabel(place.pack), place.entry.offset,
                     "the pack ends before the chunk does");
  }
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(CheckRecord(place, hash, record, out));
  return record;
}

}  // namespace stasis

#include "dedup/pack.h"

#include <sys/random.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "dedup/crypt.h"
#include "dedup/store.h"

namespace stasis {
namespace {

static_assert(std::endian::native == std::endian::little, "what is on disk is little endian");

constexpr uint64_t kPackMagic = 0x4b43415053415453;   // "STASPACK"
constexpr uint64_t kIndexMagic = 0x5844495053415453;  // "STASPIDX"
constexpr uint32_t kRecordMagic = 0x4b484353;         // "SCHK"
constexpr uint32_t kFooterMagic = 0x444e4553;         // "SEND"

struct DiskPackHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t key_bytes;
  uint64_t id;
  uint64_t sum;
};
static_assert(sizeof(DiskPackHeader) == kPackHeaderBytes);

struct DiskRecordHeader {
  uint32_t magic;
  uint32_t coding;
  uint32_t raw_size;
  uint32_t stored_size;
  Hash128 hash;
  uint64_t stored_sum;
  uint64_t sum;
};
static_assert(sizeof(DiskRecordHeader) == kRecordHeaderBytes);

struct DiskPackFooter {
  uint32_t magic;
  uint32_t version;
  uint64_t id;
  uint64_t records;
  uint64_t size;
  uint64_t sum;
};
static_assert(sizeof(DiskPackFooter) == kPackFooterBytes);

struct DiskIndexHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t zero;
  uint64_t id;
  uint64_t pack_size;
  uint64_t entries;
};
static_assert(sizeof(DiskIndexHeader) == 40);
static_assert(sizeof(PackEntry) == 32);

uint64_t Sum(const void* bytes, size_t size) { return XXH3_64bits(bytes, size); }

template <typename T>
uint64_t SumOf(const T& disk) {
  return Sum(&disk, offsetof(T, sum));
}

template <typename T>
T Load(std::span<const std::byte, sizeof(T)> bytes) {
  T disk;
  std::memcpy(&disk, bytes.data(), sizeof disk);
  return disk;
}

Status Corrupt(const char* what) { return Status(StatusCode::kCorrupt, what); }

bool SizesFit(const RecordHeader& header) {
  const uint64_t raw = header.raw_size, stored = header.stored_size;
  switch (header.coding) {
    case Coding::kRaw:
      return stored == raw && header.stored_sum == 0;
    case Coding::kZstd:
      return stored <= raw;
    case Coding::kSealedRaw:
      return stored == raw + kSealBytes;
    case Coding::kSealedZstd:
      return stored > kSealBytes && stored <= raw + kSealBytes;
  }
  return false;
}

}  // namespace

uint64_t RandomPackId() {
  uint64_t id = 0;
  while (id < kFirstPackId) {
    ssize_t got = getrandom(&id, sizeof id, 0);
    STASIS_CHECK(got == sizeof id || (got < 0 && errno == EINTR));
    id = got == sizeof id ? id & ((uint64_t{1} << 62) - 1) : 0;
  }
  return id;
}

std::string PackIdText(uint64_t id) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
  return text;
}

std::optional<uint64_t> ParsePackId(std::string_view text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return {};
  uint64_t id = 0;
  std::from_chars(text.data(), text.data() + text.size(), id, 16);
  if (id < kFirstPackId || id >> 62 != 0) return {};
  return id;
}

std::optional<uint64_t> PackIdOfName(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return {};
  return ParsePackId(name.substr(0, name.size() - suffix.size()));
}

Status CorruptAt(const std::string& file, uint64_t offset, std::string_view what) {
  return Status(StatusCode::kCorrupt,
                file + " at offset " + std::to_string(offset) + ": " + std::string(what));
}

Damage DamageOf(const std::string& file, const Status& status) {
  constexpr std::string_view kMark = " at offset ";
  std::string_view message = status.message();
  Damage damage{file, 0, std::string(message)};
  size_t mark = message.find(kMark);
  if (mark == std::string_view::npos) return damage;
  std::string_view rest = message.substr(mark + kMark.size());
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), damage.offset);
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  if (error == std::errc() && rest.starts_with(": ")) damage.what = rest.substr(2);
  return damage;
}

void EncodePackHeader(uint64_t id, uint32_t key_bytes, std::span<std::byte, kPackHeaderBytes> out) {
  DiskPackHeader disk{kPackMagic, key_bytes == 0 ? kPackVersion : kSealedPackVersion, key_bytes, id, 0};
  disk.sum = SumOf(disk);
  std::memcpy(out.data(), &disk, sizeof disk);
}

Result<uint32_t> DecodePackHeader(std::span<const std::byte, kPackHeaderBytes> bytes, uint64_t id) {
  auto disk = Load<DiskPackHeader>(bytes);
  if (disk.magic != kPackMagic || disk.sum != SumOf(disk))
    return Corrupt("the header of the pack is damaged");
  if (disk.version != kPackVersion && disk.version != kSealedPackVersion)
    return Corrupt("a pack of an unknown version");
  if (disk.id != id) return Corrupt("a pack with another id");
  if ((disk.version == kSealedPackVersion) != (disk.key_bytes != 0) || disk.key_bytes > kMaxKeyBlock)
    return Corrupt("the header of the pack makes no sense");
  return disk.key_bytes;
}

Result<std::vector<std::byte>> ReadPackKey(const StoreFile& file, uint64_t id) {
  std::array<std::byte, kPackHeaderBytes> header;
  RETURN_IF_ERROR(file.ReadAt(header, 0));
  ASSIGN_OR_RETURN(uint32_t size, DecodePackHeader(header, id));
  std::vector<std::byte> key(size);
  if (size > 0) RETURN_IF_ERROR(file.ReadAt(key, kPackHeaderBytes));
  return key;
}

RecordHeader MakeRecordHeader(const Hash128& hash, size_t raw_size, const EncodedChunk& chunk) {
  RecordHeader header;
  header.coding = chunk.coding;
  header.raw_size = static_cast<uint32_t>(raw_size);
  header.stored_size = static_cast<uint32_t>(chunk.bytes.size());
  header.hash = hash;
  if (chunk.coding != Coding::kRaw) header.stored_sum = StoredSum(chunk.bytes);
  return header;
}

void EncodeRecordHeader(const RecordHeader& header, std::span<std::byte, kRecordHeaderBytes> out) {
  DiskRecordHeader disk{kRecordMagic,
                        static_cast<uint32_t>(header.coding),
                        header.raw_size,
                        header.stored_size,
                        header.hash,
                        header.stored_sum,
                        0};
  disk.sum = SumOf(disk);
  std::memcpy(out.data(), &disk, sizeof disk);
}

Result<RecordHeader> DecodeRecordHeader(std::span<const std::byte, kRecordHeaderBytes> bytes) {
  auto disk = Load<DiskRecordHeader>(bytes);
  if (disk.magic != kRecordMagic || disk.sum != SumOf(disk))
    return Corrupt("the header of a chunk is damaged");
  RecordHeader header{static_cast<Coding>(disk.coding), disk.raw_size, disk.stored_size, disk.hash,
                      disk.stored_sum};
  if (!SizesFit(header) || header.raw_size == 0 || header.raw_size > kMaxChunkBytes)
    return Corrupt("the header of a chunk makes no sense");
  return header;
}

uint64_t StoredSum(std::span<const std::byte> stored) { return Sum(stored.data(), stored.size()); }

Status CheckStored(const RecordHeader& header, std::span<const std::byte> stored) {
  if (stored.size() != header.stored_size) return Corrupt("a chunk of another size");
  if (header.coding != Coding::kRaw && StoredSum(stored) != header.stored_sum)
    return Corrupt("the bytes of a chunk are damaged");
  return Status();
}

Status DecodeRecord(const RecordHeader& header, std::span<const std::byte> stored, std::span<std::byte> out) {
  if (out.size() != header.raw_size) return Corrupt("a chunk of another size");
  RETURN_IF_ERROR(CheckStored(header, stored));
  RETURN_IF_ERROR(DecodeChunk(header.coding, stored, out));
  if (HashBytes(out) != header.hash) return Corrupt("the bytes of a chunk are damaged");
  return Status();
}

void EncodePackFooter(uint64_t id, uint64_t records, uint64_t size,
                      std::span<std::byte, kPackFooterBytes> out) {
  DiskPackFooter disk{kFooterMagic, kPackVersion, id, records, size, 0};
  disk.sum = SumOf(disk);
  std::memcpy(out.data(), &disk, sizeof disk);
}

bool IsPackFooter(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kFooterMagic &&
         std::memcmp(bytes.data(), &kFooterMagic, sizeof kFooterMagic) == 0;
}

Status DecodePackFooter(std::span<const std::byte, kPackFooterBytes> bytes, uint64_t id, uint64_t records,
                        uint64_t size) {
  auto disk = Load<DiskPackFooter>(bytes);
  if (disk.magic != kFooterMagic || disk.sum != SumOf(disk)) return Corrupt("the end of the pack is damaged");
  if (disk.version != kPackVersion || disk.id != id || disk.records != records || disk.size != size) {
    return Corrupt("the end of the pack does not fit the rest");
  }
  return Status();
}

std::vector<std::byte> EncodeIndex(uint64_t id, uint64_t pack_size, std::span<const PackEntry> entries) {
  const size_t head = sizeof(DiskIndexHeader), body = entries.size_bytes();
  std::vector<std::byte> bytes(head + body + sizeof(Hash128));
  DiskIndexHeader disk{kIndexMagic, kPackVersion, 0, id, pack_size, entries.size()};
  std::memcpy(bytes.data(), &disk, head);
  if (body != 0) std::memcpy(bytes.data() + head, entries.data(), body);
  Hash128 sum = HashBytes(std::span(bytes).first(head + body));
  std::memcpy(bytes.data() + head + body, &sum, sizeof sum);
  return bytes;
}

Result<std::vector<PackEntry>> DecodeIndex(std::span<const std::byte> bytes, uint64_t id,
                                           uint64_t* pack_size) {
  constexpr size_t kLeast = sizeof(DiskIndexHeader) + sizeof(Hash128);
  if (bytes.size() < kLeast || (bytes.size() - kLeast) % sizeof(PackEntry) != 0) {
    return Corrupt("an index of an impossible size");
  }
  Hash128 sum;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (HashBytes(bytes.first(bytes.size() - sizeof sum)) != sum) return Corrupt("the index is damaged");
  auto disk = Load<DiskIndexHeader>(bytes.first<sizeof(DiskIndexHeader)>());
  const size_t count = (bytes.size() - kLeast) / sizeof(PackEntry);
  if (disk.magic != kIndexMagic || disk.version != kPackVersion || disk.zero != 0 || disk.id != id ||
      disk.entries != count) {
    return Corrupt("an index of something else");
  }
  std::vector<PackEntry> entries(count);
  if (count != 0) std::memcpy(entries.data(), bytes.data() + sizeof disk, count * sizeof(PackEntry));
  for (const PackEntry& entry : entries) {
    if (entry.raw_size == 0 || entry.raw_size > kMaxChunkBytes ||
        entry.stored_size > entry.raw_size + kSealBytes || entry.offset > disk.pack_size ||
        entry.end() > disk.pack_size) {
      return Corrupt("an index that makes no sense");
    }
  }
  *pack_size = disk.pack_size;
  return entries;
}

namespace {

// Reads a pack forwards, in large pieces when every byte is wanted.
class Walker {
 public:
  Walker(const StoreFile& file, uint64_t id, uint64_t size, const PackWalk& walk)
      : file_(file), id_(id), size_(size), walk_(walk), piece_(walk.chunk ? 4 << 20 : kRecordHeaderBytes) {}

  Result<std::vector<PackEntry>> Run() {
    if (size_ < kPackHeaderBytes) return Damaged(0, "the pack ends inside its header");
    ASSIGN_OR_RETURN(std::span<const std::byte> head, Bytes(0, kPackHeaderBytes));
    Result<uint32_t> key = DecodePackHeader(head.first<kPackHeaderBytes>(), id_);
    if (!key.ok()) return Damaged(0, key.status().message());
    if (size_ - kPackHeaderBytes < *key) return Damaged(kPackHeaderBytes, "the pack ends inside its key");
    if (*key > 0) {
      ASSIGN_OR_RETURN(std::span<const std::byte> block, Bytes(kPackHeaderBytes, *key));
      Status status = RecipientsOf(block).status();
      if (!status.ok()) return Damaged(kPackHeaderBytes, status.message());
      if (walk_.progress) walk_.progress(*key);
    }
    for (uint64_t at = kPackHeaderBytes + *key;;) {
      if (size_ - at < kPackFooterBytes) return Damaged(at, "the pack ends too early");
      ASSIGN_OR_RETURN(std::span<const std::byte> magic, Bytes(at, kPackFooterBytes));
      if (IsPackFooter(magic)) return Footer(at, magic.first<kPackFooterBytes>());
      if (size_ - at < kRecordHeaderBytes) return Damaged(at, "the pack ends too early");
      ASSIGN_OR_RETURN(bool goes_on, Record(&at));
      if (!goes_on) return std::move(entries_);
    }
  }

 private:
  std::vector<PackEntry> Damaged(uint64_t offset, std::string_view what) {
    walk_.damaged(offset, what);
    return std::move(entries_);
  }

  std::vector<PackEntry> Footer(uint64_t at, std::span<const std::byte, kPackFooterBytes> bytes) {
    Status status = DecodePackFooter(bytes, id_, entries_.size(), at + kPackFooterBytes);
    if (!status.ok()) return Damaged(at, status.message());
    if (at + kPackFooterBytes != size_)
      return Damaged(at + kPackFooterBytes, "bytes behind the end of the pack");
    if (walk_.progress) walk_.progress(kPackFooterBytes);
    return std::move(entries_);
  }

  Result<bool> Record(uint64_t* at) {
    ASSIGN_OR_RETURN(std::span<const std::byte> head, Bytes(*at, kRecordHeaderBytes));
    Result<RecordHeader> header = DecodeRecordHeader(head.first<kRecordHeaderBytes>());
    if (!header.ok()) {
      walk_.damaged(*at, header.status().message());
      return false;
    }
    PackEntry entry{header->hash, *at, header->raw_size, header->stored_size};
    if (entry.end() > size_) {
      walk_.damaged(*at, "the pack ends inside a chunk");
      return false;
    }
    if (walk_.chunk) RETURN_IF_ERROR(Chunk(*header, entry));
    if (walk_.progress) walk_.progress(entry.end() - *at);
    entries_.push_back(entry);
    *at = entry.end();
    return true;
  }

  Status Chunk(const RecordHeader& header, const PackEntry& entry) {
    ASSIGN_OR_RETURN(std::span<const std::byte> stored,
                     Bytes(entry.offset + kRecordHeaderBytes, header.stored_size));
    const bool opaque = IsSealed(header.coding) && !walk_.open;
    raw_.resize(opaque ? 0 : header.raw_size);
    Status status = opaque                    ? CheckStored(header, stored)
                    : IsSealed(header.coding) ? walk_.open(header, stored, raw_)
                                              : DecodeRecord(header, stored, raw_);
    if (status.ok()) {
      walk_.chunk(header, entry, raw_);
    } else if (status.code() == StatusCode::kCorrupt) {
      walk_.damaged(entry.offset + kRecordHeaderBytes, status.message());
    } else {
      return status;
    }
    return Status();
  }

  // Valid until the next call. The range is inside the file.
  Result<std::span<const std::byte>> Bytes(uint64_t offset, uint64_t size) {
    if (offset < buffer_at_ || offset + size > buffer_at_ + buffer_.size()) {
      buffer_.resize(std::min(size_ - offset, std::max(size, piece_)));
      buffer_at_ = offset;
      RETURN_IF_ERROR(file_.ReadAt(buffer_, offset));
    }
    return std::span<const std::byte>(buffer_).subspan(offset - buffer_at_, size);
  }

  const StoreFile& file_;
  const uint64_t id_;
  const uint64_t size_;
  const PackWalk& walk_;
  const uint64_t piece_;
  std::vector<std::byte> buffer_;
  uint64_t buffer_at_ = 0;
  std::vector<std::byte> raw_;
  std::vector<PackEntry> entries_;
};

}  // namespace

Result<std::vector<PackEntry>> WalkPack(const StoreFile& file, uint64_t id, const PackWalk& walk) {
  ASSIGN_OR_RETURN(uint64_t size, file.Size());
  return Walker(file, id, size, walk).Run();
}

Status CheckPackEnds(const StoreFile& file, const std::string& label, uint64_t id, uint64_t records) {
  ASSIGN_OR_RETURN(uint64_t size, file.Size());
  if (size < kPackHeaderBytes + kPackFooterBytes) return CorruptAt(label, size, "the pack ends too early");
  std::array<std::byte, kPackHeaderBytes> header;
  RETURN_IF_ERROR(file.ReadAt(header, 0));
  Result<uint32_t> key = DecodePackHeader(header, id);
  if (!key.ok()) return CorruptAt(label, 0, key.status().message());
  if (*key > 0) {
    if (*key > size - kPackHeaderBytes - kPackFooterBytes)
      return CorruptAt(label, size, "the pack ends inside its key");
    std::vector<std::byte> block(*key);
    RETURN_IF_ERROR(file.ReadAt(block, kPackHeaderBytes));
    Result<std::vector<PublicKey>> recipients = RecipientsOf(block);
    if (!recipients.ok()) return CorruptAt(label, kPackHeaderBytes, recipients.status().message());
  }
  std::array<std::byte, kPackFooterBytes> footer;
  RETURN_IF_ERROR(file.ReadAt(footer, size - kPackFooterBytes));
  Status status = DecodePackFooter(footer, id, records, size);
  return status.ok() ? status : CorruptAt(label, size - kPackFooterBytes, status.message());
}

}  // namespace stasis

// Encrypted manifests: image_manifest.h has their bytes.
#include <algorithm>
#include <bit>
#include <tuple>

#include "base/files.h"
#include "base/payload.h"
#include "dedup/crypt.h"
#include "dedup/image_manifest.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

constexpr uint64_t kMagic = 0x0a676d4973697453;  // "StisImg\n"
constexpr size_t kHashBytes = 16, kSumBytes = 16;
constexpr size_t kMaxName = 255;

// The parts of one, as they lie in `bytes`.
struct Sealed {
  uint32_t chunk_bytes = 0;
  std::string task, id;
  std::vector<Hash128> names;
  std::vector<std::byte> key;
  std::span<const std::byte> about;  // what the sealed bytes are bound to: all before them
  std::span<const std::byte> bytes;
};

bool Less(const Hash128& a, const Hash128& b) { return std::tie(a.high, a.low) < std::tie(b.high, b.low); }

void WriteHash(const Hash128& hash, PayloadWriter* out) {
  out->U64(hash.high);
  out->U64(hash.low);
}

// Of a manifest whose envelope is good.
Result<Sealed> ParseSealed(std::span<const std::byte> bytes, const std::string& file) {
  const std::span<const std::byte> covered = bytes.first(bytes.size() - kSumBytes);
  PayloadReader reader(covered);
  reader.U64();
  reader.U32();
  Sealed sealed;
  sealed.chunk_bytes = reader.U32();
  reader.U64();
  sealed.task = reader.String(kMaxName);
  sealed.id = reader.String(kMaxName);
  const uint32_t count = reader.Count(kHashBytes);
  sealed.names.reserve(count);
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const uint64_t high = reader.U64();
    sealed.names.push_back({high, reader.U64()});
  }
  sealed.key = reader.Bytes(kMaxKeyBlock);
  const uint64_t size = reader.U64();
  if (!reader.ok() || size != reader.remaining() || !IsPlainName(sealed.task) || !IsImageName(sealed.id) ||
      !std::is_sorted(sealed.names.begin(), sealed.names.end(), Less)) {
    return CorruptAt(file, 0, "an encrypted manifest that makes no sense");
  }
  sealed.about = covered.first(covered.size() - size);
  sealed.bytes = covered.last(size);
  return sealed;
}

Result<std::vector<Hash128>> NamesOf(const ImageManifest& manifest, const ChunkNames& names) {
  ASSIGN_OR_RETURN(std::vector<ChunkRef> chunks, DistinctChunks(manifest));
  std::vector<Hash128> list;
  list.reserve(chunks.size());
  for (const ChunkRef& chunk : chunks) list.push_back(names.Of(chunk.hash));
  std::sort(list.begin(), list.end(), Less);
  return list;
}

Result<std::vector<std::byte>> ReadBytes(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files.Open(path));
  ASSIGN_OR_RETURN(uint64_t size, file->Size());
  if (size > kMaxManifestBytes) return CorruptAt(path, kMaxManifestBytes, "too long for a manifest");
  std::vector<std::byte> bytes(size);
  RETURN_IF_ERROR(file->ReadAt(bytes, 0));
  return bytes;
}

Status WithFile(const Status& status, const std::string& file) {
  if (status.code() == StatusCode::kCorrupt) return CorruptAt(file, 0, status.message());
  return status.WithContext(file);
}

}  // namespace

Result<std::vector<std::byte>> SealImageManifest(const ImageManifest& manifest,
                                                 std::span<const std::byte> bytes,
                                                 const CryptSession& session) {
  ASSIGN_OR_RETURN(std::vector<Hash128> names, NamesOf(manifest, *session.names));
  PayloadWriter body;
  body.String(manifest.task);
  body.String(manifest.id);
  body.U32(static_cast<uint32_t>(names.size()));
  for (const Hash128& name : names) WriteHash(name, &body);
  body.Bytes(session.block);
  const uint64_t sealed = kKeyBytes + bytes.size() + kSealBytes;
  body.U64(sealed);
  const std::vector<std::byte> rest = body.Take();
  PayloadWriter head;
  head.U64(kMagic);
  head.U32(kSealedImageVersion);
  head.U32(static_cast<uint32_t>(manifest.chunk_bytes));
  constexpr size_t kHeadBytes = 24;
  const uint64_t size = kHeadBytes + rest.size() + sealed + kSumBytes;
  if (size > kMaxManifestBytes) return Status(StatusCode::kInvalidArgument, "the image has too many chunks");
  head.U64(size);
  std::vector<std::byte> out = head.Take();
  out.reserve(size);
  out.insert(out.end(), rest.begin(), rest.end());
  const size_t about = out.size();
  std::vector<std::byte> plain(kKeyBytes + bytes.size());
  std::copy_n(session.names->key().bytes().begin(), kKeyBytes, plain.begin());
  std::copy(bytes.begin(), bytes.end(), plain.begin() + kKeyBytes);
  out.resize(about + sealed);
  session.key->Seal(std::span(out).first(about), plain, std::span(out).subspan(about));
  PayloadWriter sum;
  WriteHash(HashBytes(out), &sum);
  const std::vector<std::byte> tail = sum.Take();
  out.insert(out.end(), tail.begin(), tail.end());
  return out;
}

Result<ImageManifest> OpenImageManifest(std::span<const std::byte> bytes, const std::string& file,
                                        Keyring& keyring, std::shared_ptr<const DataKey>* key_out) {
  ASSIGN_OR_RETURN(uint32_t version, CheckManifestEnvelope(bytes, file));
  if (version == kImageVersion) return ParseImageManifest(bytes, file);
  ASSIGN_OR_RETURN(Sealed sealed, ParseSealed(bytes, file));
  Result<std::shared_ptr<const DataKey>> key = keyring.Open(sealed.key);
  if (!key.ok()) return WithFile(key.status(), file);
  const Status other =
      CorruptAt(file, 0, "it is not the encrypted manifest that was written under this name");
  if (sealed.bytes.size() < kKeyBytes + kSealBytes) return other;
  std::vector<std::byte> plain(sealed.bytes.size() - kSealBytes);
  if (!(*key)->Open(sealed.about, sealed.bytes, plain)) return other;
  Secret names;
  std::copy_n(plain.begin(), kKeyBytes, names.bytes().begin());
  ASSIGN_OR_RETURN(ImageManifest manifest,
                   ParseImageManifest(std::span(plain).subspan(kKeyBytes), file + ", decrypted"));
  manifest.names = std::make_shared<const ChunkNames>(std::move(names));
  manifest.file_bytes = bytes.size();
  Result<std::vector<Hash128>> expected = NamesOf(manifest, *manifest.names);
  if (!expected.ok()) return WithFile(expected.status(), file);
  if (manifest.task != sealed.task || manifest.id != sealed.id || *expected != sealed.names ||
      manifest.chunk_bytes != sealed.chunk_bytes) {
    return other;
  }
  ASSIGN_OR_RETURN(manifest.recipients, RecipientsOf(sealed.key));
  keyring.Learn(manifest.names);
  if (key_out != nullptr) *key_out = *key;
  return manifest;
}

Result<StoredManifest> ParseStoredManifest(std::span<const std::byte> bytes, const std::string& file) {
  ASSIGN_OR_RETURN(uint32_t version, CheckManifestEnvelope(bytes, file));
  StoredManifest stored;
  stored.file_bytes = bytes.size();
  if (version == kImageVersion) {
    ASSIGN_OR_RETURN(stored.plain, ParseImageManifest(bytes, file));
    VisitChunks(stored.plain, [&](const ChunkRef& chunk) {
      if (chunk.hash != kZeroChunk) stored.names.push_back(chunk.hash);
    });
    return stored;
  }
  ASSIGN_OR_RETURN(Sealed sealed, ParseSealed(bytes, file));
  Result<std::vector<PublicKey>> recipients = RecipientsOf(sealed.key);
  if (!recipients.ok()) return WithFile(recipients.status(), file);
  stored.sealed = true;
  stored.recipients = *std::move(recipients);
  stored.names = std::move(sealed.names);
  return stored;
}

Result<ImageManifest> ReadImageManifest(FileSystem& files, const std::string& path, Keyring& keyring) {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadBytes(files, path));
  return OpenImageManifest(bytes, path, keyring);
}

Result<StoredManifest> ReadStoredManifest(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadBytes(files, path));
  return ParseStoredManifest(bytes, path);
}

}  // namespace stasis

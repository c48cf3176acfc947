// The file that names an image: what is in it, and the hash of every chunk. See docs/image-format.md.
//
//   magic             8 bytes
//   version           u32     these two, and the sum at the end, stay where they are in every version
//   chunk size        u32
//   size              u64     of the whole file
//   task, id          text; the id is six digits, or kHeldImage
//   streams           u32 number, then each: name (text), segments (u32 number; u64 address, u64 size each),
//                     chunks (u32 number; hash each). Names ascend.
//   folders           u32 number, then each: name (text), files (u32 number, each like a stream). Names
//   ascend. meta              text: a JSON object sum               XXH3-128 of everything before it
//
// Little-endian, nothing between the fields. A text is its length (u32) and its bytes; a hash is its high
// half (u64) and its low half (u64).
//
// An encrypted one has version 3: magic, version, chunk size, size, task and ID as above; the names of its
// chunks in packs (u32 number; each), the key (u32 length; bytes), then the sealed bytes (u64 length; bytes):
// the key of the names and the whole manifest as above. What stands before is what they are bound to.
//
// Thread-safe: values only. What is parsed is untrusted: memory stays within a small multiple of the input.
#ifndef DEDUP_IMAGE_MANIFEST_H_
#define DEDUP_IMAGE_MANIFEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/file_system.h"
#include "dedup/hash.h"
#include "dedup/image.h"
#include "dedup/json.h"
#include "dedup/keys.h"

namespace stasis {

// Of an encrypted one: in image_seal.cc.
inline constexpr uint32_t kSealedImageVersion = 3;
inline constexpr uint64_t kMaxManifestBytes = 4ull << 30;
inline constexpr size_t kMaxMetaBytes = 64 << 20;

// A stream, or a file of a folder. A chunk that is all zero has the hash kZeroChunk.
struct ManifestStream {
  std::string name;
  std::vector<Segment> segments;
  std::vector<Hash128> chunks;
};

struct ManifestFolder {
  std::string name;
  std::vector<ManifestStream> files;
};

class ChunkNames;  // crypt.h
class DataKey;     // crypt.h
class Keyring;     // crypt.h
struct CryptSession;

struct ImageManifest {
  std::string task;
  std::string id;
  uint64_t chunk_bytes = 0;
  std::vector<ManifestStream> streams;
  std::vector<ManifestFolder> folders;
  Json meta = Json::object();
  uint64_t file_bytes = 0;  // of what was parsed
  // Of one that was encrypted: the names of its chunks in packs, and who can read it. Null and empty else.
  std::shared_ptr<const ChunkNames> names;
  std::vector<PublicKey> recipients;
};

// What a manifest says to everybody, be it encrypted or not.
struct StoredManifest {
  bool sealed = false;
  ImageManifest plain;         // when it is not sealed
  std::vector<Hash128> names;  // that the chunks which are not zero have in packs
  std::vector<PublicKey> recipients;
  uint64_t file_bytes = 0;
};

// Of any version, the sum included: what is in between may be parsed. kUnsupported names both versions.
Result<uint32_t> CheckManifestEnvelope(std::span<const std::byte> bytes, const std::string& file);

// Six digits.
bool IsImageId(const std::string& text);
// An id, or kHeldImage.
bool IsImageName(const std::string& text);
// The next number. kResourceExhausted.
Result<std::string> ImageIdAfter(const std::string& id);
// ROOT/images/TASK/ID.image. kInvalidArgument: `task` is no plain name or `id` is no image's id.
Result<std::string> ManifestPath(const std::string& root, const std::string& task, const std::string& id);

// The manifest must be one that ParseImageManifest() accepts; kInvalidArgument says what is too large.
Result<std::vector<std::byte>> SerializeImageManifest(const ImageManifest& manifest);
// `file` is named in errors. kUnsupported names both versions; kCorrupt gives the offset in bytes;
// kPermissionDenied: it is encrypted.
Result<ImageManifest> ParseImageManifest(std::span<const std::byte> bytes, const std::string& file);
// `bytes` is the serialized manifest.
Result<std::vector<std::byte>> SealImageManifest(const ImageManifest& manifest,
                                                 std::span<const std::byte> bytes,
                                                 const CryptSession& session);
// One that may be encrypted. Errors also as of Keyring::Open(); kCorrupt: it is not the manifest that was
// written under its name, as a whole. The keyring learns the names of its chunks; `key` (may be null) gets
// what it is encrypted with.
Result<ImageManifest> OpenImageManifest(std::span<const std::byte> bytes, const std::string& file,
                                        Keyring& keyring, std::shared_ptr<const DataKey>* key = nullptr);
Result<StoredManifest> ParseStoredManifest(std::span<const std::byte> bytes, const std::string& file);
// kNotFound: there is no such file.
Result<ImageManifest> ReadImageManifest(FileSystem& files, const std::string& path, Keyring& keyring);
Result<StoredManifest> ReadStoredManifest(FileSystem& files, const std::string& path);

// Every chunk, in order: of the streams, then of the folders' files. Repetitions and zeros included.
void VisitChunks(const ImageManifest& manifest, const std::function<void(const ChunkRef&)>& visit);
// Every chunk that is not zero, once, in the order of first use. kCorrupt: two sizes for one hash.
Result<std::vector<ChunkRef>> DistinctChunks(const ImageManifest& manifest);
uint64_t TotalSize(std::span<const ChunkRef> chunks);
// Runs of chunks, each of at most `bytes` bytes or one chunk.
std::vector<std::span<const ChunkRef>> CutIntoBatches(std::span<const ChunkRef> chunks, uint64_t bytes);

}  // namespace stasis

#endif  // DEDUP_IMAGE_MANIFEST_H_

// The content-addressed store of one node: chunks of bytes by their hash, each kept once, in packs.
//
//   ROOT/format              what this folder is: name, version
//   ROOT/locks               see below
//   ROOT/packs/ID.pack       records: a header with hash, sizes, coding and its own sum, then the bytes
//   ROOT/packs/ID.idx        what ID.pack holds, with a sum; rebuilt from the pack when lost or damaged
//   ROOT/packs/ID.tmp        a pack that is being written
//   ROOT/packs/ID.bad        ID.pack was seen to be damaged: its chunks are stored again when they come again
//   ROOT/images/TASK/ID.image  manifests: see dedup/image.h
//
// Nothing in a pack or manifest is ever changed. A pack becomes visible by a rename once it is on stable
// storage, and a manifest once every pack it needs is visible: whatever is interrupted, a manifest that is
// there names no chunk that is not. References are counted by reading the manifests, so a count cannot be
// wrong.
//
// Several processes may write, read and collect at once. Who relies on a pack (a writer that found a chunk in
// it, a reader of an image) holds a shared lock on its id; the collector deletes a pack only under the
// exclusive lock, and reads the manifests again once it has it. ID is a random number below 2^62, written as
// 16 hexadecimal digits; of the numbers below 16, which are no ids, 0 is held by the collector and 1 by who
// makes the store.
#ifndef DEDUP_STORE_H_
#define DEDUP_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/file_system.h"
#include "dedup/hash.h"
#include "dedup/keys.h"

namespace stasis {

// Chunks are cut at multiples of this. Constant for a store: two sizes would never find each other's bytes.
inline constexpr uint64_t kDefaultChunkBytes = 64 << 10;
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;

struct StoreOptions {
  uint64_t chunk_bytes = kDefaultChunkBytes;  // for a store that is created: a power of two, 4 KiB to 1 MiB
  uint64_t pack_bytes = 256 << 20;            // a pack that has reached this is sealed
  int zstd_level = 1;                         // 0: nothing is compressed
  FileSystem* files = nullptr;                // null: RealFileSystem()
  // The folder of state, whose `encrypt-to` says to whom what is written is encrypted (keys.h); "": to
  // nobody.
  std::string keys;
  std::string identity;  // file of who reads what is encrypted; "": $STASIS_IDENTITY
};

// Bytes of chunks as a store counts them.
struct StoreCounts {
  uint64_t chunks = 0;
  uint64_t raw_bytes = 0;     // before compression
  uint64_t stored_bytes = 0;  // in packs, with headers
};

// One damaged place.
struct Damage {
  std::string file;     // relative to the root
  uint64_t offset = 0;  // in bytes
  std::string what;
};

struct VerifyReport {
  std::vector<Damage> damages;
  uint64_t images = 0, packs = 0, chunks = 0, bytes = 0;  // looked at
  // Of the chunks and images, those that are encrypted and were not opened: there is no identity for them.
  uint64_t sealed_chunks = 0, sealed_images = 0;
};

struct GcReport {
  uint64_t packs_removed = 0, packs_rewritten = 0, packs_in_use = 0;  // in use: left for the next time
  uint64_t leftovers_removed = 0;                                     // of interrupted writers
  uint64_t bytes_before = 0, bytes_after = 0;
  std::vector<Damage> damages;  // met on the way; packs that have one stay as they are
};

class StoreIndex;      // store_index.h: where each chunk is
class Keyring;         // crypt.h
class ChunkNames;      // crypt.h
struct ImageManifest;  // image_manifest.h
struct RecordHeader;   // pack.h: what stands before a chunk in a pack

// One opened store. Thread-safe. Sees the packs that were there when it was opened, those of its own writers,
// and what Refresh() finds.
class Store {
 public:
  // Creates what is missing. kUnsupported: made by a version that we do not know. A lost or damaged index is
  // rebuilt; notes() says so.
  static Result<std::shared_ptr<Store>> Open(const std::string& root, StoreOptions options = {});
  ~Store();

  const std::string& root() const;
  const StoreOptions& options() const;  // with the store's own chunk size
  FileSystem& files() const;
  Keyring& keyring() const;
  std::vector<std::string> notes() const;
  Status Refresh();

  // All that packs hold, live or not.
  StoreCounts counts() const;
  // What a chunk takes in packs (with its header); 0 when it is not there.
  uint64_t StoredBytes(const Hash128& hash) const;

  // Every byte of every manifest and pack. Damage is in the report; an error is about the looking itself.
  // `progress` is told bytes done and in all; may be null.
  Result<VerifyReport> Verify(const std::function<void(uint64_t, uint64_t)>& progress = nullptr);
  // Removes what no manifest names, and rewrites packs of which less than half is named. Safe beside writers
  // and readers. kFailedPrecondition: another collector runs, or a manifest is damaged (what it names is not
  // known), named with the remedy.
  Result<GcReport> CollectGarbage();

 private:
  friend class StoreWriter;
  friend class StoreReader;
  struct State;
  explicit Store(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// One writer's session. Thread-safe but for Begin and Finish. What it has put or found stays until the
// session is destroyed; by then a manifest must name it. Destroyed without Finish(), it takes back what it
// wrote; nobody else sees it before.
//
// Put() compresses in the caller's thread and hands over to one thread that writes; it blocks while more than
// a bounded number of bytes waits to be written. The first error of that thread is returned by every later
// call.
class StoreWriter {
 public:
  struct Options {
    // Where the store encrypts: with a key and names of its own. What it writes is read back through the same
    // Store without an identity, and found again by no other writer.
    bool unshared = false;
    // Where the store does not: whom it is encrypted to nevertheless.
    std::vector<PublicKey> recipients;
  };
  static Result<std::unique_ptr<StoreWriter>> Begin(std::shared_ptr<Store> store);
  static Result<std::unique_ptr<StoreWriter>> Begin(std::shared_ptr<Store> store, Options options);
  ~StoreWriter();

  // The store has it, and keeps it for this session.
  Result<bool> Has(const Hash128& hash);
  // `raw` is at most kMaxChunkBytes and hashes to `hash`. Stored unless Has().
  Status Put(const Hash128& hash, std::span<const std::byte> raw);
  // The same of a chunk as another store's pack has it; `stored` is what follows `header` there. Untrusted:
  // kCorrupt when it is not the chunk that the header names.
  Status PutRecord(const RecordHeader& header, std::span<const std::byte> stored);
  // The file that names an image, encrypted where the chunks are.
  Result<std::vector<std::byte>> SerializeManifest(const ImageManifest& manifest) const;
  // All that was put is on stable storage and visible. Nothing may be put afterwards.
  Status Finish();
  bool encrypted() const;
  // See HandOver() of crypt.h; "" where nothing is encrypted.
  std::string HandOver() const;
  // What this session has added.
  StoreCounts added() const;

 private:
  struct State;
  explicit StoreWriter(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

// One reader's session: keeps the packs that hold `hashes` until it is destroyed. Thread-safe.
class StoreReader {
 public:
  struct Piece {
    Hash128 hash;
    std::span<std::byte> out;  // as long as the chunk
  };
  // kCorrupt, naming the first chunk that no pack has.
  // `names`: of an encrypted image, which no other chunks belong to. Without, those that are known of the
  // store are looked through. kPermissionDenied: there is no identity for what is encrypted.
  static Result<std::unique_ptr<StoreReader>> Begin(std::shared_ptr<Store> store,
                                                    std::span<const Hash128> hashes,
                                                    std::shared_ptr<const ChunkNames> names = nullptr);
  ~StoreReader();
  // Fills and checks each. Neighbours in a pack are read at once. kCorrupt names file and offset; what is in
  // `out` then is undefined.
  Status Read(std::span<const Piece> pieces) const;
  // The chunk as a pack has it, header and bytes, checked, and not encrypted.
  Result<std::vector<std::byte>> ReadRecord(const Hash128& hash) const;

 private:
  struct State;
  explicit StoreReader(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace stasis

#endif  // DEDUP_STORE_H_

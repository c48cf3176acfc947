// How images are encrypted at rest, with libsodium: a key for the data of each writer's session, sealed to
// the recipients' public keys (X25519, crypto_box_seal), and XChaCha20-Poly1305 for what it encrypts. See
// docs/image-format.md for the bytes and docs/security.md for what that withstands.
//
// An encrypted chunk is named by a keyed hash (BLAKE2b) of its hash, so that names say nothing of the bytes
// to who lacks the key. The key of the names follows from a secret of the folder of state and the recipients:
// chunks are found again as long as both stay the same, and never across a change of recipients.
#ifndef DEDUP_CRYPT_H_
#define DEDUP_CRYPT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "dedup/hash.h"
#include "dedup/keys.h"
#include "dedup/pack.h"

namespace stasis {

// Names of encrypted chunks. Constant.
class ChunkNames {
 public:
  explicit ChunkNames(Secret key) : key_(std::move(key)) {}
  Hash128 Of(const Hash128& chunk) const;
  const Secret& key() const { return key_; }

 private:
  const Secret key_;
};

// The key of one session's data. Constant; thread-safe.
class DataKey {
 public:
  explicit DataKey(Secret key) : key_(std::move(key)) {}
  // `out` is kSealBytes longer than `plain`. `about` is not in it, and must be the same when it is opened.
  void Seal(std::span<const std::byte> about, std::span<const std::byte> plain,
            std::span<std::byte> out) const;
  // False when it was not sealed by this key, with `about`, or was changed since. `out` is kSealBytes
  // shorter.
  [[nodiscard]] bool Open(std::span<const std::byte> about, std::span<const std::byte> sealed,
                          std::span<std::byte> out) const;
  const Secret& key() const { return key_; }

 private:
  const Secret key_;
};

// A data key as it lies beside what it encrypts: sealed to each recipient.
inline constexpr size_t kMaxKeyBlock = 32 + kMaxRecipients * 112;
// Who can open it. kCorrupt: it is damaged. Untrusted input.
Result<std::vector<PublicKey>> RecipientsOf(std::span<const std::byte> block);

// What a writer encrypts with. Constant.
struct CryptSession {
  std::shared_ptr<const DataKey> key;
  std::vector<std::byte> block;
  std::shared_ptr<const ChunkNames> names;
};

// What lets another process of the same task read what a session has written, without an identity. A secret,
// for memory alone.
std::string HandOver(const CryptSession& session);

// A chunk as it lies in a pack. `encoded` is one of `hash` and `raw_size`.
struct SealedChunk {
  RecordHeader header;
  std::vector<std::byte> stored;
};
SealedChunk SealChunk(const CryptSession& session, const Hash128& hash, size_t raw_size,
                      const EncodedChunk& encoded);
// What is under the seal, as a record of the same bytes that is not encrypted, for all but its hash, which
// stays the name. kCorrupt.
Result<SealedChunk> UnsealChunk(const DataKey& key, const RecordHeader& header,
                                std::span<const std::byte> stored);

// The keys that one opened store has to do with. Thread-safe.
class Keyring {
 public:
  // `folder`: of state, with `encrypt-to`; "": nothing that is new is encrypted. `identity`: its file; "": as
  // $STASIS_IDENTITY says.
  explicit Keyring(std::string folder, std::string identity = "");

  // Null: it is not encrypted here. `unshared`: the chunks are found again by nobody, and so are all of this
  // session's key. What it writes this keyring opens without an identity.
  Result<std::shared_ptr<const CryptSession>> Begin(bool unshared);
  // The same to recipients of the caller's.
  Result<std::shared_ptr<const CryptSession>> BeginTo(std::vector<PublicKey> recipients);
  // kPermissionDenied: there is no identity, or none of a recipient; the message names keys and remedy.
  Result<std::shared_ptr<const DataKey>> Open(std::span<const std::byte> block);
  // What HandOver() gave. kCorrupt.
  Status TakeOver(const std::string& text);
  // Names that chunks of this store have, as far as images were written or opened.
  void Learn(std::shared_ptr<const ChunkNames> names);
  std::vector<std::shared_ptr<const ChunkNames>> Known() const;

 private:
  Result<std::shared_ptr<const CryptSession>> Make(std::span<const PublicKey> recipients,
                                                   std::shared_ptr<const ChunkNames> names);
  Result<std::shared_ptr<const DataKey>> Unseal(std::span<const std::byte> block);

  const std::string folder_;
  const std::string identity_;
  mutable std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, std::shared_ptr<const DataKey>> open_;  // by the hash of the block
  std::vector<std::shared_ptr<const ChunkNames>> names_;
};

}  // namespace stasis

#endif  // DEDUP_CRYPT_H_

// The keys of images that are encrypted at rest: who they are encrypted to, and who can read them.
//
// A recipient is a public key of X25519; who has its secret, the identity, reads what is encrypted to it.
// Both are text with a check sum, so that a key with a slip in it is refused and never encrypted to. A folder
// of state says in `encrypt-to` whose keys its images are encrypted to: writing needs nothing else.
//
// Thread-safe: values only.
#ifndef DEDUP_KEYS_H_
#define DEDUP_KEYS_H_

#include <array>
#include <compare>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace stasis {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kMaxRecipients = 16;
// The file, in a folder of state: a public key a line, '#' begins a comment.
inline constexpr char kRecipientsFile[] = "encrypt-to";
// The variable that names the file of the identity.
inline constexpr char kIdentityVariable[] = "STASIS_IDENTITY";

// 32 bytes that are wiped when they go. Moving wipes what was moved from.
class Secret {
 public:
  Secret() = default;  // all zero
  static Secret Random();
  ~Secret();
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  const unsigned char* data() const { return bytes_; }
  unsigned char* data() { return bytes_; }
  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(bytes_)); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  unsigned char bytes_[kKeyBytes] = {};
};

struct PublicKey {
  std::array<unsigned char, kKeyBytes> bytes{};
  auto operator<=>(const PublicKey&) const = default;
};

std::string PublicKeyText(const PublicKey& key);
// kInvalidArgument: it is none, or has a slip in it.
Result<PublicKey> ParsePublicKey(std::string_view text);
// 16 hexadecimal digits, by which people tell keys apart.
std::string KeyId(const PublicKey& key);
// Of several, with commas.
std::string KeyIds(std::span<const PublicKey> keys);

class Identity {
 public:
  static Identity Generate();
  // Every identity in the file. kPermissionDenied: others can read it; kInvalidArgument: there is none in it.
  static Result<std::vector<Identity>> ReadAll(const std::string& path);
  // A new file that only its owner can read. kAlreadyExists.
  Status Write(const std::string& path) const;

  const PublicKey& public_key() const { return public_key_; }
  const Secret& secret() const { return secret_; }

 private:
  explicit Identity(Secret secret);

  Secret secret_;
  PublicKey public_key_;
};

// Sorted, each once; empty when FOLDER/encrypt-to is not there. kPermissionDenied: it is not the user's own,
// or others can write it; kInvalidArgument: it names no key, too many, or something else.
Result<std::vector<PublicKey>> ReadRecipients(const std::string& folder);
// Replaces the list; an empty one removes it.
Status WriteRecipients(const std::string& folder, std::span<const PublicKey> keys);

// The secret of FOLDER that goes into the names of encrypted chunks; made when it is not there.
Result<Secret> NameSecret(const std::string& folder);

}  // namespace stasis

#endif  // DEDUP_KEYS_H_

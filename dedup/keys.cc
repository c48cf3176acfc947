#include "dedup/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace stasis {
namespace {

static_assert(crypto_box_PUBLICKEYBYTES == kKeyBytes && crypto_box_SECRETKEYBYTES == kKeyBytes);

constexpr std::string_view kPublicPrefix = "stasis-public-";
constexpr std::string_view kSecretPrefix = "stasis-secret-";
constexpr char kNameSecretFile[] = "name-secret";
constexpr size_t kSumBytes = 4;
constexpr size_t kKeyDigits = 2 * (kKeyBytes + kSumBytes);
constexpr size_t kMaxKeyFile = 64 << 10;

void Begin() {
  static const bool ready = sodium_init() >= 0;
  STASIS_CHECK(ready);
}

// Over kind and key, so that one kind is never taken for the other.
std::array<unsigned char, kSumBytes> SumOf(std::string_view prefix, const unsigned char* key) {
  std::array<unsigned char, crypto_generichash_BYTES> hash;
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, hash.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(prefix.data()), prefix.size());
  crypto_generichash_update(&state, key, kKeyBytes);
  crypto_generichash_final(&state, hash.data(), hash.size());
  std::array<unsigned char, kSumBytes> sum;
  std::copy_n(hash.begin(), sum.size(), sum.begin());
  return sum;
}

// The text holds a secret when the key does: the caller wipes it.
std::string KeyText(std::string_view prefix, const unsigned char* key) {
  unsigned char whole[kKeyBytes + kSumBytes];
  std::memcpy(whole, key, kKeyBytes);
  std::array<unsigned char, kSumBytes> sum = SumOf(prefix, key);
  std::memcpy(whole + kKeyBytes, sum.data(), sum.size());
  char digits[kKeyDigits + 1];
  sodium_bin2hex(digits, sizeof digits, whole, sizeof whole);
  std::string text = std::string(prefix) + digits;
  sodium_memzero(whole, sizeof whole);
  sodium_memzero(digits, sizeof digits);
  return text;
}

bool ParseKey(std::string_view prefix, std::string_view text, unsigned char* key) {
  Begin();
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  unsigned char whole[kKeyBytes + kSumBytes];
  size_t size = 0;
  bool good = text.size() == kKeyDigits && text.find_first_of("ABCDEF") == std::string_view::npos &&
              sodium_hex2bin(whole, sizeof whole, text.data(), text.size(), nullptr, &size, nullptr) == 0 &&
              size == sizeof whole;
  if (good) {
    std::memcpy(key, whole, kKeyBytes);
    std::array<unsigned char, kSumBytes> sum = SumOf(prefix, key);
    good = sodium_memcmp(sum.data(), whole + kKeyBytes, sum.size()) == 0;
  }
  sodium_memzero(whole, sizeof whole);
  return good;
}

std::string_view Trimmed(std::string_view line) {
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  size_t first = line.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(kBlank) - first + 1);
}

// Calls `take` for each line that says something.
Status ForLines(std::string_view text, auto take) {
  while (!text.empty()) {
    size_t end = text.find('\n');
    std::string_view line = Trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty()) RETURN_IF_ERROR(take(line));
  }
  return Status();
}

// A plain file of this user's or of root's that nobody else can change; with `secret`, nor read.
Result<std::string> ReadOwnFile(const std::string& path, bool secret) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_NONBLOCK | (secret ? 0 : O_NOFOLLOW)));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode)) return Status(StatusCode::kInvalidArgument, path + " is no regular file");
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return Status(StatusCode::kPermissionDenied, path + " belongs to another user");
  }
  if ((info.st_mode & (secret ? 077 : 022)) != 0) {
    return Status(StatusCode::kPermissionDenied,
                  path + " is open to others; close it: chmod " + (secret ? "600 " : "go-w ") + path);
  }
  if (info.st_size > static_cast<off_t>(kMaxKeyFile)) {
    return Status(StatusCode::kInvalidArgument, path + " is too long for a file of keys");
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  RETURN_IF_ERROR(ReadAt(fd.get(), std::as_writable_bytes(std::span(text)), 0).WithContext(path));
  return text;
}

}  // namespace

Secret Secret::Random() {
  Begin();
  Secret secret;
  randombytes_buf(secret.bytes_, sizeof secret.bytes_);
  return secret;
}

Secret::~Secret() { sodium_memzero(bytes_, sizeof bytes_); }

Secret::Secret(Secret&& other) noexcept { *this = std::move(other); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  std::memcpy(bytes_, other.bytes_, sizeof bytes_);
  sodium_memzero(other.bytes_, sizeof other.bytes_);
  return *this;
}

std::string PublicKeyText(const PublicKey& key) { return KeyText(kPublicPrefix, key.bytes.data()); }

Result<PublicKey> ParsePublicKey(std::string_view text) {
  PublicKey key;
  if (ParseKey(kPublicPrefix, text, key.bytes.data())) return key;
  if (text.starts_with(kSecretPrefix)) {
    return Status(StatusCode::kInvalidArgument, "a secret key stands where a public one belongs");
  }
  return Status(StatusCode::kInvalidArgument, "'" + std::string(text.substr(0, 100)) +
                                                  "' is no public key: 'stasis-public-' and 72 digits, as "
                                                  "`stasis images key new` prints them");
}

std::string KeyId(const PublicKey& key) {
  Begin();
  unsigned char hash[crypto_generichash_BYTES_MIN];
  crypto_generichash(hash, sizeof hash, key.bytes.data(), key.bytes.size(), nullptr, 0);
  constexpr size_t kIdBytes = 8;
  char digits[2 * kIdBytes + 1];
  sodium_bin2hex(digits, sizeof digits, hash, kIdBytes);
  return digits;
}

std::string KeyIds(std::span<const PublicKey> keys) {
  std::string text;
  for (const PublicKey& key : keys) text += (text.empty() ? "" : ", ") + KeyId(key);
  return text;
}

Identity::Identity(Secret secret) : secret_(std::move(secret)) {
  Begin();
  crypto_scalarmult_base(public_key_.bytes.data(), secret_.data());
}

Identity Identity::Generate() { return Identity(Secret::Random()); }

Result<std::vector<Identity>> Identity::ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadOwnFile(path, /*secret=*/true));
  std::vector<Identity> identities;
  Status status = ForLines(text, [&](std::string_view line) {
    Secret secret;
    // What the line says is not repeated.
    if (!ParseKey(kSecretPrefix, line, secret.data()))
      return Status(StatusCode::kInvalidArgument, path + " has a line that is no identity");
    identities.push_back(Identity(std::move(secret)));
    return Status();
  });
  sodium_memzero(text.data(), text.size());
  RETURN_IF_ERROR(status);
  if (identities.empty()) return Status(StatusCode::kInvalidArgument, path + " has no identity in it");
  return identities;
}

Status Identity::Write(const std::string& path) const {
  std::string key = KeyText(kSecretPrefix, secret_.data());
  std::string text =
      "# An identity of stasis: who has this file reads the images. Keep it apart from them.\n# " +
      PublicKeyText(public_key_) + "\n" + key + "\n";
  auto write = [&]() -> Status {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
    Status status = WriteAt(fd.get(), std::as_bytes(std::span(text)), 0);
    if (status.ok()) status = SyncFd(fd.get(), path);
    if (!status.ok()) unlink(path.c_str());
    return status;
  };
  Status status = write();
  sodium_memzero(key.data(), key.size());
  sodium_memzero(text.data(), text.size());
  return status;
}

Result<std::vector<PublicKey>> ReadRecipients(const std::string& folder) {
  const std::string path = folder + "/" + kRecipientsFile;
  Result<std::string> text = ReadOwnFile(path, /*secret=*/false);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return std::vector<PublicKey>();
  if (!text.ok()) return text.status();
  std::vector<PublicKey> keys;
  RETURN_IF_ERROR(ForLines(*text, [&](std::string_view line) -> Status {
                    ASSIGN_OR_RETURN(PublicKey key, ParsePublicKey(line));
                    keys.push_back(key);
                    return Status();
                  }).WithContext(path));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  // Whoever made the file wanted encryption: nothing is written in the clear for want of a key.
  if (keys.empty()) return Status(StatusCode::kInvalidArgument, path + " names no key");
  if (keys.size() > kMaxRecipients) {
    return Errorf(StatusCode::kInvalidArgument, "%s names %zu keys; %zu are the most", path.c_str(),
                  keys.size(), kMaxRecipients);
  }
  return keys;
}

Status WriteRecipients(const std::string& folder, std::span<const PublicKey> keys) {
  const std::string path = folder + "/" + kRecipientsFile;
  if (keys.empty()) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
    return Status();
  }
  if (keys.size() > kMaxRecipients) {
    return Errorf(StatusCode::kInvalidArgument, "%zu keys; %zu are the most", keys.size(), kMaxRecipients);
  }
  RETURN_IF_ERROR(MakeFolders(folder));
  std::string text = "# Images are encrypted to these keys.\n";
  for (const PublicKey& key : keys) text += PublicKeyText(key) + "\n";
  return WriteFileAtomically(path, text);
}

Result<Secret> NameSecret(const std::string& folder) {
  const std::string path = folder + "/" + kNameSecretFile;
  Secret secret;
  for (;;) {
    Result<std::string> text = ReadOwnFile(path, /*secret=*/true);
    if (text.ok() && text->size() != kKeyBytes) {
      return Status(StatusCode::kCorrupt, path + " is damaged; remove it: equal chunks are stored once more");
    }
    if (text.ok()) {
      std::memcpy(secret.data(), text->data(), kKeyBytes);
      sodium_memzero(text->data(), text->size());
      return secret;
    }
    if (text.status().code() != StatusCode::kNotFound) return text.status();
    secret = Secret::Random();
    // Whoever is first wins: the name appears with all of its content.
    const std::string fresh = path + "." + KeyId(Identity::Generate().public_key());
    ASSIGN_OR_RETURN(Fd fd, OpenFile(fresh, O_WRONLY | O_CREAT | O_EXCL, 0600));
    Status status = WriteAt(fd.get(), secret.bytes(), 0);
    if (status.ok()) status = SyncFd(fd.get(), fresh);
    if (status.ok() && link(fresh.c_str(), path.c_str()) != 0 && errno != EEXIST) {
      status = ErrnoStatus(errno, "make " + path);
    }
    unlink(fresh.c_str());
    RETURN_IF_ERROR(status);
  }
}

}  // namespace stasis

#include "dedup/crypt.h"

#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/files.h"
#include "base/payload.h"

namespace stasis {
namespace {

static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == kKeyBytes);
static_assert(crypto_generichash_KEYBYTES == kKeyBytes);

constexpr size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(kNonceBytes + kTagBytes == kSealBytes);

constexpr uint32_t kBlockMagic = 0x59454b53;  // "SKEY"
constexpr uint32_t kBlockVersion = 1;
constexpr size_t kBoxBytes = kKeyBytes + crypto_box_SEALBYTES;
constexpr size_t kRecipientBytes = kKeyBytes + kBoxBytes;
constexpr size_t kBlockHead = 16, kBlockSum = 16;
static_assert(kBlockHead + kBlockSum + kMaxRecipients * kRecipientBytes == kMaxKeyBlock);

unsigned char* Raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* Raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// What a chunk's seal is bound to besides its key.
struct AboutChunk {
  uint32_t magic;
  uint32_t coding;
  uint32_t raw_size;
  uint32_t zero;
  Hash128 name;
};
static_assert(sizeof(AboutChunk) == 32);

AboutChunk AboutOf(const RecordHeader& header) {
  constexpr uint32_t kChunkMagic = 0x4b484353;  // "SCHK"
  return {kChunkMagic, static_cast<uint32_t>(header.coding), header.raw_size, 0, header.hash};
}

Secret NamesKey(const Secret& secret, std::span<const PublicKey> recipients) {
  constexpr unsigned char kWhat[] = "stasis names of chunks 1";
  Secret key;
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret.data(), kKeyBytes, kKeyBytes);
  crypto_generichash_update(&state, kWhat, sizeof kWhat);
  for (const PublicKey& each : recipients)
    crypto_generichash_update(&state, each.bytes.data(), each.bytes.size());
  crypto_generichash_final(&state, key.data(), kKeyBytes);
  sodium_memzero(&state, sizeof state);
  return key;
}

struct Box {
  PublicKey recipient;
  std::array<unsigned char, kBoxBytes> sealed;
};

Result<std::vector<Box>> DecodeBlock(std::span<const std::byte> block) {
  const Status damaged(StatusCode::kCorrupt, "the keys beside what is encrypted are damaged");
  if (block.size() < kBlockHead + kBlockSum || block.size() > kMaxKeyBlock) return damaged;
  PayloadReader reader(block);
  const uint32_t magic = reader.U32(), version = reader.U32(), count = reader.U32(), zero = reader.U32();
  PayloadReader tail(block.last(kBlockSum));
  Hash128 sum;
  sum.high = tail.U64();
  sum.low = tail.U64();
  if (magic != kBlockMagic || HashBytes(block.first(block.size() - kBlockSum)) != sum) return damaged;
  if (version != kBlockVersion)
    return Status(StatusCode::kUnsupported, "keys of an unknown version are beside what is encrypted");
  if (zero != 0 || count == 0 || block.size() != kBlockHead + kBlockSum + count * kRecipientBytes)
    return damaged;
  std::vector<Box> boxes(count);
  block = block.subspan(kBlockHead);
  for (Box& box : boxes) {
    std::memcpy(box.recipient.bytes.data(), block.data(), kKeyBytes);
    std::memcpy(box.sealed.data(), block.data() + kKeyBytes, kBoxBytes);
    block = block.subspan(kRecipientBytes);
  }
  return boxes;
}

Result<std::vector<std::byte>> EncodeBlock(const Secret& key, std::span<const PublicKey> recipients) {
  PayloadWriter out;
  out.U32(kBlockMagic);
  out.U32(kBlockVersion);
  out.U32(static_cast<uint32_t>(recipients.size()));
  out.U32(0);
  std::vector<std::byte> bytes = out.Take();
  for (const PublicKey& recipient : recipients) {
    unsigned char box[kBoxBytes];
    if (crypto_box_seal(box, key.data(), kKeyBytes, recipient.bytes.data()) != 0) {
      return Status(StatusCode::kInvalidArgument, "key " + KeyId(recipient) + " cannot be encrypted to");
    }
    auto* public_bytes = reinterpret_cast<const std::byte*>(recipient.bytes.data());
    bytes.insert(bytes.end(), public_bytes, public_bytes + kKeyBytes);
    bytes.insert(bytes.end(), reinterpret_cast<std::byte*>(box),
                 reinterpret_cast<std::byte*>(box) + sizeof box);
  }
  const Hash128 sum = HashBytes(bytes);
  PayloadWriter tail;
  tail.U64(sum.high);
  tail.U64(sum.low);
  std::vector<std::byte> end = tail.Take();
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

std::pair<uint64_t, uint64_t> PlaceOf(std::span<const std::byte> block) {
  Hash128 hash = HashBytes(block);
  return {hash.high, hash.low};
}

std::vector<PublicKey> KeysOf(const std::vector<Box>& boxes) {
  std::vector<PublicKey> keys;
  for (const Box& box : boxes) keys.push_back(box.recipient);
  return keys;
}

std::string IdentityPath(const std::string& given) {
  if (!given.empty()) return given;
  const char* path = std::getenv(kIdentityVariable);
  return path != nullptr ? path : "";
}

}  // namespace

Hash128 ChunkNames::Of(const Hash128& chunk) const {
  Hash128 name;
  crypto_generichash(reinterpret_cast<unsigned char*>(&name), sizeof name,
                     reinterpret_cast<const unsigned char*>(&chunk), sizeof chunk, key_.data(), kKeyBytes);
  return name;
}

void DataKey::Seal(std::span<const std::byte> about, std::span<const std::byte> plain,
                   std::span<std::byte> out) const {
  STASIS_CHECK(out.size() == plain.size() + kSealBytes);
  // 192 bits at random do not come twice.
  randombytes_buf(out.data(), kNonceBytes);
  crypto_aead_xchacha20poly1305_ietf_encrypt(Raw(out.data()) + kNonceBytes, nullptr, Raw(plain.data()),
                                             plain.size(), Raw(about.data()), about.size(), nullptr,
                                             Raw(out.data()), key_.data());
}

bool DataKey::Open(std::span<const std::byte> about, std::span<const std::byte> sealed,
                   std::span<std::byte> out) const {
  if (sealed.size() < kSealBytes || out.size() != sealed.size() - kSealBytes) return false;
  return crypto_aead_xchacha20poly1305_ietf_decrypt(
             Raw(out.data()), nullptr, nullptr, Raw(sealed.data()) + kNonceBytes, sealed.size() - kNonceBytes,
             Raw(about.data()), about.size(), Raw(sealed.data()), key_.data()) == 0;
}

Result<std::vector<PublicKey>> RecipientsOf(std::span<const std::byte> block) {
  ASSIGN_OR_RETURN(std::vector<Box> boxes, DecodeBlock(block));
  return KeysOf(boxes);
}

std::string HandOver(const CryptSession& session) {
  char digits[2 * kKeyBytes + 1];
  sodium_bin2hex(digits, sizeof digits, session.key->key().data(), kKeyBytes);
  std::string text = HashText(HashBytes(session.block)) + digits;
  sodium_memzero(digits, sizeof digits);
  return text;
}

SealedChunk SealChunk(const CryptSession& session, const Hash128& hash, size_t raw_size,
                      const EncodedChunk& encoded) {
  SealedChunk chunk;
  chunk.header.coding = encoded.coding == Coding::kZstd ? Coding::kSealedZstd : Coding::kSealedRaw;
  chunk.header.raw_size = static_cast<uint32_t>(raw_size);
  chunk.header.stored_size = static_cast<uint32_t>(encoded.bytes.size() + kSealBytes);
  chunk.header.hash = session.names->Of(hash);
  chunk.stored.resize(chunk.header.stored_size);
  const AboutChunk about = AboutOf(chunk.header);
  session.key->Seal(std::as_bytes(std::span(&about, 1)), encoded.bytes, chunk.stored);
  chunk.header.stored_sum = StoredSum(chunk.stored);
  return chunk;
}

Result<SealedChunk> UnsealChunk(const DataKey& key, const RecordHeader& header,
                                std::span<const std::byte> stored) {
  RETURN_IF_ERROR(CheckStored(header, stored));
  SealedChunk plain;
  plain.stored.resize(stored.size() - kSealBytes);
  const AboutChunk about = AboutOf(header);
  if (!key.Open(std::as_bytes(std::span(&about, 1)), stored, plain.stored)) {
    return Status(StatusCode::kCorrupt, "an encrypted chunk is not what was written under its name");
  }
  const bool zstd = header.coding == Coding::kSealedZstd;
  plain.header =
      MakeRecordHeader(header.hash, header.raw_size, {zstd ? Coding::kZstd : Coding::kRaw, plain.stored});
  return plain;
}

Keyring::Keyring(std::string folder, std::string identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {
  STASIS_CHECK(sodium_init() >= 0);
}

Result<std::shared_ptr<const CryptSession>> Keyring::Begin(bool unshared) {
  if (folder_.empty()) return std::shared_ptr<const CryptSession>();
  ASSIGN_OR_RETURN(std::vector<PublicKey> recipients, ReadRecipients(folder_));
  if (recipients.empty()) return std::shared_ptr<const CryptSession>();
  if (unshared) return Make(recipients, std::make_shared<const ChunkNames>(Secret::Random()));
  ASSIGN_OR_RETURN(Secret secret, NameSecret(folder_));
  return Make(recipients, std::make_shared<const ChunkNames>(NamesKey(secret, recipients)));
}

Result<std::shared_ptr<const CryptSession>> Keyring::BeginTo(std::vector<PublicKey> recipients) {
  std::sort(recipients.begin(), recipients.end());
  return Make(recipients, std::make_shared<const ChunkNames>(Secret::Random()));
}

Result<std::shared_ptr<const CryptSession>> Keyring::Make(std::span<const PublicKey> recipients,
                                                          std::shared_ptr<const ChunkNames> names) {
  Secret secret = Secret::Random();
  auto session = std::make_shared<CryptSession>();
  ASSIGN_OR_RETURN(session->block, EncodeBlock(secret, recipients));
  session->key = std::make_shared<const DataKey>(std::move(secret));
  session->names = names;
  Learn(std::move(names));
  std::lock_guard lock(mutex_);
  open_[PlaceOf(session->block)] = session->key;
  return std::shared_ptr<const CryptSession>(std::move(session));
}

Result<std::shared_ptr<const DataKey>> Keyring::Open(std::span<const std::byte> block) {
  {
    std::lock_guard lock(mutex_);
    auto found = open_.find(PlaceOf(block));
    if (found != open_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const DataKey> key, Unseal(block));
  std::lock_guard lock(mutex_);
  return open_[PlaceOf(block)] = std::move(key);
}

Result<std::shared_ptr<const DataKey>> Keyring::Unseal(std::span<const std::byte> block) {
  ASSIGN_OR_RETURN(std::vector<Box> boxes, DecodeBlock(block));
  const std::string to = "it is encrypted to key " + KeyIds(KeysOf(boxes));
  const std::string path = IdentityPath(identity_);
  if (path.empty()) {
    return Status(StatusCode::kPermissionDenied,
                  to + ": set " + kIdentityVariable + " to the file with the identity of that key");
  }
  Result<std::vector<Identity>> identities = Identity::ReadAll(path);
  if (!identities.ok()) {
    return Status(StatusCode::kPermissionDenied,
                  to + ", and the identity that " + kIdentityVariable +
                      " names cannot be used: " + std::string(identities.status().message()));
  }
  std::vector<PublicKey> have;
  for (const Identity& identity : *identities) {
    have.push_back(identity.public_key());
    for (const Box& box : boxes) {
      if (box.recipient != identity.public_key()) continue;
      Secret secret;
      if (crypto_box_seal_open(secret.data(), box.sealed.data(), box.sealed.size(),
                               box.recipient.bytes.data(), identity.secret().data()) != 0) {
        return Status(StatusCode::kCorrupt,
                      "the key of what is encrypted is not what was sealed to key " + KeyId(box.recipient));
      }
      return std::shared_ptr<const DataKey>(std::make_shared<const DataKey>(std::move(secret)));
    }
  }
  return Status(StatusCode::kPermissionDenied, to + "; " + path + " has the identity of key " + KeyIds(have) +
                                                   ": set " + kIdentityVariable +
                                                   " to the file with that of the former");
}

Status Keyring::TakeOver(const std::string& text) {
  constexpr size_t kHashDigits = 32;
  const Status wrong(StatusCode::kCorrupt, "what was handed over is no key");
  if (text.size() != kHashDigits + 2 * kKeyBytes) return wrong;
  ASSIGN_OR_RETURN(Hash128 block, ParseHash(text.substr(0, kHashDigits)));
  Secret secret;
  size_t size = 0;
  if (sodium_hex2bin(secret.data(), kKeyBytes, text.data() + kHashDigits, 2 * kKeyBytes, nullptr, &size,
                     nullptr) != 0 ||
      size != kKeyBytes) {
    return wrong;
  }
  std::lock_guard lock(mutex_);
  open_[{block.high, block.low}] = std::make_shared<const DataKey>(std::move(secret));
  return Status();
}

void Keyring::Learn(std::shared_ptr<const ChunkNames> names) {
  std::lock_guard lock(mutex_);
  for (const auto& known : names_) {
    if (sodium_memcmp(known->key().data(), names->key().data(), kKeyBytes) == 0) return;
  }
  names_.push_back(std::move(names));
}

std::vector<std::shared_ptr<const ChunkNames>> Keyring::Known() const {
  std::lock_guard lock(mutex_);
  return names_;
}

}  // namespace stasis

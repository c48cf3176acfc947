// Encrypted manifests and the keys beside them, as who has no key but can write the disk makes them: with
// good sums.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dedup/crypt.h"
#include "dedup/image_manifest.h"

namespace {

using Bytes = std::vector<std::byte>;

// The sum stands high half first.
void PutSum(Bytes* bytes) {
  if (bytes->size() < 16) return;
  stasis::Hash128 sum = stasis::HashBytes(std::span(*bytes).first(bytes->size() - 16));
  std::memcpy(bytes->data() + bytes->size() - 16, &sum.high, 8);
  std::memcpy(bytes->data() + bytes->size() - 8, &sum.low, 8);
}

void TryBlock(Bytes block) {
  stasis::Keyring keyring("", "/nonexistent");
  PutSum(&block);
  stasis::Result<std::vector<stasis::PublicKey>> recipients = stasis::RecipientsOf(block);
  if (recipients.ok() && (recipients->empty() || recipients->size() > stasis::kMaxRecipients))
    __builtin_trap();
  if (keyring.Open(block).ok()) __builtin_trap();
}

void TryManifest(Bytes bytes) {
  constexpr uint32_t kVersion = stasis::kSealedImageVersion;
  if (bytes.size() < 40) return;
  const uint64_t size = bytes.size();
  std::memcpy(bytes.data(), "StisImg\n", 8);
  std::memcpy(bytes.data() + 8, &kVersion, sizeof kVersion);
  std::memcpy(bytes.data() + 16, &size, sizeof size);
  PutSum(&bytes);
  (void)stasis::ParseStoredManifest(bytes, "fuzz");
  stasis::Keyring keyring("", "/nonexistent");
  if (stasis::OpenImageManifest(bytes, "fuzz", keyring).ok()) __builtin_trap();
  if (stasis::ParseImageManifest(bytes, "fuzz").ok()) __builtin_trap();
}

// What is under the seal is checked like what comes from anywhere.
void TryInside(const Bytes& bytes) {
  static stasis::Keyring keyring("", "/nonexistent");
  static const auto session = *keyring.BeginTo({stasis::Identity::Generate().public_key()});
  stasis::ImageManifest outside;
  outside.task = "fuzz";
  outside.id = "000001";
  outside.chunk_bytes = 4096;
  stasis::Result<Bytes> sealed = stasis::SealImageManifest(outside, bytes, *session);
  if (!sealed.ok()) __builtin_trap();
  (void)stasis::OpenImageManifest(*sealed, "fuzz", keyring);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::span<const std::byte> input = std::as_bytes(std::span(data + 1, size - 1));
  Bytes bytes(input.begin(), input.end());
  switch (data[0] % 3) {
    case 0:
      TryBlock(std::move(bytes));
      break;
    case 1:
      TryManifest(std::move(bytes));
      break;
    default:
      TryInside(bytes);
  }
  return 0;
}

// Images that are encrypted at rest: what it takes to write and to read them, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/payload.h"
#include "dedup/crypt.h"
#include "dedup/image.h"
#include "dedup/image_manifest.h"
#include "dedup/image_testing.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

using testing::AllOf;
using testing::HasSubstr;
constexpr uint64_t kChunk = 4096;

std::string Text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// `changed` under sums that fit again, as somebody would make them who can write the disk but has no key.
Bytes ResealManifest(Bytes bytes) {
  const size_t covered = bytes.size() - 16;
  PayloadWriter out;
  Hash128 sum = HashBytes(std::span(bytes).first(covered));
  out.U64(sum.high);
  out.U64(sum.low);
  Bytes tail = out.Take();
  std::copy(tail.begin(), tail.end(), bytes.begin() + static_cast<ptrdiff_t>(covered));
  return bytes;
}

class ImageCryptTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv(kIdentityVariable);
    ASSERT_OK(identity_.Write(identity_file_));
    Encrypt({identity_.public_key()});
  }
  void TearDown() override { unsetenv(kIdentityVariable); }

  void Encrypt(std::vector<PublicKey> keys) { ASSERT_OK(WriteRecipients(state_, keys)); }
  std::shared_ptr<Store> Open(const std::string& identity = "") {
    StoreOptions options;
    options.chunk_bytes = kChunk;
    options.pack_bytes = 64 * kChunk;
    options.keys = state_;
    options.identity = identity;
    return OpenStore(root_, options);
  }
  Status Write(const std::string& id, const Sample& sample, ImageCounts* counts = nullptr) {
    return WriteSample(Open(), "job", id, sample, folder_.path(), counts);
  }
  Status Read(const std::string& id, const Sample& sample, const std::string& identity,
              const std::string& task = "job") {
    return ReadSample(Open(identity), task, id, sample, folder_.path());
  }
  std::string Manifest(const std::string& id) const { return root_ + "/images/job/" + id + ".image"; }
  std::vector<std::string> Packs() const {
    std::vector<std::string> packs;
    for (const std::string& name : Names(root_ + "/packs")) {
      if (name.ends_with(".pack")) packs.push_back(root_ + "/packs/" + name);
    }
    return packs;
  }
  // Every record of a pack, with its offset.
  std::vector<std::pair<size_t, RecordHeader>> Records(const Bytes& pack) const {
    std::vector<std::pair<size_t, RecordHeader>> records;
    uint32_t key = 0;
    std::memcpy(&key, pack.data() + 12, sizeof key);
    for (size_t at = kPackHeaderBytes + key; at + kRecordHeaderBytes <= pack.size();) {
      auto header = DecodeRecordHeader(
          std::span<const std::byte, kRecordHeaderBytes>(pack.data() + at, kRecordHeaderBytes));
      if (!header.ok()) break;
      records.emplace_back(at, *header);
      at += kRecordHeaderBytes + header->stored_size;
    }
    return records;
  }
  // A record's bytes, under a header that fits them.
  static void PutRecord(Bytes* pack, size_t at, RecordHeader header, std::span<const std::byte> stored) {
    header.stored_sum = StoredSum(stored);
    EncodeRecordHeader(header,
                       std::span<std::byte, kRecordHeaderBytes>(pack->data() + at, kRecordHeaderBytes));
    std::copy(stored.begin(), stored.end(), pack->begin() + static_cast<ptrdiff_t>(at + kRecordHeaderBytes));
  }
  void ExpectSound(Store& store, bool opened) {
    Result<VerifyReport> report = store.Verify();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    for (const Damage& damage : report->damages) ADD_FAILURE() << damage.file << ": " << damage.what;
    EXPECT_EQ(report->sealed_chunks, opened ? 0 : report->chunks);
    EXPECT_EQ(report->sealed_images, opened ? 0 : report->images);
  }

  TempFolder folder_;
  const std::string state_ = folder_ / "state";
  const std::string root_ = state_ + "/store";
  const std::string identity_file_ = folder_ / "identity";
  const Identity identity_ = Identity::Generate();
};

TEST_F(ImageCryptTest, WritingNeedsThePublicKeyAndReadingTheIdentity) {
  const Sample sample = MakeSample(1, kChunk);
  ASSERT_OK(Write("000001", sample));
  ASSERT_OK(Read("000001", sample, identity_file_));
  setenv(kIdentityVariable, identity_file_.c_str(), 1);
  ASSERT_OK(Read("000001", sample, ""));
}

TEST_F(ImageCryptTest, WithoutTheIdentityTheRefusalNamesKeyAndRemedy) {
  ASSERT_OK(Write("000001", MakeSample(1, kChunk)));
  Status status = ImageReader::Open(Open(), "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr(KeyId(identity_.public_key())), HasSubstr(kIdentityVariable)));
  const Identity other = Identity::Generate();
  ASSERT_OK(other.Write(folder_ / "other"));
  status = ImageReader::Open(Open(folder_ / "other"), "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr(KeyId(identity_.public_key())), HasSubstr(KeyId(other.public_key()))));
  status = ImageReader::Open(Open(folder_ / "none"), "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  // No attempt has marked a pack as damaged.
  for (const std::string& name : Names(root_ + "/packs")) EXPECT_FALSE(name.ends_with(".bad")) << name;
}

TEST_F(ImageCryptTest, EveryRecipientReads) {
  const Identity second = Identity::Generate(), third = Identity::Generate();
  ASSERT_OK(second.Write(folder_ / "second"));
  ASSERT_OK(third.Write(folder_ / "third"));
  Encrypt({identity_.public_key(), second.public_key()});
  const Sample sample = MakeSample(1, kChunk);
  ASSERT_OK(Write("000001", sample));
  ASSERT_OK(Read("000001", sample, identity_file_));
  ASSERT_OK(Read("000001", sample, folder_ / "second"));
  EXPECT_EQ(Read("000001", sample, folder_ / "third").code(), StatusCode::kPermissionDenied);
}

TEST_F(ImageCryptTest, NothingOfAnImageLiesInTheClear) {
  const std::string secret = "the password is 7ziuaqYq";
  Sample sample = MakeSample(1, kChunk);
  Bytes bytes(3 * kChunk);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(secret[i % secret.size()]);
  sample.streams["text"] = {{{0, bytes.size()}}, bytes};
  sample.folders["files-of-the-job"] = {{"letter.txt", Bytes(bytes.begin(), bytes.begin() + 20)}};
  sample.meta["environment"] = secret;
  ASSERT_OK(Write("000001", sample));
  const Hash128 hash = HashBytes(std::span(bytes).first(kChunk));
  const std::string name(reinterpret_cast<const char*>(&hash), sizeof hash);
  size_t looked_at = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(state_)) {
    if (!entry.is_regular_file()) continue;
    const std::string content = Text(ReadBytes(entry.path()));
    ++looked_at;
    for (const std::string& each : {secret.substr(0, 12), std::string("letter.txt"),
                                    std::string("environment"), std::string("files-of-the-job"), name}) {
      EXPECT_EQ(content.find(each), std::string::npos) << entry.path() << ": " << each;
    }
  }
  EXPECT_GE(looked_at, 4U);
}

TEST_F(ImageCryptTest, EqualChunksAreStoredOnceInAStore) {
  const Sample sample = MakeSample(1, kChunk);
  ImageCounts first, second;
  ASSERT_OK(Write("000001", sample, &first));
  ASSERT_OK(Write("000002", sample, &second));
  EXPECT_GT(first.added_bytes, 0U);
  EXPECT_EQ(second.added_bytes, 0U);
  ASSERT_OK(Read("000002", sample, identity_file_));
}

// What is in the store for one recipient alone is never counted on for another.
TEST_F(ImageCryptTest, AnotherRecipientGetsEveryChunkAnew) {
  const Sample sample = MakeSample(1, kChunk);
  ASSERT_OK(Write("000001", sample));
  const Identity other = Identity::Generate();
  ASSERT_OK(other.Write(folder_ / "other"));
  Encrypt({other.public_key()});
  ASSERT_OK(Write("000002", sample));
  ASSERT_OK(Read("000002", sample, folder_ / "other"));
  EXPECT_EQ(Read("000002", sample, identity_file_).code(), StatusCode::kPermissionDenied);
  ASSERT_OK(Read("000001", sample, identity_file_));
  // Both identities in one file read both.
  std::string both = *ReadFile(identity_file_) + *ReadFile(folder_ / "other");
  ASSERT_OK(WriteFileAtomically(folder_ / "both", both));
  ASSERT_OK(Read("000001", sample, folder_ / "both"));
  ASSERT_OK(Read("000002", sample, folder_ / "both"));
}

TEST_F(ImageCryptTest, ImagesInTheClearAreReadAndNeverCountedOn) {
  const Sample sample = MakeSample(1, kChunk);
  Encrypt({});
  ImageCounts plain, sealed;
  ASSERT_OK(Write("000001", sample, &plain));
  Encrypt({identity_.public_key()});
  ASSERT_OK(Write("000002", sample, &sealed));
  EXPECT_GT(sealed.added_bytes, plain.added_bytes);  // not one was found again
  ASSERT_OK(Read("000001", sample, ""));
  ASSERT_OK(Read("000002", sample, identity_file_));
  Encrypt({});
  ImageCounts again;
  ASSERT_OK(Write("000003", sample, &again));
  EXPECT_EQ(again.added_bytes, 0U);
  ASSERT_OK(Read("000003", sample, ""));
}

TEST_F(ImageCryptTest, VerifyLooksAtCiphertextsAndWithTheIdentityAtAll) {
  ASSERT_OK(Write("000001", MakeSample(1, kChunk)));
  ExpectSound(*Open(), false);
  ExpectSound(*Open(identity_file_), true);
}

TEST_F(ImageCryptTest, TheCollectorNeedsNoIdentity) {
  const Sample kept = MakeSample(1, kChunk);
  Sample gone = MakeSample(100, kChunk);
  gone.streams["more"] = {{{0, 200 * kChunk}}, Noise(9, 200 * kChunk)};
  ASSERT_OK(Write("000001", gone));
  ASSERT_OK(Write("000002", kept));
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  Result<GcReport> report = store->CollectGarbage();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_GT(report->packs_removed, 0U);
  EXPECT_LT(report->bytes_after, report->bytes_before / 2);
  ExpectSound(*Open(identity_file_), true);
  ASSERT_OK(Read("000002", kept, identity_file_));
}

// Packs that are written again keep their keys apart, and mix with none that have none.
TEST_F(ImageCryptTest, PacksThatAreRewrittenKeepTheirKeys) {
  auto image = [](uint64_t seed, size_t chunks) {
    Sample sample;
    sample.streams["memory"] = {{{0, chunks * kChunk}}, Noise(seed, chunks * kChunk)};
    return sample;
  };
  // Of each pack of the first image of a kind the second one needs a small part.
  auto part = [&](uint64_t seed) {
    Sample sample = image(seed, 40);
    sample.streams["memory"].bytes.resize(5 * kChunk);
    sample.streams["memory"].segments = {{0, 5 * kChunk}};
    return sample;
  };
  const Identity other = Identity::Generate();
  ASSERT_OK(other.Write(folder_ / "other"));
  ASSERT_OK(Write("000001", image(1, 40)));
  ASSERT_OK(Write("000002", part(1)));
  Encrypt({other.public_key()});
  ASSERT_OK(Write("000003", image(2, 40)));
  ASSERT_OK(Write("000004", part(2)));
  Encrypt({});
  ASSERT_OK(Write("000005", image(3, 40)));
  ASSERT_OK(Write("000006", part(3)));
  std::shared_ptr<Store> store = Open();
  for (const char* id : {"000001", "000003", "000005"}) ASSERT_OK(RemoveImage(*store, "job", id));
  Result<GcReport> report = store->CollectGarbage();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->packs_rewritten, 3U);
  EXPECT_EQ(Packs().size(), 3U);
  ASSERT_OK(Read("000002", part(1), identity_file_));
  ASSERT_OK(Read("000004", part(2), folder_ / "other"));
  ASSERT_OK(Read("000006", part(3), ""));
  EXPECT_EQ(Read("000002", part(1), folder_ / "other").code(), StatusCode::kPermissionDenied);
}

// A copy with a damaged key would be no copy.
TEST_F(ImageCryptTest, APackWithADamagedKeyIsLeftAndReported) {
  Sample sample;
  sample.streams["memory"] = {{{0, 20 * kChunk}}, Noise(4, 20 * kChunk)};
  ASSERT_OK(Write("000001", sample));
  const std::string path = Packs().front();
  const Bytes good = ReadBytes(path);
  Bytes bad = good;
  bad[kPackHeaderBytes + 70] ^= std::byte{4};
  WriteBytes(path, bad);
  Result<GcReport> report = Open()->CollectGarbage();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->damages.size(), 1U);
  EXPECT_EQ(report->packs_rewritten + report->packs_removed, 0U);
  ASSERT_TRUE(ReadBytes(path) == bad);
  WriteBytes(path, good);
  ASSERT_OK(Read("000001", sample, identity_file_));
}

// What a paused task's memory is held in is read back by who holds it.
TEST_F(ImageCryptTest, HeldMemoryIsReadBackWithoutAnIdentity) {
  const Sample sample = MakeSample(1, kChunk);
  ASSERT_OK(Write("000001", sample));  // chunks of another session's key: no help to who has no identity
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteSample(store, "job", kHeldImage, sample, folder_.path()));
  ASSERT_OK(ReadSample(store, "job", kHeldImage, sample, folder_.path()));
  // By another process that was told how, too.
  ASSERT_OK(RemoveImage(*store, "job", kHeldImage));
  Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(store, "job", kHeldImage);
  ASSERT_TRUE(writer.ok());
  ASSERT_OK(FillImage(writer->get(), sample, folder_.path()));
  ASSERT_OK((*writer)->Commit(sample.meta));
  std::shared_ptr<Store> another = Open();
  EXPECT_EQ(ImageReader::Open(another, "job", kHeldImage).status().code(), StatusCode::kPermissionDenied);
  EXPECT_FALSE(another->keyring().TakeOver((*writer)->HandOver().substr(1)).ok());
  ASSERT_OK(another->keyring().TakeOver((*writer)->HandOver()));
  ASSERT_OK(ReadSample(another, "job", kHeldImage, sample, folder_.path()));
  EXPECT_EQ(ImageReader::Open(another, "job", "000001").status().code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(Read(kHeldImage, sample, "").code(), StatusCode::kPermissionDenied);
  ASSERT_OK(Read(kHeldImage, sample, identity_file_));
}

TEST_F(ImageCryptTest, ManifestsThatWereChangedAreRefused) {
  ASSERT_OK(Write("000001", MakeSample(1, kChunk)));
  const Bytes good = ReadBytes(Manifest("000001"));
  std::shared_ptr<Store> store = Open(identity_file_);
  const size_t step = FullTest() ? 1 : 97;
  for (size_t bit = 0; bit < good.size() * 8; bit += step) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    WriteBytes(Manifest("000001"), bad);
    EXPECT_FALSE(ImageReader::Open(store, "job", "000001").ok()) << bit;
    // The sums are no secret: with all of them mended it is the seal that refuses.
    WriteBytes(Manifest("000001"), ResealManifest(bad));
    if (bit / 8 < good.size() - 16) {
      EXPECT_FALSE(ImageReader::Open(store, "job", "000001").ok()) << bit;
    }
  }
  for (size_t size : {size_t{0}, size_t{20}, good.size() / 2, good.size() - 1}) {
    WriteBytes(Manifest("000001"), std::span(good).first(size));
    EXPECT_FALSE(ImageReader::Open(store, "job", "000001").ok()) << size;
  }
  WriteBytes(Manifest("000001"), good);
  ASSERT_OK(ImageReader::Open(store, "job", "000001").status());
}

// An older image is not passed off as a newer one, nor one job's as another's.
TEST_F(ImageCryptTest, AManifestIsBoundToItsName) {
  ASSERT_OK(Write("000001", MakeSample(1, kChunk)));
  ASSERT_OK(Write("000002", MakeSample(2, kChunk)));
  Bytes old = ReadBytes(Manifest("000001"));
  WriteBytes(Manifest("000002"), old);
  EXPECT_FALSE(ImageReader::Open(Open(identity_file_), "job", "000002").ok());
  // Also when it says of itself, in the clear, that it is the other.
  const std::string from = "000001";
  auto found = std::search(old.begin(), old.end(), reinterpret_cast<const std::byte*>(from.data()),
                           reinterpret_cast<const std::byte*>(from.data()) + from.size());
  ASSERT_NE(found, old.end());
  *(found + 5) = static_cast<std::byte>('2');
  WriteBytes(Manifest("000002"), ResealManifest(old));
  Status status = ImageReader::Open(Open(identity_file_), "job", "000002").status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
}

TEST_F(ImageCryptTest, ChunksThatWereChangedSwappedOrCutAreRefused) {
  Sample sample;
  sample.streams["memory"] = {{{0, 6 * kChunk}}, Noise(4, 6 * kChunk)};
  ASSERT_OK(Write("000001", sample));
  ASSERT_EQ(Packs().size(), 1U);
  const std::string path = Packs().front();
  const Bytes good = ReadBytes(path);
  auto records = Records(good);
  ASSERT_EQ(records.size(), 6U);
  auto stored = [&](const Bytes& pack, size_t i) {
    return std::span(pack).subspan(records[i].first + kRecordHeaderBytes, records[i].second.stored_size);
  };
  auto expect_refused = [&](const Bytes& pack, const std::string& what) {
    WriteBytes(path, pack);
    std::shared_ptr<Store> store = Open(identity_file_);
    Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(store, "job", "000001");
    Status status = reader.ok() ? (*reader)->VerifyAll() : reader.status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << what << ": " << status.ToString();
    EXPECT_FALSE(store->Verify()->damages.empty()) << what;
    for (const std::string& name : Names(root_ + "/packs")) {
      if (name.ends_with(".bad")) std::filesystem::remove(root_ + "/packs/" + name);
    }
  };
  {
    Bytes bad = good;
    Bytes first(stored(good, 0).begin(), stored(good, 0).end());
    PutRecord(&bad, records[0].first, records[0].second, stored(good, 1));
    PutRecord(&bad, records[1].first, records[1].second, first);
    expect_refused(bad, "swapped");
  }
  for (size_t at : {size_t{0}, size_t{23}, size_t{24}, size_t{2000}, stored(good, 2).size() - 1}) {
    Bytes bad = good, bytes(stored(good, 2).begin(), stored(good, 2).end());
    bytes[at] ^= std::byte{1};
    PutRecord(&bad, records[2].first, records[2].second, bytes);
    expect_refused(bad, "changed at " + std::to_string(at));
  }
  {
    // In the clear under the same name.
    Bytes bad = good;
    RecordHeader header = records[3].second;
    header.coding = Coding::kZstd;
    PutRecord(&bad, records[3].first, header, stored(good, 3));
    header.raw_size = header.stored_size;
    expect_refused(bad, "not encrypted");
  }
  expect_refused(Bytes(good.begin(), good.end() - 100), "cut");
  {
    Bytes bad = good;  // the key is no other's
    bad[kPackHeaderBytes + 60] ^= std::byte{1};
    expect_refused(bad, "another key");
  }
  WriteBytes(path, good);
  ASSERT_OK(Read("000001", sample, identity_file_));
}

// The same content, encrypted with the keys of another store for the same recipient, is another's.
TEST_F(ImageCryptTest, AChunkOfAnotherStoreIsNotTaken) {
  Sample sample;
  sample.streams["memory"] = {{{0, 2 * kChunk}}, Noise(4, 2 * kChunk)};
  ASSERT_OK(Write("000001", sample));
  const std::string path = Packs().front();
  const Bytes mine = ReadBytes(path);
  auto records = Records(mine);
  ASSERT_EQ(records.size(), 2U);
  // With the recipient's public key anybody can seal; without the names' key he cannot say for which chunk.
  Keyring keyring("");
  Result<std::shared_ptr<const CryptSession>> forged = keyring.BeginTo({identity_.public_key()});
  ASSERT_TRUE(forged.ok());
  const Bytes content = Noise(77, kChunk);
  SealedChunk chunk = SealChunk(**forged, HashBytes(content), kChunk, {Coding::kRaw, content});
  chunk.header.hash = records[0].second.hash;
  ASSERT_EQ((*forged)->block.size(), records[0].first - kPackHeaderBytes);
  Bytes bad = mine;
  std::copy((*forged)->block.begin(), (*forged)->block.end(),
            bad.begin() + static_cast<ptrdiff_t>(kPackHeaderBytes));
  PutRecord(&bad, records[0].first, chunk.header, chunk.stored);
  WriteBytes(path, bad);
  Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(Open(identity_file_), "job", "000001");
  Status status = reader.ok() ? (*reader)->VerifyAll() : reader.status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
}

TEST_F(ImageCryptTest, AnExportStaysEncryptedAndIsImportedWithTheIdentity) {
  Sample sample = MakeSample(1, kChunk);
  sample.meta["environment"] = "the password is 7ziuaqYq";
  ASSERT_OK(Write("000001", sample));
  EXPECT_EQ(ImageReader::Open(Open(), "job", "000001").status().code(), StatusCode::kPermissionDenied);
  const std::string file = folder_ / "job.stasis";
  ASSERT_OK(ExportImage(**ImageReader::Open(Open(identity_file_), "job", "000001"), file));
  EXPECT_EQ(Text(ReadBytes(file)).find("password"), std::string::npos);
  EXPECT_EQ(PeekExport(file).status().code(), StatusCode::kPermissionDenied);
  std::string task = "copy", id;
  EXPECT_EQ(ImportImage(Open(), file, &task, &id).code(), StatusCode::kPermissionDenied);
  ASSERT_OK(ImportImage(Open(identity_file_), file, &task, &id));
  EXPECT_EQ(id, "000001");
  ASSERT_OK(Read(id, sample, identity_file_, "copy"));
  // Where nothing else is encrypted it stays so for whom it was.
  StoreOptions options;
  options.chunk_bytes = kChunk;
  options.identity = identity_file_;
  std::shared_ptr<Store> plain = OpenStore(folder_ / "plain", options);
  std::string there = "job", there_id;
  ASSERT_OK(ImportImage(plain, file, &there, &there_id));
  ASSERT_OK(ReadSample(plain, "job", "000001", sample, folder_.path()));
  options.identity = "";
  EXPECT_EQ(ImageReader::Open(OpenStore(folder_ / "plain", options), "job", "000001").status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(ImageCryptTest, EveryBitOfAnExportCounts) {
  Sample sample;
  sample.streams["memory"] = {{{0, 2 * kChunk}}, Noise(4, 2 * kChunk)};
  ASSERT_OK(Write("000001", sample));
  const std::string file = folder_ / "job.stasis", bad_file = folder_ / "bad.stasis";
  ASSERT_OK(ExportImage(**ImageReader::Open(Open(identity_file_), "job", "000001"), file));
  const Bytes good = ReadBytes(file);
  std::shared_ptr<Store> store = Open(identity_file_);
  const size_t step = FullTest() ? 1 : 331;
  for (size_t bit = 0; bit < good.size() * 8; bit += step) {
    Bytes bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    WriteBytes(bad_file, bad);
    std::string task = "copy", id = "000009";
    EXPECT_FALSE(ImportImage(store, bad_file, &task, &id).ok()) << bit;
  }
}

// A migration and a copy to another node send chunks as they are in the clear, under mTLS; each node
// encrypts.
TEST_F(ImageCryptTest, RecordsForAnotherNodeAreDecryptedWithTheIdentity) {
  const Bytes content = Noise(4, kChunk);
  Sample sample;
  sample.streams["memory"] = {{{0, kChunk}}, content};
  ASSERT_OK(Write("000001", sample));
  const std::vector<Hash128> hashes = {HashBytes(content)};
  std::shared_ptr<Store> store = Open(identity_file_);
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store, "job", "000001");
  ASSERT_TRUE(image.ok());
  Result<std::unique_ptr<StoreReader>> reader = StoreReader::Begin(store, hashes);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  Result<std::vector<std::byte>> record = (*reader)->ReadRecord(hashes[0]);
  ASSERT_TRUE(record.ok()) << record.status().ToString();
  std::span<const std::byte> bytes(*record);
  Result<RecordHeader> header = DecodeRecordHeader(bytes.first<kRecordHeaderBytes>());
  ASSERT_TRUE(header.ok());
  // A node takes what another sends only in the clear.
  Result<std::unique_ptr<StoreWriter>> writer = StoreWriter::Begin(OpenStore(folder_ / "other"));
  ASSERT_TRUE(writer.ok());
  ASSERT_OK((*writer)->PutRecord(*header, bytes.subspan(kRecordHeaderBytes)));
  const Bytes pack = ReadBytes(Packs().front());
  auto records = Records(pack);
  EXPECT_EQ((*writer)
                ->PutRecord(records[0].second, std::span(pack).subspan(records[0].first + kRecordHeaderBytes,
                                                                       records[0].second.stored_size))
                .code(),
            StatusCode::kCorrupt);
}

TEST_F(ImageCryptTest, KeysAreCheckedBeforeTheyAreUsed) {
  const std::string text = PublicKeyText(identity_.public_key());
  EXPECT_EQ(*ParsePublicKey(text), identity_.public_key());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string slip = text;
    slip[i] = slip[i] == '0' ? '1' : '0';
    EXPECT_FALSE(ParsePublicKey(slip).ok()) << i;
  }
  EXPECT_FALSE(ParsePublicKey(text.substr(1)).ok());
  EXPECT_FALSE(ParsePublicKey(text + "0").ok());
  const std::string secret = *ReadFile(identity_file_);
  const std::string line = secret.substr(secret.find("stasis-secret-"), 14 + 72);
  Status status = ParsePublicKey(line).status();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString().find(line.substr(14, 10)), std::string::npos);  // not told to a log
}

TEST_F(ImageCryptTest, AListOfKeysThatSaysNothingStopsWriting) {
  const std::string list = state_ + "/" + kRecipientsFile;
  for (const std::string& text : {std::string(""), std::string("# none\n"), std::string("somebody\n")}) {
    ASSERT_OK(WriteFileAtomically(list, text));
    EXPECT_FALSE(Write("000001", MakeSample(1, kChunk)).ok()) << text;
  }
  Encrypt({identity_.public_key()});
  ASSERT_EQ(chmod(list.c_str(), 0666), 0);
  EXPECT_EQ(Write("000001", MakeSample(1, kChunk)).code(), StatusCode::kPermissionDenied);
  std::filesystem::remove(list);
  ASSERT_OK(WriteFileAtomically(folder_ / "elsewhere", PublicKeyText(identity_.public_key()) + "\n"));
  ASSERT_EQ(symlink((folder_ / "elsewhere").c_str(), list.c_str()), 0);
  EXPECT_FALSE(Write("000001", MakeSample(1, kChunk)).ok());
}

TEST_F(ImageCryptTest, AnIdentityThatOthersCanReadIsRefused) {
  ASSERT_OK(Write("000001", MakeSample(1, kChunk)));
  struct stat info;
  ASSERT_EQ(stat(identity_file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(identity_.Write(identity_file_).code(), StatusCode::kAlreadyExists);
  ASSERT_EQ(chmod(identity_file_.c_str(), 0640), 0);
  Status status = ImageReader::Open(Open(identity_file_), "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(status.ToString(), HasSubstr("chmod 600"));
}

TEST_F(ImageCryptTest, AKeyBlockThatWasChangedIsRefused) {
  Keyring keyring("", identity_file_);
  Result<std::shared_ptr<const CryptSession>> session = keyring.BeginTo({identity_.public_key()});
  ASSERT_TRUE(session.ok());
  const Bytes& block = (*session)->block;
  EXPECT_EQ(RecipientsOf(block)->size(), 1U);
  for (size_t bit = 0; bit < block.size() * 8; ++bit) {
    Bytes bad = block;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(RecipientsOf(bad).ok()) << bit;
  }
  for (size_t size = 0; size < block.size(); ++size) {
    EXPECT_FALSE(RecipientsOf(std::span(block).first(size)).ok()) << size;
  }
  std::vector<PublicKey> many(kMaxRecipients, identity_.public_key());
  Result<std::shared_ptr<const CryptSession>> full = keyring.BeginTo(many);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ((*full)->block.size(), kMaxKeyBlock);
}

}  // namespace
}  // namespace stasis

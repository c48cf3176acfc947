// The collector beside those who use the store: what it removes, what it leaves, whom it waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "dedup/image.h"
#include "dedup/image_testing.h"
#include "dedup/store.h"

namespace stasis {
namespace {

using testing::HasSubstr;
constexpr uint64_t kChunk = 4096;

class GcTest : public testing::Test {
 protected:
  std::shared_ptr<Store> Open() {
    StoreOptions options;
    options.chunk_bytes = kChunk;
    options.pack_bytes = 32 * kChunk;
    return OpenStore(root_, options);
  }
  size_t Files(const std::string& suffix) {
    Result<std::vector<std::string>> names = ListFolder(root_ + "/packs");
    return static_cast<size_t>(std::count_if(
        names->begin(), names->end(), [&](const std::string& name) { return name.ends_with(suffix); }));
  }
  void ExpectClean(Store& store) {
    Result<VerifyReport> report = store.Verify();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    for (const Damage& damage : report->damages) ADD_FAILURE() << damage.file << ": " << damage.what;
  }
  TempFolder folder_;
  const std::string root_ = folder_ / "store";
};

Bytes Chunks(uint64_t from, uint64_t to) {
  Bytes bytes;
  for (uint64_t i = from; i < to; ++i) bytes = Joined({bytes, Noise(i, kChunk)});
  return bytes;
}

Status WriteImage(const std::shared_ptr<Store>& store, const std::string& id, const Bytes& bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> writer, ImageWriter::Create(store, "job", id));
  RETURN_IF_ERROR(writer->AddStream("memory", {{0, bytes.size()}}));
  RETURN_IF_ERROR(WriteStream(writer.get(), "memory", bytes));
  return writer->Commit(Json::object());
}

Status CheckImage(const std::shared_ptr<Store>& store, const std::string& id, const Bytes& bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store, "job", id));
  ASSIGN_OR_RETURN(Bytes read, ReadStream(*reader, "memory"));
  return read == bytes ? Status() : Status(StatusCode::kInternal, "other bytes came back");
}

GcReport Collect(Store& store) {
  Result<GcReport> report = store.CollectGarbage();
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return report.ok() ? *report : GcReport();
}

TEST_F(GcTest, RemovesWhatNobodyNames) {
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 100)));
  ASSERT_OK(WriteImage(store, "000002", Chunks(200, 300)));
  EXPECT_EQ(Collect(*store).packs_removed, 0u);
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  GcReport report = Collect(*store);
  EXPECT_GE(report.packs_removed, 3u);
  EXPECT_EQ(report.packs_in_use, 0u);
  EXPECT_LT(report.bytes_after, report.bytes_before * 6 / 10);
  EXPECT_EQ(store->counts().chunks, 100u);
  EXPECT_EQ(Files(".pack"), Files(".idx"));
  ASSERT_OK(CheckImage(store, "000002", Chunks(200, 300)));
  ExpectClean(*store);
}

TEST_F(GcTest, RewritesPacksOfWhichLittleIsNeeded) {
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 120)));
  Bytes few;
  for (uint64_t i = 0; i < 120; i += 10) few = Joined({few, Chunks(i, i + 1)});
  ASSERT_OK(WriteImage(store, "000002", few));
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  GcReport report = Collect(*store);
  EXPECT_GE(report.packs_rewritten, 3u);
  EXPECT_EQ(store->counts().chunks, 12u);
  EXPECT_EQ(Files(".pack"), 1u);
  ASSERT_OK(CheckImage(store, "000002", few));
  ASSERT_OK(CheckImage(Open(), "000002", few));
  ExpectClean(*store);
  report = Collect(*store);
  EXPECT_EQ(report.packs_rewritten + report.packs_removed, 0u);
}

TEST_F(GcTest, AWriterKeepsWhatItFound) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 10)));
  ASSERT_OK(other->Refresh());
  Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(other, "job", "000002");
  ASSERT_TRUE(writer.ok());
  ASSERT_OK((*writer)->AddStream("memory", {{0, 10 * kChunk}}));
  ASSERT_OK(WriteStream(writer->get(), "memory", Chunks(0, 10)));
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  GcReport report = Collect(*store);
  EXPECT_EQ(report.packs_removed, 0u);
  EXPECT_EQ(report.packs_in_use, 1u);
  ASSERT_OK((*writer)->Commit(Json::object()));
  EXPECT_EQ((*writer)->counts().added_bytes, 0u);
  writer->reset();
  EXPECT_EQ(Collect(*store).packs_removed, 0u);
  ASSERT_OK(CheckImage(store, "000002", Chunks(0, 10)));
  ASSERT_OK(RemoveImage(*store, "job", "000002"));
  EXPECT_EQ(Collect(*store).packs_removed, 1u);
}

TEST_F(GcTest, AWriterStoresAgainWhatWasCollectedBehindItsBack) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 10)));
  ASSERT_OK(other->Refresh());
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  EXPECT_EQ(Collect(*store).packs_removed, 1u);
  EXPECT_EQ(other->counts().chunks, 10u);  // it does not know yet
  ASSERT_OK(WriteImage(other, "000002", Chunks(0, 10)));
  ASSERT_OK(CheckImage(Open(), "000002", Chunks(0, 10)));
}

TEST_F(GcTest, AReaderKeepsItsPacks) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 10)));
  {
    Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(other, "job", "000001");
    ASSERT_TRUE(reader.ok());
    ASSERT_OK(RemoveImage(*store, "job", "000001"));
    EXPECT_EQ(Collect(*store).packs_in_use, 1u);
    Result<Bytes> bytes = ReadStream(**reader, "memory");
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    EXPECT_TRUE(*bytes == Chunks(0, 10));
  }
  EXPECT_EQ(Collect(*store).packs_removed, 1u);
}

TEST_F(GcTest, AReaderFindsWhatWasRewrittenBehindItsBack) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 30)));
  ASSERT_OK(WriteImage(store, "000002", Chunks(3, 5)));
  ASSERT_OK(other->Refresh());
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  EXPECT_EQ(Collect(*store).packs_rewritten, 1u);
  ASSERT_OK(CheckImage(other, "000002", Chunks(3, 5)));
}

TEST_F(GcTest, CopiesGoOnlyWhenTheOneThatStaysIsGood) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 20)));
  ASSERT_OK(WriteImage(other, "000002", Chunks(0, 21)));
  ASSERT_OK(store->Refresh());
  EXPECT_EQ(store->counts().chunks, 41u);
  // The pack that would stay is the larger one: its copy of one chunk rots.
  std::string larger;
  uintmax_t size = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root_ + "/packs")) {
    if (entry.path().extension() != ".pack" || entry.file_size() <= size) continue;
    size = entry.file_size();
    larger = entry.path();
  }
  Bytes bytes = ReadBytes(larger);
  bytes[10 * kChunk] ^= std::byte{1};
  WriteBytes(larger, bytes);
  Result<GcReport> report = store->CollectGarbage();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->packs_rewritten, 1u);
  // 21 in the pack that stays, and the good copy of the one.
  EXPECT_EQ(store->counts().chunks, 22u);
  ASSERT_OK(CheckImage(Open(), "000001", Chunks(0, 20)));
  ASSERT_OK(CheckImage(Open(), "000002", Chunks(0, 21)));
}

// Neither may count on the copy of the other.
TEST_F(GcTest, CopiesInTwoPacksThatBothGo) {
  std::shared_ptr<Store> store = Open(), other = Open();
  ASSERT_OK(WriteImage(store, "000001", Joined({Chunks(0, 20), Chunks(100, 101)})));
  ASSERT_OK(WriteImage(other, "000002", Joined({Chunks(0, 20), Chunks(200, 201)})));
  const Bytes needed = Joined({Chunks(5, 6), Chunks(100, 101), Chunks(200, 201)});
  ASSERT_OK(store->Refresh());
  ASSERT_OK(WriteImage(store, "000003", needed));
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  ASSERT_OK(RemoveImage(*store, "job", "000002"));
  EXPECT_EQ(Collect(*store).packs_rewritten, 2u);
  EXPECT_EQ(store->counts().chunks, 3u);
  ASSERT_OK(CheckImage(Open(), "000003", needed));
}

TEST_F(GcTest, APackWithADamagedChunkThatIsNeededStays) {
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 30)));
  ASSERT_OK(WriteImage(store, "000002", Chunks(0, 3)));
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  std::string pack = root_ + "/packs/" + ListFolder(root_ + "/packs")->at(1);
  Bytes bytes = ReadBytes(pack);
  bytes[kChunk] ^= std::byte{1};
  WriteBytes(pack, bytes);
  GcReport report = Collect(*store);
  EXPECT_EQ(report.packs_rewritten + report.packs_removed, 0u);
  ASSERT_EQ(report.damages.size(), 1u);
  EXPECT_THAT(report.damages[0].file, HasSubstr(".pack"));
  EXPECT_NE(report.damages[0].offset, 0u);
  EXPECT_EQ(Files(".pack"), 1u);
}

TEST_F(GcTest, ADamagedManifestStopsIt) {
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 30)));
  const std::string manifest = root_ + "/images/job/000001.image";
  Bytes bytes = ReadBytes(manifest);
  bytes[bytes.size() / 2] ^= std::byte{4};
  WriteBytes(manifest, bytes);
  Result<GcReport> report = store->CollectGarbage();
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(report.status().ToString(), HasSubstr("images/job/000001.image"));
  EXPECT_EQ(Files(".pack"), 1u);
  std::filesystem::remove(manifest);
  EXPECT_EQ(Collect(*store).packs_removed, 1u);
}

TEST_F(GcTest, LeftoversGoAndWhatIsBeingWrittenStays) {
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(WriteImage(store, "000001", Chunks(0, 3)));
  for (const char* name :
       {"packs/0123456789abcdef.tmp", "packs/0123456789abcdee.idx", "images/job/000009.tmp"}) {
    WriteBytes(root_ + "/" + name, Noise(1, 100));
  }
  WriteBytes(root_ + "/images/notes.txt", Noise(1, 100));  // somebody else's
  Result<std::unique_ptr<StoreWriter>> writer = StoreWriter::Begin(Open());
  ASSERT_TRUE(writer.ok());
  const Bytes content = Chunks(500, 600);
  for (size_t i = 0; i < 100; ++i) {
    std::span<const std::byte> chunk = std::span(content).subspan(i * kChunk, kChunk);
    ASSERT_OK((*writer)->Put(HashBytes(chunk), chunk));
  }
  EXPECT_EQ(Collect(*store).leftovers_removed, 3u);
  ASSERT_OK((*writer)->Finish());
  EXPECT_EQ(Collect(*store).packs_in_use, 4u);  // nothing names them, their writer does not say so yet
  writer->reset();
  EXPECT_EQ(Collect(*store).packs_removed, 4u);
  EXPECT_EQ(Collect(*store).leftovers_removed, 0u);
  ASSERT_OK(CheckImage(store, "000001", Chunks(0, 3)));
}

TEST_F(GcTest, AnIdThatIsUsedAgainIsReadAgain) {
  std::shared_ptr<Store> store = Open();
  for (uint64_t round = 0; round < 3; ++round) {
    ASSERT_OK(WriteImage(store, "000001", Chunks(round * 100, round * 100 + 50)));
    Collect(*store);
    ASSERT_OK(CheckImage(store, "000001", Chunks(round * 100, round * 100 + 50)));
    ASSERT_OK(RemoveImage(*store, "job", "000001"));
  }
  Collect(*store);
  EXPECT_EQ(store->counts().chunks, 0u);
  EXPECT_EQ(Files(""), 0u);
}

TEST_F(GcTest, OneCollectorAtATime) {
  std::shared_ptr<Store> store = Open();
  auto locks = *RealFileSystem().OpenLocks(root_ + "/locks");
  ASSERT_TRUE(*locks->TryLock(0, true));
  EXPECT_EQ(store->CollectGarbage().status().code(), StatusCode::kFailedPrecondition);
  locks.reset();
  Collect(*store);
}

}  // namespace
}  // namespace stasis

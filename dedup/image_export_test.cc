// Images as files that go elsewhere, and come back from who knows where.
#include "dedup/image_export.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "dedup/image.h"
#include "dedup/image_manifest.h"
#include "dedup/image_testing.h"
#include "dedup/pack.h"

namespace stasis {
namespace {

constexpr uint64_t kUnit = 4096;

StoreOptions SmallChunks() {
  StoreOptions options;
  options.chunk_bytes = kUnit;
  return options;
}

class ImageExportTest : public testing::Test {
 protected:
  ImageExportTest() : store_(OpenStore(folder_ / "store", SmallChunks())), sample_(MakeSample(1, kUnit)) {
    EXPECT_TRUE(WriteSample(store_, "job", "000007", sample_, folder_.path()).ok());
  }

  Status Export(const std::string& path, const std::string& id = "000007") {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store_, "job", id));
    return ExportImage(*image, path);
  }
  std::shared_ptr<Store> OtherStore(const std::string& name = "other") {
    return OpenStore(folder_ / name, SmallChunks());
  }
  Status Import(const std::shared_ptr<Store>& store, const std::string& path, std::string task = "",
                std::string id = "") {
    RETURN_IF_ERROR(ImportImage(store, path, &task, &id));
    task_ = task;
    id_ = id;
    return Status();
  }

  TempFolder folder_;
  std::shared_ptr<Store> store_;
  const Sample sample_;
  std::string task_, id_;
};

TEST_F(ImageExportTest, WhatWasExportedIsImported) {
  ASSERT_OK(Export(folder_ / "image"));
  EXPECT_FALSE(Exists(folder_ / "image.partial"));
  struct stat info;
  ASSERT_EQ(stat((folder_ / "image").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, S_IFREG | 0600u);
  std::shared_ptr<Store> other = OtherStore();
  ASSERT_OK(Import(other, folder_ / "image"));
  EXPECT_EQ(task_, "job");
  EXPECT_EQ(id_, "000007");
  ASSERT_OK(ReadSample(other, "job", "000007", sample_, folder_.path()));
  ASSERT_OK(ReadSample(OtherStore(), "job", "000007", sample_, folder_.path()));
}

TEST_F(ImageExportTest, AStoreOfOtherChunksTakesItToo) {
  ASSERT_OK(Export(folder_ / "image"));
  std::shared_ptr<Store> other = OpenStore(folder_ / "other");
  ASSERT_OK(Import(other, folder_ / "image"));
  ASSERT_OK(ReadSample(other, "job", "000007", sample_, folder_.path()));
}

TEST_F(ImageExportTest, ALargeImageGoesInBatches) {
  Sample large;
  Bytes bytes = Joined({Noise(5, 9 * kPieceBytes + 100), Bytes(3 * kPieceBytes)});
  large.streams["s"] = {{{100, bytes.size()}}, bytes};
  ASSERT_OK(WriteSample(store_, "job", "000008", large, folder_.path()));
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store_, "job", "000008");
  ASSERT_TRUE(image.ok());
  const uint64_t unique = (*image)->counts().unique_bytes;
  uint64_t done = 0, calls = 0;
  auto progress = [&](uint64_t now, uint64_t all) {
    EXPECT_GT(now, done);
    EXPECT_EQ(all, unique);
    done = now;
    ++calls;
  };
  ASSERT_OK(ExportImage(**image, folder_ / "image", progress));
  EXPECT_EQ(done, unique);
  EXPECT_GT(calls, 1u);
  std::string task, id;
  done = 0;
  ASSERT_OK(ImportImage(OtherStore(), folder_ / "image", &task, &id, progress));
  EXPECT_EQ(done, unique);
  ASSERT_OK(ReadSample(OtherStore(), "job", "000008", large, folder_.path()));
}

TEST_F(ImageExportTest, AnEmptyImageTravels) {
  ASSERT_OK(WriteSample(store_, "job", "000008", Sample(), folder_.path()));
  ASSERT_OK(Export(folder_ / "image", "000008"));
  ASSERT_OK(Import(OtherStore(), folder_ / "image"));
  ASSERT_OK(ReadSample(OtherStore(), "job", "000008", Sample(), folder_.path()));
}

TEST_F(ImageExportTest, ItGetsTheNameThatIsAskedFor) {
  ASSERT_OK(Export(folder_ / "image"));
  std::shared_ptr<Store> other = OtherStore();
  ASSERT_OK(Import(other, folder_ / "image", "mine", "000042"));
  EXPECT_EQ(task_ + "/" + id_, "mine/000042");
  ASSERT_OK(ReadSample(other, "mine", "000042", sample_, folder_.path()));
  EXPECT_EQ(Import(other, folder_ / "image", "mine", "000042").code(), StatusCode::kAlreadyExists);
  ASSERT_OK(Import(other, folder_ / "image", "mine"));
  EXPECT_EQ(id_, "000007");
  ASSERT_OK(Import(other, folder_ / "image", "mine"));
  EXPECT_EQ(id_, "000043");
  EXPECT_EQ(Import(other, folder_ / "image", "a/b").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Import(other, folder_ / "image", "mine", "7").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Import(other, folder_ / "image", "mine", kHeldImage).code(), StatusCode::kInvalidArgument);
}

TEST_F(ImageExportTest, AnIdThatIsBeingWrittenIsTaken) {
  ASSERT_OK(Export(folder_ / "image"));
  std::shared_ptr<Store> other = OtherStore();
  Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(other, "job", "000007");
  ASSERT_TRUE(writer.ok());
  ASSERT_OK(Import(other, folder_ / "image"));
  EXPECT_EQ(id_, "000008");
}

TEST_F(ImageExportTest, NothingIsReplaced) {
  WriteBytes(folder_ / "image", Noise(1, 10));
  EXPECT_EQ(Export(folder_ / "image").code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(ReadBytes(folder_ / "image") == Noise(1, 10));
  EXPECT_FALSE(Exists(folder_ / "image.partial"));
  ASSERT_EQ(symlink("/nowhere", (folder_ / "link").c_str()), 0);
  EXPECT_EQ(Export(folder_ / "link").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Export(folder_ / "missing/image").code(), StatusCode::kNotFound);
}

TEST_F(ImageExportTest, WhatAnInterruptedExportLeftIsReplaced) {
  WriteBytes(folder_ / "image.partial", Noise(1, 1 << 20));
  ASSERT_OK(Export(folder_ / "image"));
  ASSERT_OK(Import(OtherStore(), folder_ / "image"));
  EXPECT_FALSE(Exists(folder_ / "image.partial"));
}

TEST_F(ImageExportTest, APartialFileThatIsSomethingElseIsLeftAlone) {
  WriteBytes(folder_ / "victim", Noise(1, 10));
  ASSERT_EQ(symlink((folder_ / "victim").c_str(), (folder_ / "image.partial").c_str()), 0);
  EXPECT_FALSE(Export(folder_ / "image").ok());
  ASSERT_EQ(link((folder_ / "victim").c_str(), (folder_ / "other.partial").c_str()), 0);
  EXPECT_EQ(Export(folder_ / "other").code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(ReadBytes(folder_ / "victim") == Noise(1, 10));
}

TEST_F(ImageExportTest, AFailedExportLeavesNothing) {
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store_, "job", "000007");
  ASSERT_TRUE(image.ok());
  for (const std::string& name : Names(folder_ / "store/packs")) {
    ASSERT_EQ(truncate((folder_ / ("store/packs/" + name)).c_str(), 100), 0);
  }
  Status status = ExportImage(**image, folder_ / "image");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_FALSE(Exists(folder_ / "image"));
  EXPECT_FALSE(Exists(folder_ / "image.partial"));
}

TEST_F(ImageExportTest, WhatIsNoExportIsRefused) {
  std::shared_ptr<Store> other = OtherStore();
  EXPECT_EQ(Import(other, folder_ / "missing").code(), StatusCode::kNotFound);
  EXPECT_EQ(Import(other, folder_.path()).code(), StatusCode::kInvalidArgument);
  WriteBytes(folder_ / "x", {});
  EXPECT_EQ(Import(other, folder_ / "x").code(), StatusCode::kCorrupt);
  WriteBytes(folder_ / "y", Noise(1, 1000));
  Status status = Import(other, folder_ / "y");
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("y at offset 0: this is no exported image"), std::string::npos);
}

// An image that takes a few hundred bytes, so that every byte of its file can be tried.
Sample TinySample() {
  Sample sample;
  sample.streams["s"] = {{{0, 2 * kUnit + 100}},
                         Joined({Noise(1, 60), Bytes(2 * kUnit - 60), Noise(2, 100)})};
  sample.folders["f"] = {{"file", Noise(3, 50)}};
  return sample;
}

class ImageDamagedExportTest : public ImageExportTest {
 protected:
  ImageDamagedExportTest() {
    EXPECT_TRUE(WriteSample(store_, "job", "000008", TinySample(), folder_.path()).ok());
    EXPECT_TRUE(Export(path_, "000008").ok());
    good_ = ReadBytes(path_);
  }

  // Says file and offset, and leaves nothing behind.
  void ExpectRefused(const Bytes& bad, StatusCode code = StatusCode::kCorrupt) {
    WriteBytes(path_, bad);
    Status status = Import(other_, path_);
    ASSERT_EQ(status.code(), code) << status.ToString();
    ASSERT_NE(status.message().find(path_), std::string::npos) << status.ToString();
    if (code == StatusCode::kCorrupt) {
      ASSERT_NE(status.message().find(" at offset "), std::string::npos) << status.ToString();
    }
    ASSERT_TRUE(ListImageTasks(*other_)->empty());
    ASSERT_TRUE(Names(folder_ / "other/packs").empty());
    ASSERT_EQ(other_->counts().chunks, 0u);
  }
  size_t ManifestBytes() const {
    uint64_t size;
    std::memcpy(&size, good_.data() + 16, sizeof size);
    return size;
  }
  // `manifest` instead of the one that is there.
  Bytes WithManifest(const ImageManifest& manifest) {
    Bytes bytes = *SerializeImageManifest(manifest);
    std::array<std::byte, kExportHeaderBytes> header = EncodeExportHeader(bytes.size());
    Bytes rest(good_.begin() + static_cast<ptrdiff_t>(kExportHeaderBytes + ManifestBytes()),
               good_.end() - kExportFooterBytes);
    Bytes file = Joined({Bytes(header.begin(), header.end()), bytes, rest});
    std::array<std::byte, kExportFooterBytes> footer =
        EncodeExportFooter({3, file.size() + kExportFooterBytes, HashBytes(bytes)});
    file.insert(file.end(), footer.begin(), footer.end());
    return file;
  }
  ImageManifest Manifest() {
    return *ParseImageManifest(std::span(good_).subspan(kExportHeaderBytes, ManifestBytes()), "m");
  }

  const std::string path_ = folder_ / "image";
  std::shared_ptr<Store> other_ = OtherStore();
  Bytes good_;
};

TEST_F(ImageDamagedExportTest, EveryFlippedBitIsFound) {
  std::mt19937_64 random(1);
  for (size_t bit = 0; bit < good_.size() * 8; bit += FullTest() ? 1 : 1 + random() % 30) {
    SCOPED_TRACE(bit);
    Bytes bad = good_;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    ASSERT_NO_FATAL_FAILURE(ExpectRefused(bad));
  }
}

TEST_F(ImageDamagedExportTest, EveryTruncationAndAdditionIsFound) {
  std::mt19937_64 random(2);
  for (size_t size = 0; size < good_.size(); size += FullTest() ? 1 : 1 + random() % 10) {
    SCOPED_TRACE(size);
    ASSERT_NO_FATAL_FAILURE(
        ExpectRefused(Bytes(good_.begin(), good_.begin() + static_cast<ptrdiff_t>(size))));
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(Joined({good_, Bytes(1)})));
  ASSERT_NO_FATAL_FAILURE(ExpectRefused(Joined({good_, good_})));
}

TEST_F(ImageDamagedExportTest, AnotherVersionIsRefusedByName) {
  Bytes bad = good_;
  bad[8] = std::byte{9};
  std::array<std::byte, 8> sum;
  uint64_t value = HashBytes(std::span(bad).first(24)).low;
  std::memcpy(sum.data(), &value, 8);
  std::copy(sum.begin(), sum.end(), bad.begin() + 24);
  ExpectRefused(bad, StatusCode::kUnsupported);
  EXPECT_NE(Import(other_, path_).message().find("export format version 9, this program reads version 1"),
            std::string::npos);
}

TEST_F(ImageDamagedExportTest, ChunksThatAreNotTheManifestsAreRefused) {
  WriteBytes(path_, WithManifest(Manifest()));
  ASSERT_OK(Import(OtherStore("control"), path_));
  ImageManifest manifest = Manifest();
  ASSERT_EQ(manifest.streams[0].chunks.size(), 3u);
  std::swap(manifest.streams[0].chunks[0], manifest.streams[0].chunks[1]);  // the same chunks, elsewhere
  ASSERT_EQ(manifest.streams[0].chunks[0], kZeroChunk);
  WriteBytes(path_, WithManifest(manifest));
  ASSERT_OK(Import(OtherStore("moved"), path_));
  std::swap(manifest.streams[0].chunks[1], manifest.streams[0].chunks[2]);  // another order, other sizes
  ExpectRefused(WithManifest(manifest));
  manifest = Manifest();
  manifest.streams[0].chunks[1] = Hash128{1, 2};  // one more than there is
  ExpectRefused(WithManifest(manifest));
  manifest.streams[0].chunks = {kZeroChunk, kZeroChunk, kZeroChunk};  // less than there is
  ExpectRefused(WithManifest(manifest));
  manifest = Manifest();
  manifest.folders[0].files[0].chunks[0] = manifest.streams[0].chunks[0];  // one hash, two sizes
  ExpectRefused(WithManifest(manifest));
}

TEST_F(ImageDamagedExportTest, AManifestOfAnotherFileIsRefused) {
  ImageManifest manifest = Manifest();
  manifest.meta = {{"who", "else"}};
  Bytes bad = WithManifest(manifest);
  std::array<std::byte, kExportFooterBytes> footer = EncodeExportFooter(
      {3, bad.size(), HashBytes(std::span(good_).subspan(kExportHeaderBytes, ManifestBytes()))});
  std::copy(footer.begin(), footer.end(), bad.end() - kExportFooterBytes);
  ExpectRefused(bad);
}

TEST_F(ImageDamagedExportTest, AHeldImageIsNoTasksImage) {
  ImageManifest manifest = Manifest();
  manifest.id = kHeldImage;
  WriteBytes(path_, WithManifest(manifest));
  EXPECT_EQ(Import(other_, path_).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Names(folder_ / "other/images").empty());
}

TEST_F(ImageDamagedExportTest, ItSaysWhatItHolds) {
  Result<ExportedImage> peek = PeekExport(path_);
  ASSERT_TRUE(peek.ok());
  EXPECT_EQ(peek->task + "/" + peek->id, "job/000008");
  EXPECT_EQ(peek->meta, Json::object());
}

}  // namespace
}  // namespace stasis

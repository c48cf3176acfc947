// Images as their users see them: written by pieces, listed, read back.
#include "dedup/image.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/parallel.h"
#include "dedup/image_manifest.h"
#include "dedup/image_testing.h"

namespace stasis {
namespace {

constexpr uint64_t kUnit = kDefaultChunkBytes;

class ImageTest : public testing::Test {
 protected:
  ImageTest() : store_(OpenStore(root_)) {}

  std::unique_ptr<ImageWriter> Create(const std::string& id = "000001") {
    Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(store_, "job", id);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    return writer.ok() ? *std::move(writer) : nullptr;
  }
  std::unique_ptr<ImageReader> OpenImage(const std::string& id = "000001") {
    Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(store_, "job", id);
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  StatusCode OpenCode(const std::string& id = "000001") {
    return ImageReader::Open(store_, "job", id).status().code();
  }

  TempFolder folder_;
  const std::string root_ = folder_ / "store";
  std::shared_ptr<Store> store_;
};

TEST_F(ImageTest, WhatWasWrittenIsRead) {
  Sample sample = MakeSample(1, kUnit);
  ImageCounts written;
  ASSERT_OK(WriteSample(store_, "job", "000001", sample, folder_.path(), &written));
  ASSERT_OK(ReadSample(store_, "job", "000001", sample, folder_.path()));
  std::shared_ptr<Store> again = OpenStore(root_);
  ASSERT_OK(ReadSample(again, "job", "000001", sample, folder_.path()));

  std::unique_ptr<ImageReader> reader = OpenImage();
  EXPECT_EQ(reader->task(), "job");
  EXPECT_EQ(reader->id(), "000001");
  EXPECT_EQ(reader->streams(), (std::vector<std::string>{"device", "host", "nothing"}));
  EXPECT_EQ(reader->folders(), (std::vector<std::string>{"criu", "none"}));
  std::vector<ImageFile> files = reader->FolderFiles("criu");
  ASSERT_EQ(files.size(), 4u);
  EXPECT_EQ(files[0].name, "core-1.img");
  EXPECT_EQ(files[0].size, 700u);
  EXPECT_TRUE(reader->FolderFiles("other").empty());
  uint64_t last = 0;
  ASSERT_OK(reader->VerifyAll([&](uint64_t done, uint64_t all) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, all);
    last = done;
  }));
  EXPECT_EQ(last, reader->counts().unique_bytes);

  ImageCounts read = reader->counts();
  EXPECT_EQ(read.bytes, written.bytes);
  EXPECT_EQ(read.zero_bytes, written.zero_bytes);
  EXPECT_EQ(read.unique_bytes, written.unique_bytes);
  EXPECT_EQ(read.manifest_bytes, written.manifest_bytes);
  EXPECT_EQ(written.new_bytes, written.unique_bytes);
  EXPECT_GT(written.added_bytes, 0u);
  EXPECT_EQ(written.manifest_bytes, ReadBytes(root_ + "/images/job/000001.image").size());
}

TEST_F(ImageTest, CountsAreOfWhatIsThere) {
  std::unique_ptr<ImageWriter> writer = Create();
  Bytes noise = Noise(1, kUnit);
  Bytes bytes = Joined({noise, Bytes(2 * kUnit), noise, Noise(2, 10)});
  ASSERT_OK(writer->AddStream("s", {{0, bytes.size()}}));
  ASSERT_OK(WriteStream(writer.get(), "s", bytes));
  ASSERT_OK(writer->Commit(Json::object()));
  ImageCounts counts = writer->counts();
  EXPECT_EQ(counts.bytes, 4 * kUnit + 10);
  EXPECT_EQ(counts.zero_bytes, 2 * kUnit);
  EXPECT_EQ(counts.unique_bytes, kUnit + 10);
  std::vector<ChunkRef> chunks = OpenImage()->Chunks();
  ASSERT_EQ(chunks.size(), 5u);
  EXPECT_EQ(chunks[0].hash, HashBytes(noise));
  EXPECT_EQ(chunks[1].hash, kZeroChunk);
  EXPECT_EQ(chunks[3].hash, chunks[0].hash);
  EXPECT_EQ(chunks[4].size, 10u);
}

TEST_F(ImageTest, EveryChunkSizeWorks) {
  for (uint64_t unit = 4 << 10; unit <= 1 << 20; unit *= 2) {
    StoreOptions options;
    options.chunk_bytes = unit;
    std::string root = folder_ / ("store-" + std::to_string(unit));
    std::shared_ptr<Store> store = OpenStore(root, options);
    Sample sample = MakeSample(unit, unit);
    ASSERT_OK(WriteSample(store, "job", "000001", sample, folder_.path()));
    store = OpenStore(root);  // the store's own size counts
    EXPECT_EQ(store->options().chunk_bytes, unit);
    ASSERT_OK(ReadSample(store, "job", "000001", sample, folder_.path()));
    ImageCounts counts;
    ASSERT_OK(WriteSample(store, "job", "000002", sample, folder_.path(), &counts));
    EXPECT_EQ(counts.new_bytes, 0u);
    Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(store, "job", "000002");
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->manifest().chunk_bytes, unit);
    for (const ChunkRef& chunk : (*reader)->Chunks()) EXPECT_LE(chunk.size, unit);
  }
}

TEST_F(ImageTest, ASecondImageTakesOnlyWhatChanged) {
  Sample sample = MakeSample(1, kUnit);
  ASSERT_OK(WriteSample(store_, "job", "000001", sample, folder_.path()));
  sample.streams["device"].bytes[3] ^= std::byte{1};
  ImageCounts counts;
  ASSERT_OK(WriteSample(store_, "other", "000001", sample, folder_.path(), &counts));
  EXPECT_EQ(counts.new_bytes, kUnit);
  ASSERT_OK(ReadSample(store_, "other", "000001", sample, folder_.path()));
}

TEST_F(ImageTest, EqualMemoryGivesEqualChunksWhateverLiesBefore) {
  Bytes noise = Noise(1, 4 * kUnit);
  std::unique_ptr<ImageWriter> writer = Create();
  ASSERT_OK(writer->AddStream("a", {{0, noise.size()}}));
  ASSERT_OK(WriteStream(writer.get(), "a", noise));
  ASSERT_OK(writer->AddStream("b", {{kUnit - 100, 100}, {8 * kUnit, noise.size()}}));
  ASSERT_OK(WriteStream(writer.get(), "b", Joined({Noise(2, 100), noise})));
  ASSERT_OK(writer->Commit(Json::object()));
  EXPECT_EQ(writer->counts().unique_bytes, noise.size() + 100);
}

TEST_F(ImageTest, WhatTheStoreHasIsNotWanted) {
  Bytes bytes = Joined({Noise(1, kUnit), Noise(2, kUnit), Bytes(kUnit), Noise(1, kUnit), Noise(3, 50)});
  ASSERT_OK(WriteSample(store_, "before", "000001",
                        Sample{{{"s", {{{0, kUnit}}, Noise(2, kUnit)}}}, {}, Json::object()},
                        folder_.path()));
  std::unique_ptr<ImageWriter> writer = Create();
  ASSERT_OK(writer->AddStream("s", {{0, bytes.size()}}));
  std::vector<Hash128> hashes;
  const StreamLayout& layout = writer->Layout("s");
  auto chunk = [&](size_t i) { return std::span(bytes).subspan(layout.ChunkOffset(i), layout.ChunkSize(i)); };
  for (size_t i = 0; i < 5; ++i) hashes.push_back(AllZero(chunk(i)) ? kZeroChunk : HashBytes(chunk(i)));
  std::vector<bool> wanted;
  ASSERT_OK(writer->OfferPiece("s", 0, hashes, &wanted));
  EXPECT_EQ(wanted, (std::vector<bool>{true, false, false, false, true}));

  EXPECT_EQ(writer->WriteChunk("s", 1, chunk(1)).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(writer->WriteChunk("s", 0, chunk(0)));
  EXPECT_EQ(writer->WriteChunk("s", 0, chunk(0)).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(writer->WriteChunk("s", 4, chunk(4)));
  ASSERT_OK(writer->Commit(Json::object()));
  Result<Bytes> read = ReadStream(*OpenImage(), "s");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(*read == bytes);
  EXPECT_EQ(writer->counts().new_bytes, kUnit + 50);
}

TEST_F(ImageTest, WhatIsNotAsOfferedIsRefused) {
  std::unique_ptr<ImageWriter> writer = Create();
  ASSERT_OK(writer->AddStream("s", {{0, kUnit}}));
  std::vector<bool> wanted;
  EXPECT_EQ(writer->OfferPiece("s", 0, std::vector<Hash128>(2), &wanted).code(),
            StatusCode::kInvalidArgument);
  ASSERT_OK(writer->OfferPiece("s", 0, std::vector<Hash128>{HashBytes(Noise(1, kUnit))}, &wanted));
  Status status = writer->WriteChunk("s", 0, Noise(2, kUnit));
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
  EXPECT_EQ(writer->Commit(Json::object()).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(OpenCode(), StatusCode::kNotFound);
}

TEST_F(ImageTest, AnIncompleteImageIsNotCommitted) {
  for (bool offered : {false, true}) {
    std::unique_ptr<ImageWriter> writer = Create();
    ASSERT_OK(writer->AddStream("s", {{0, kUnit}}));
    std::vector<bool> wanted;
    if (offered) {
      ASSERT_OK(writer->OfferPiece("s", 0, std::vector<Hash128>{HashBytes(Noise(1, kUnit))}, &wanted));
    }
    Status status = writer->Commit(Json::object());
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("'s' is not complete"), std::string::npos) << status.ToString();
    EXPECT_EQ(OpenCode(), StatusCode::kNotFound);
  }
}

TEST_F(ImageTest, WhatWasNotAddedIsRefused) {
  std::unique_ptr<ImageWriter> writer = Create();
  ASSERT_OK(writer->AddStream("s", {{0, 10}}));
  Bytes ten(10);
  EXPECT_EQ(writer->AddStream("s", {{0, 10}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddStream("a/b", {{0, 10}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddStream("t", {{0, 0}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddStream("t", {{UINT64_MAX, 2}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->WritePiece("t", 0, ten).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->WritePiece("s", 1, ten).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->WritePiece("s", 0, Bytes(9)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->WriteChunk("s", 1, ten).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->AddFolder("..", folder_.path()).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(writer->WritePiece("s", 0, ten));
  EXPECT_EQ(writer->WritePiece("s", 0, ten).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(writer->Commit(Json::object()));

  std::unique_ptr<ImageReader> reader = OpenImage();
  EXPECT_EQ(reader->Layout("t"), nullptr);
  EXPECT_EQ(reader->ReadPiece("t", 0, ten).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->ReadPiece("s", 1, ten).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->ReadPiece("s", 0, std::span(ten).first(9)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->ExtractFolder("t", folder_.path()).code(), StatusCode::kNotFound);
}

TEST_F(ImageTest, ManyThreadsWriteAndRead) {
  std::unique_ptr<ImageWriter> writer = Create();
  Bytes bytes = Noise(1, 8 * kPieceBytes);
  for (size_t i = 0; i < 3; ++i) std::copy_n(bytes.begin(), kPieceBytes, bytes.begin() + i * 2 * kPieceBytes);
  std::atomic<int> added{0};
  ASSERT_OK(ParallelFor(4, 4, [&](size_t i, size_t) {
    std::string name = "s" + std::to_string(i);
    RETURN_IF_ERROR(writer->AddStream(name, {{0, bytes.size()}}));
    ++added;
    return WriteStream(writer.get(), name, bytes);
  }));
  ASSERT_EQ(added, 4);
  ASSERT_OK(writer->AddStream("shared", {{4096, bytes.size()}}));
  const std::vector<Piece>& pieces = writer->Layout("shared").pieces();
  ASSERT_OK(ParallelFor(pieces.size(), 4, [&](size_t i, size_t) {
    return writer->WritePiece("shared", i, std::span(bytes).subspan(pieces[i].offset, pieces[i].size));
  }));
  ASSERT_OK(writer->Commit(Json::object()));
  std::unique_ptr<ImageReader> reader = OpenImage();
  ASSERT_OK(ParallelFor(4, 4, [&](size_t i, size_t) -> Status {
    ASSIGN_OR_RETURN(Bytes read, ReadStream(*reader, i == 3 ? "shared" : "s" + std::to_string(i)));
    EXPECT_TRUE(read == bytes);
    return Status();
  }));
}

TEST_F(ImageTest, AnIdIsTakenOnce) {
  std::unique_ptr<ImageWriter> writer = Create();
  std::shared_ptr<Store> other = OpenStore(root_);
  Status status = ImageWriter::Create(other, "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("job/000001 is being written"), std::string::npos) << status.ToString();
  EXPECT_TRUE(ImageWriter::Create(other, "job", "000002").ok());
  EXPECT_TRUE(ImageWriter::Create(other, "job2", "000001").ok());
  ASSERT_OK(writer->Commit({{"who", "first"}}));
  writer.reset();
  EXPECT_EQ(ImageWriter::Create(other, "job", "000001").status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(OpenImage()->meta()["who"], "first");
}

TEST_F(ImageTest, OfManyWritersOfOneIdOneWins) {
  for (int round = 0; round < 10; ++round) {
    std::string id = "00001" + std::to_string(round);
    std::atomic<int> won{0}, lost{0};
    ASSERT_OK(ParallelFor(6, 6, [&](size_t i, size_t) -> Status {
      ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(root_));
      Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(store, "job", id);
      if (writer.status().code() == StatusCode::kAlreadyExists) return ++lost, Status();
      RETURN_IF_ERROR(writer.status());
      RETURN_IF_ERROR((*writer)->Commit({{"who", i}}));
      return ++won, Status();
    }));
    EXPECT_EQ(won, 1);
    EXPECT_EQ(lost, 5);
  }
}

TEST_F(ImageTest, WhatAnInterruptedWriterLeftIsReplaced) {
  ASSERT_OK(MakeFolders(root_ + "/images/job"));
  ASSERT_OK(WriteFileAtomically(root_ + "/images/job/000001.tmp", "half a manifest"));
  ASSERT_OK(WriteSample(store_, "job", "000001", MakeSample(1, kUnit), folder_.path()));
  EXPECT_EQ(Names(root_ + "/images/job"), (std::vector<std::string>{"000001.image"}));
}

TEST_F(ImageTest, NamesThatAreNoneAreRefused) {
  for (std::string task : {"", "..", "a/b", "a\nb"}) {
    EXPECT_EQ(ImageWriter::Create(store_, task, "000001").status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ImageReader::Open(store_, task, "000001").status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(RemoveImage(*store_, task, "000001").code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(ListImages(*store_, task).status().code(), StatusCode::kInvalidArgument);
  }
  for (std::string id : {"", "1", "00000a", "../../", "0000001", "00001/"}) {
    EXPECT_EQ(ImageWriter::Create(store_, "job", id).status().code(), StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(ImageReader::Open(store_, "job", id).status().code(), StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(RemoveImage(*store_, "job", id).code(), StatusCode::kInvalidArgument) << id;
  }
}

TEST_F(ImageTest, ListsAreOfCommittedImages) {
  EXPECT_TRUE(ListImageTasks(*store_)->empty());
  EXPECT_TRUE(ListImages(*store_, "job")->empty());
  EXPECT_EQ(*NextImageId(*store_, "job"), "000001");
  for (std::string id : {"000009", "000002", "000010"}) {
    ASSERT_OK(Create(id)->Commit(Json::object()));
  }
  std::unique_ptr<ImageWriter> held = Create(kHeldImage);
  ASSERT_OK(held->AddStream("s", {{0, 5}}));
  ASSERT_OK(held->WritePiece("s", 0, Noise(1, 5)));
  ASSERT_OK(held->Commit(Json::object()));
  ASSERT_OK(MakeFolders(root_ + "/images/empty"));
  ASSERT_OK(WriteFileAtomically(root_ + "/images/job/000011.tmp", "x"));
  ASSERT_OK(WriteFileAtomically(root_ + "/images/job/12.image", "x"));
  std::unique_ptr<ImageWriter> unfinished = Create("000020");
  EXPECT_EQ(*ListImages(*store_, "job"), (std::vector<std::string>{"000002", "000009", "000010"}));
  EXPECT_EQ(*ListImageTasks(*store_), (std::vector<std::string>{"job"}));
  EXPECT_EQ(*NextImageId(*store_, "job"), "000011");
  EXPECT_TRUE(ImageReader::Open(store_, "job", kHeldImage).ok());

  ASSERT_OK(RemoveImage(*store_, "job", "000009"));
  EXPECT_EQ(RemoveImage(*store_, "job", "000009").code(), StatusCode::kNotFound);
  EXPECT_EQ(OpenCode("000009"), StatusCode::kNotFound);
  EXPECT_EQ(*ListImages(*store_, "job"), (std::vector<std::string>{"000002", "000010"}));
  ASSERT_OK(Create("999999")->Commit(Json::object()));
  EXPECT_EQ(NextImageId(*store_, "job").status().code(), StatusCode::kResourceExhausted);
}

TEST_F(ImageTest, ImagesOfTheVersionBeforeAreRefusedByName) {
  std::string images = folder_ / "images/job";
  ASSERT_OK(MakeFolders(images + "/000003"));
  ASSERT_OK(WriteFileAtomically(images + "/000003/manifest.json", "{}"));
  Status status = RefuseFolderImage(images, "000003");
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(), "image 000003 in " + images +
                                  " has image format version 1 (a folder), this program reads version 2");
  EXPECT_TRUE(RefuseFolderImage(images, "000004").ok());
  std::string task, id;
  for (std::string path : {images + "/000003", images + "/000003//"}) {
    EXPECT_EQ(ImportImage(store_, path, &task, &id).code(), StatusCode::kUnsupported);
  }
}

TEST_F(ImageTest, AManifestIsOfTheImageItIsNamedAfter) {
  ASSERT_OK(WriteSample(store_, "job", "000001", MakeSample(1, kUnit), folder_.path()));
  std::filesystem::copy_file(root_ + "/images/job/000001.image", root_ + "/images/job/000002.image");
  Status status = ImageReader::Open(store_, "job", "000002").status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("000002.image: it says that it is image job/000001"), std::string::npos);
}

TEST_F(ImageTest, AChunkThatIsInNoPackIsNamed) {
  ASSERT_OK(WriteSample(store_, "job", "000001", MakeSample(1, kUnit), folder_.path()));
  std::filesystem::remove_all(root_ + "/packs");
  store_ = OpenStore(root_);
  Status status = ImageReader::Open(store_, "job", "000001").status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("image job/000001: chunk "), std::string::npos) << status.ToString();
}

class ImageFolderTest : public ImageTest {
 protected:
  ImageFolderTest() {
    EXPECT_TRUE(MakeFolders(source_).ok());
    EXPECT_TRUE(MakeFolders(target_).ok());
  }
  Status Add(const std::function<std::vector<Segment>(const std::string&, uint64_t)>& segments_of = nullptr) {
    std::unique_ptr<ImageWriter> writer = Create();
    RETURN_IF_ERROR(writer->AddFolder("criu", source_, segments_of));
    return writer->Commit(Json::object());
  }
  const std::string source_ = folder_ / "source", target_ = folder_ / "target";
};

TEST_F(ImageFolderTest, LargeFilesAndOddNamesComeBack) {
  std::map<std::string, Bytes> files = {
      {"large", Joined({Noise(1, kPieceBytes), Bytes(2 * kPieceBytes), Noise(2, 77)})},
      {" with space\"and\\", Noise(3, 5)},
      {"\xff\xfe", Noise(4, 5)},
      {std::string(255, 'n'), {}}};
  for (const auto& [name, bytes] : files) {
    ASSERT_EQ(chmod(source_.c_str(), 0700), 0);
    Result<Fd> fd = OpenFile(source_ + "/" + name, O_WRONLY | O_CREAT, 0644);
    ASSERT_TRUE(fd.ok());
    ASSERT_OK(WriteAt(fd->get(), bytes, 0));
  }
  ASSERT_OK(Add());
  ASSERT_OK(OpenImage()->ExtractFolder("criu", target_));
  EXPECT_EQ(Names(target_).size(), files.size());
  for (const auto& [name, bytes] : files) {
    EXPECT_TRUE(ReadBytes(target_ + "/" + name) == bytes) << name;
    struct stat info;
    ASSERT_EQ(stat((target_ + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode, S_IFREG | 0600u);
    // Zeros take no room.
    if (name == "large") {
      EXPECT_LT(static_cast<uint64_t>(info.st_blocks) * 512, 2 * kPieceBytes);
    }
  }
}

TEST_F(ImageFolderTest, SegmentsMakePagesMeetThoseOfStreams) {
  Bytes pages = Noise(1, 3 * kUnit);
  WriteBytes(source_ + "/pages", Joined({Noise(2, 4096), pages}));
  std::unique_ptr<ImageWriter> writer = Create();
  ASSERT_OK(writer->AddStream("s", {{0, pages.size()}}));
  ASSERT_OK(WriteStream(writer.get(), "s", pages));
  ASSERT_OK(writer->AddFolder("criu", source_, [](const std::string& file, uint64_t size) {
    EXPECT_EQ(file, "pages");
    EXPECT_EQ(size, 4096 + 3 * kUnit);
    return std::vector<Segment>{{kUnit - 4096, 4096}, {77 * kUnit, 3 * kUnit}};
  }));
  ASSERT_OK(writer->Commit(Json::object()));
  EXPECT_EQ(writer->counts().unique_bytes, pages.size() + 4096);
  ASSERT_OK(OpenImage()->ExtractFolder("criu", target_));
  EXPECT_TRUE(ReadBytes(target_ + "/pages") == ReadBytes(source_ + "/pages"));
}

TEST_F(ImageFolderTest, SegmentsOfAnotherSizeAreRefused) {
  WriteBytes(source_ + "/pages", Noise(1, 100));
  for (uint64_t size : {99u, 101u}) {
    Status status = Add([&](const std::string&, uint64_t) { return std::vector<Segment>{{0, size}}; });
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  }
}

TEST_F(ImageFolderTest, WhatIsNoPlainFileIsRefused) {
  std::string path = source_ + "/odd";
  auto check = [&] {
    Status status = Add();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("/odd is no regular file"), std::string::npos) << status.ToString();
    ASSERT_OK(RemoveTree(path));
  };
  ASSERT_EQ(symlink("/etc/hostname", path.c_str()), 0);
  check();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  check();
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  check();
  ASSERT_OK(Add());
  EXPECT_EQ(Create("000002")->AddFolder("x", folder_ / "missing").code(), StatusCode::kNotFound);
}

TEST_F(ImageFolderTest, AFileThatChangesItsSizeIsRefused) {
  for (off_t size : {50, 150}) {
    WriteBytes(source_ + "/file", Noise(1, 100));
    // Called between the listing and the reading.
    Status status = Add([&](const std::string&, uint64_t) {
      EXPECT_EQ(truncate((source_ + "/file").c_str(), size), 0);
      return std::vector<Segment>();
    });
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("/file changed while it was read"), std::string::npos)
        << status.ToString();
    EXPECT_EQ(OpenCode(), StatusCode::kNotFound);
  }
}

TEST_F(ImageFolderTest, ExtractingReplacesNothingAndFollowsNothing) {
  WriteBytes(source_ + "/a", Noise(1, 100));
  WriteBytes(source_ + "/b", Noise(2, 100));
  ASSERT_OK(Add());
  WriteBytes(folder_ / "victim", Noise(3, 10));
  ASSERT_EQ(symlink((folder_ / "victim").c_str(), (target_ + "/b").c_str()), 0);
  EXPECT_EQ(OpenImage()->ExtractFolder("criu", target_).code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(ReadBytes(folder_ / "victim") == Noise(3, 10));
  ASSERT_EQ(symlink(source_.c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_FALSE(OpenImage()->ExtractFolder("criu", folder_ / "link").ok());
  EXPECT_EQ(Names(source_).size(), 2u);
}

}  // namespace
}  // namespace stasis

#include "ghost/image.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "ghost/fault.h"
#include "ghost/testing.h"

namespace stasis {
namespace {

std::vector<std::byte> RandomBytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Two chunks of noise around one of zeros, a short last one, and two files.
Status WriteImage(const std::string& folder, const std::string& id, std::vector<std::byte>* content) {
  *content = RandomBytes(3 * kImageChunk + 1000, 7);
  std::fill_n(content->begin() + kImageChunk, kImageChunk, std::byte{0});
  ASSIGN_OR_RETURN(auto writer, FolderImageWriter::Create(folder, id));
  RETURN_IF_ERROR(writer->AddStream("memory", content->size()));
  for (uint64_t at = 0, i = 0; at < content->size(); at += kImageChunk, ++i) {
    auto part = std::span(*content).subspan(at, std::min<uint64_t>(kImageChunk, content->size() - at));
    RETURN_IF_ERROR(writer->WriteChunk("memory", i, part));
  }
  ASSIGN_OR_RETURN(std::string files, writer->AddFolder("files"));
  RETURN_IF_ERROR(WriteFileAtomically(files + "/a.img", "some text", 0644));
  RETURN_IF_ERROR(WriteFileAtomically(files + "/empty", ""));
  return writer->Commit({{"answer", 42}});
}

TEST(ImageTest, WhatWasWrittenIsRead) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  auto reader = FolderImageReader::Open(folder.path(), "000001");
  ASSERT_OK(reader.status());
  EXPECT_EQ((*reader)->meta(), Json({{"answer", 42}}));
  EXPECT_EQ((*reader)->StreamSize("memory"), content.size());
  std::vector<std::byte> read(content.size());
  for (uint64_t at = 0, i = 0; at < read.size(); at += kImageChunk, ++i) {
    ASSERT_OK((*reader)->ReadChunk(
        "memory", i, std::span(read).subspan(at, std::min<uint64_t>(kImageChunk, read.size() - at))));
  }
  EXPECT_EQ(read, content);
  ASSERT_OK((*reader)->VerifyAll());
  EXPECT_EQ(ReadText((*reader)->FolderPath("files") + "/a.img"), "some text");
}

TEST(ImageTest, ChunksOfZerosTakeNoSpace) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  struct stat info;
  ASSERT_EQ(stat((folder / "000001/streams/memory").c_str(), &info), 0);
  EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * 512, 2 * kImageChunk + (1 << 16));
}

TEST(ImageTest, NobodyElseMayRead) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  for (const char* name : {"000001", "000001/streams", "000001/files", "000001/streams/memory",
                           "000001/files/a.img", "000001/manifest.json"}) {
    struct stat info;
    ASSERT_EQ(stat((folder / name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0077, 0u) << name;
  }
}

// Flips one bit of one byte, and puts it back.
bool DamageIsFound(const std::string& folder, const std::string& file, uint64_t offset, int bit) {
  Fd fd(open(file.c_str(), O_RDWR));
  std::byte byte;
  EXPECT_TRUE(ReadAt(fd.get(), std::span(&byte, 1), offset).ok());
  std::byte damaged = byte ^ static_cast<std::byte>(1 << bit);
  EXPECT_TRUE(WriteAt(fd.get(), std::span(&damaged, 1), offset).ok());
  auto reader = FolderImageReader::Open(folder, "000001");
  Status status = reader.ok() ? (*reader)->VerifyAll() : reader.status();
  EXPECT_TRUE(WriteAt(fd.get(), std::span(&byte, 1), offset).ok());
  return status.code() == StatusCode::kCorrupt;
}

TEST(ImageTest, EveryByteOfManifestAndFilesIsCovered) {
  TempFolder folder;
  auto writer = FolderImageWriter::Create(folder.path(), "000001");
  ASSERT_OK(writer.status());
  ASSERT_OK((*writer)->AddStream("memory", 300));
  ASSERT_OK((*writer)->WriteChunk("memory", 0, RandomBytes(300, 3)));
  auto files = (*writer)->AddFolder("files");
  ASSERT_OK(files.status());
  WriteText(*files + "/a.img", "some text");
  ASSERT_OK((*writer)->Commit(Json::object()));
  for (const char* name : {"manifest.json", "manifest.sum", "streams/memory", "files/a.img"}) {
    std::string path = folder / ("000001/" + std::string(name));
    size_t size = ReadText(path).size();
    ASSERT_GT(size, 0u);
    for (size_t at = 0; at < size; ++at) {
      ASSERT_TRUE(DamageIsFound(folder.path(), path, at, static_cast<int>(at % 8))) << name << " byte " << at;
    }
  }
}

TEST(ImageTest, DamageInLargeStreamsIsFoundInTheChunk) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  std::string path = folder / "000001/streams/memory";
  for (uint64_t at : {uint64_t{0}, kImageChunk - 1, kImageChunk, 2 * kImageChunk - 1, content.size() - 1}) {
    EXPECT_TRUE(DamageIsFound(folder.path(), path, at, 4)) << at;
  }
}

TEST(ImageTest, MissingAndCutFilesAreFoundOnOpening) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  ASSERT_EQ(truncate((folder / "000001/streams/memory").c_str(), 100), 0);
  EXPECT_EQ(FolderImageReader::Open(folder.path(), "000001").status().code(), StatusCode::kCorrupt);
  ASSERT_EQ(unlink((folder / "000001/streams/memory").c_str()), 0);
  EXPECT_EQ(FolderImageReader::Open(folder.path(), "000001").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(FolderImageReader::Open(folder.path(), "000009").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FolderImageReader::Open(folder.path(), "../x").status().code(), StatusCode::kInvalidArgument);
}

TEST(ImageTest, AnImageThatIsNotCommittedLeavesNothing) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  {
    auto writer = FolderImageWriter::Create(folder.path(), "000002");
    ASSERT_OK(writer.status());
    ASSERT_OK((*writer)->AddStream("memory", 10));
    EXPECT_TRUE(Exists(folder / "000002.partial"));
    EXPECT_EQ((*writer)->Commit(Json::object()).code(), StatusCode::kInternal) << "a chunk is missing";
  }
  EXPECT_FALSE(Exists(folder / "000002.partial"));
  auto ids = ListImages(folder.path());
  ASSERT_OK(ids.status());
  EXPECT_EQ(*ids, std::vector<std::string>{"000001"});
  EXPECT_EQ(*NextImageId(folder.path()), "000002");
}

TEST(ImageTest, AFailedRenameKeepsTheLastImageGood) {
  TempFolder folder;
  std::vector<std::byte> content;
  ASSERT_OK(WriteImage(folder.path(), "000001", &content));
  ASSERT_OK(SetFault("commit-inside:fail"));
  EXPECT_EQ(WriteImage(folder.path(), "000002", &content).code(), StatusCode::kInternal);
  ASSERT_OK(SetFault(""));
  EXPECT_EQ(*ListFolder(folder.path()), std::vector<std::string>{"000001"});
  auto reader = FolderImageReader::Open(folder.path(), "000001");
  ASSERT_OK(reader.status());
  ASSERT_OK((*reader)->VerifyAll());
}

TEST(ImageTest, LeftoversOfAKilledWriterAreRemoved) {
  TempFolder folder;
  ASSERT_OK(MakeFolders(folder / "000003.partial/streams"));
  WriteText(folder / "000003.partial/streams/memory", "half");
  ASSERT_OK(RemovePartialImages(folder.path()));
  EXPECT_TRUE(ListFolder(folder.path())->empty());
}

TEST(ImageTest, ManifestsOfOtherVersionsAndFormatsAreRefused) {
  auto parse = [](const char* text) { return ParseImageManifest(text).status().code(); };
  EXPECT_EQ(parse(R"({"format":"stasis-image","version":1,"id":"1","meta":{},"streams":[],"folders":[]})"),
            StatusCode::kOk);
  EXPECT_EQ(parse(R"({"format":"stasis-image","version":2,"id":"1","meta":{},"streams":[],"folders":[]})"),
            StatusCode::kUnsupported);
  EXPECT_EQ(parse(R"({"format":"other","version":1,"id":"1","meta":{},"streams":[],"folders":[]})"),
            StatusCode::kCorrupt);
  for (const char* bad :
       {"", "[]", "{", R"({"format":"stasis-image"})",
        R"({"format":"stasis-image","version":1,"id":"1","meta":[],"streams":[],"folders":[]})",
        R"({"format":"stasis-image","version":1,"id":"1","meta":{},"streams":[1],"folders":[]})"}) {
    EXPECT_EQ(parse(bad), StatusCode::kCorrupt) << bad;
  }
}

}  // namespace
}  // namespace stasis

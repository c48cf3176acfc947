// Damage and failure below images: nothing of it passes for what was written, and all of it is named.
#include <gtest/gtest.h>

#include <random>

#include "dedup/crash_file_system.h"
#include "dedup/image.h"
#include "dedup/image_testing.h"

namespace stasis {
namespace {

constexpr char kRoot[] = "/disk/store";
constexpr uint64_t kUnit = 4096;
using Disk = std::unique_ptr<CrashFileSystem>;

StoreOptions Options(CrashFileSystem& disk) {
  StoreOptions options;
  options.chunk_bytes = kUnit;
  options.pack_bytes = 4 * kUnit;  // several packs
  options.files = &disk;
  return options;
}

// One image is read; what another has takes no harm from it.
class ImageDamageTest : public testing::Test {
 protected:
  ImageDamageTest() : sample_(MakeSample(1, kUnit)), other_(MakeSample(9, kUnit)) {
    std::shared_ptr<Store> store = OpenStore(kRoot, Options(disk_));
    EXPECT_TRUE(WriteSample(store, "job", "000001", sample_, folder_.path()).ok());
    EXPECT_TRUE(WriteSample(store, "other", "000001", other_, folder_.path()).ok());
  }

  std::vector<std::string> Files(const std::string& part) {
    std::vector<std::string> files;
    for (const std::string& file : disk_.AllFiles()) {
      if (file.find(part) != std::string::npos) files.push_back(file);
    }
    EXPECT_FALSE(files.empty()) << part;
    return files;
  }

  // Reads all; what comes is as it was written.
  static Status ReadAll(const std::shared_ptr<Store>& store, const std::string& task, const Sample& sample) {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store, task, "000001"));
    for (const auto& [name, stream] : sample.streams) {
      ASSIGN_OR_RETURN(Bytes bytes, ReadStream(*reader, name));
      EXPECT_TRUE(bytes == stream.bytes) << name;
    }
    return reader->VerifyAll();
  }

  // `damaged` has been changed at `offset` (or cut there).
  void ExpectFound(CrashFileSystem& disk, const std::string& path, uint64_t offset) {
    ++trials_;
    const std::string file = path.substr(std::string(kRoot).size() + 1);
    std::shared_ptr<Store> store = OpenStore(kRoot, Options(disk));
    ASSERT_NE(store, nullptr);
    Result<VerifyReport> report = store->Verify();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    bool named = false;
    for (const Damage& damage : report->damages) {
      ASSERT_FALSE(damage.what.empty());
      if (damage.file != file) continue;
      named = true;
      ASSERT_LE(damage.offset, offset) << damage.what;
    }
    ASSERT_TRUE(named) << report->damages.size() << " others";
    CheckReading(store, file, "job", sample_);
    CheckReading(store, file, "other", other_);
  }

  void CheckReading(const std::shared_ptr<Store>& store, const std::string& file, const std::string& task,
                    const Sample& sample) {
    Status status = ReadAll(store, task, sample);
    if (file.ends_with(".idx")) {
      ASSERT_OK(status);  // it was made again
    }
    if (file.ends_with(".image")) {
      ASSERT_EQ(status.ok(), file.find(task) == std::string::npos);
    }
    if (status.ok()) return;
    ++failed_reads_;
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << status.ToString();
    ASSERT_NE(status.message().find(file + " at offset "), std::string::npos) << status.ToString();
  }

  void FlipBits(const std::string& part, uint64_t step) {
    std::mt19937_64 random(3);
    for (const std::string& path : Files(part)) {
      const uint64_t bits = disk_.SizeOf(path) * 8;
      for (uint64_t bit = random() % step; bit < bits;
           bit += FullTest() ? 8 + random() % 8 : 1 + random() % step) {
        SCOPED_TRACE(path + " bit " + std::to_string(bit));
        Disk disk = disk_.AfterKill();
        disk->FlipBit(path, bit);
        ASSERT_NO_FATAL_FAILURE(ExpectFound(*disk, path, bit / 8));
      }
    }
  }

  void Cut(const std::string& part, uint64_t step) {
    std::mt19937_64 random(4);
    for (const std::string& path : Files(part)) {
      const uint64_t size = disk_.SizeOf(path);
      for (uint64_t cut = 0; cut < size; cut += FullTest() ? 1 : 1 + random() % step) {
        SCOPED_TRACE(path + " cut to " + std::to_string(cut));
        Disk disk = disk_.AfterKill();
        disk->Truncate(path, cut);
        ASSERT_NO_FATAL_FAILURE(ExpectFound(*disk, path, cut));
      }
    }
  }

  TempFolder folder_;
  CrashFileSystem disk_;
  const Sample sample_, other_;
  int trials_ = 0, failed_reads_ = 0;
};

TEST_F(ImageDamageTest, WithoutDamageNothingIsFound) {
  Disk disk = disk_.AfterKill();
  std::shared_ptr<Store> store = OpenStore(kRoot, Options(*disk));
  Result<VerifyReport> report = store->Verify();
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->damages.empty()) << report->damages[0].what;
  EXPECT_EQ(report->images, 2u);
  ASSERT_OK(ReadAll(store, "job", sample_));
  ASSERT_OK(ReadAll(store, "other", other_));
}

TEST_F(ImageDamageTest, FlippedBitsOfManifestsAreFound) {
  FlipBits(".image", 60);
  EXPECT_GT(failed_reads_, 20);
}

TEST_F(ImageDamageTest, FlippedBitsOfIndexesAreFound) {
  FlipBits(".idx", 100);
  EXPECT_GT(trials_, 100);
}

TEST_F(ImageDamageTest, FlippedBitsOfPacksAreFound) {
  FlipBits(".pack", 400);
  EXPECT_GT(trials_, 1000);
  EXPECT_GT(failed_reads_, 20);
}

TEST_F(ImageDamageTest, CutManifestsAreFound) {
  Cut(".image", 10);
  EXPECT_GT(failed_reads_, 20);
}

TEST_F(ImageDamageTest, CutIndexesAreFound) {
  Cut(".idx", 20);
  EXPECT_GT(trials_, 30);
}

TEST_F(ImageDamageTest, CutPacksAreFound) {
  Cut(".pack", 300);
  EXPECT_GT(failed_reads_, 20);
}

TEST_F(ImageDamageTest, MissingPacksAreFound) {
  for (const std::string& path : Files(".pack")) {
    Disk disk = disk_.AfterKill();
    ASSERT_OK(disk->Remove(path));
    std::shared_ptr<Store> store = OpenStore(kRoot, Options(*disk));
    Result<VerifyReport> report = store->Verify();
    ASSERT_TRUE(report.ok());
    ASSERT_FALSE(report->damages.empty());
    EXPECT_TRUE(report->damages[0].file.ends_with("000001.image"));
    EXPECT_FALSE(ReadAll(store, "job", sample_).ok() && ReadAll(store, "other", other_).ok());
  }
}

// Whatever change of the disk fails, and however often: no image, nothing of it left, and the next try works.
TEST(ImageFailureTest, AFailedCommitLeavesNothing) {
  TempFolder folder;
  const Sample before = MakeSample(1, kUnit), sample = MakeSample(5, kUnit);
  int failures = 0;
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE(at);
    CrashFileSystem disk;
    std::shared_ptr<Store> store = OpenStore(kRoot, Options(disk));
    ASSERT_OK(WriteSample(store, "job", "000001", before, folder.path()));
    const std::vector<std::string> files = disk.AllFiles();
    const uint64_t used = disk.used();
    disk.FailAt(at, Status(StatusCode::kResourceExhausted, "no space left"));
    Status status = WriteSample(store, "job", "000002", sample, folder.path());
    if (status.ok() && disk.changes() < at) break;  // there was no such change
    if (!status.ok()) {
      ++failures;
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
      EXPECT_EQ(*ListImages(*store, "job"), (std::vector<std::string>{"000001"}));
      EXPECT_EQ(ImageReader::Open(store, "job", "000002").status().code(), StatusCode::kNotFound);
      disk.FailAt(0, Status());
      // Once the packs have their names, what is left of them is the collector's.
      Result<GcReport> collected = store->CollectGarbage();
      ASSERT_TRUE(collected.ok()) << collected.status().ToString();
      EXPECT_EQ(disk.AllFiles(), files);
      EXPECT_EQ(disk.used(), used);
      ASSERT_OK(WriteSample(store, "job", "000002", sample, folder.path()));
    }
    ASSERT_OK(ReadSample(store, "job", "000002", sample, folder.path()));
    ASSERT_OK(ReadSample(store, "job", "000001", before, folder.path()));
  }
  EXPECT_GT(failures, 10);
}

// A full disk is noticed before packs get their names: all space comes back at once.
TEST(ImageFailureTest, AFullDiskIsGivenBack) {
  TempFolder folder;
  const Sample before = MakeSample(1, kUnit), sample = MakeSample(5, kUnit);
  CrashFileSystem disk;
  std::shared_ptr<Store> store = OpenStore(kRoot, Options(disk));
  ASSERT_OK(WriteSample(store, "job", "000001", before, folder.path()));
  const uint64_t used = disk.used();
  for (uint64_t room = 0;; room += kUnit / 2) {
    disk.SetCapacity(used + room);
    Status status = WriteSample(store, "job", "000002", sample, folder.path());
    if (status.ok()) break;
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    ASSERT_EQ(disk.used(), used) << room;
    ASSERT_OK(ReadSample(store, "job", "000001", before, folder.path()));
  }
  ASSERT_OK(ReadSample(store, "job", "000002", sample, folder.path()));
}

TEST(ImageFailureTest, AReaderKeepsWhatItReadsThroughACollection) {
  TempFolder folder;
  CrashFileSystem disk;
  std::shared_ptr<Store> store = OpenStore(kRoot, Options(disk));
  const Sample sample = MakeSample(1, kUnit);
  ASSERT_OK(WriteSample(store, "job", "000001", sample, folder.path()));
  Result<std::unique_ptr<ImageReader>> reader = ImageReader::Open(store, "job", "000001");
  ASSERT_TRUE(reader.ok());
  ASSERT_OK(RemoveImage(*store, "job", "000001"));
  ASSERT_TRUE(store->CollectGarbage().ok());
  ASSERT_OK((*reader)->VerifyAll());
  Result<Bytes> bytes = ReadStream(**reader, "device");
  ASSERT_TRUE(bytes.ok());
  EXPECT_TRUE(*bytes == sample.streams.at("device").bytes);
  reader->reset();
  ASSERT_TRUE(store->CollectGarbage().ok());
  EXPECT_EQ(store->counts().chunks, 0u);
}

}  // namespace
}  // namespace stasis

// Bits that flip and files that end early, in every file of a store: verify finds each, with file and offset,
// and no restore gives other bytes.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dedup/crash_file_system.h"
#include "dedup/image.h"
#include "dedup/image_testing.h"
#include "dedup/store.h"

namespace stasis {
namespace {

constexpr char kRoot[] = "/store";
constexpr uint64_t kChunk = 4096;

StoreOptions Options(CrashFileSystem& disk) {
  StoreOptions options;
  options.chunk_bytes = kChunk;
  options.pack_bytes = 16 * kChunk;
  options.files = &disk;
  return options;
}

const Bytes& Content() {
  static const Bytes* const content = [] {
    auto* bytes = new Bytes;
    for (uint64_t i = 0; i < 24; ++i) {
      Bytes chunk =
          i % 2 == 0 ? Noise(i, kChunk) : Joined({Noise(i, kChunk / 2), Bytes(kChunk / 2, std::byte{1})});
      bytes->insert(bytes->end(), chunk.begin(), chunk.end());
    }
    return bytes;
  }();
  return *content;
}

// Every chunk of every pack is needed by one image.
std::unique_ptr<CrashFileSystem> MakeDisk() {
  auto disk = std::make_unique<CrashFileSystem>();
  std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*disk));
  auto writer = std::move(ImageWriter::Create(store, "job", "000001")).value();
  EXPECT_TRUE(writer->AddStream("memory", {{0, Content().size()}}).ok());
  EXPECT_TRUE(WriteStream(writer.get(), "memory", Content()).ok());
  EXPECT_TRUE(writer->Commit({{"why", "test"}}).ok());
  return disk;
}

Result<Bytes> Restore(CrashFileSystem& disk, std::vector<std::string>* notes) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, Store::Open(kRoot, Options(disk)));
  *notes = store->notes();
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> reader, ImageReader::Open(store, "job", "000001"));
  return ReadStream(*reader, "memory");
}

bool Names(std::string_view text, const std::string& file) {
  size_t at = text.find(file);
  return at != std::string_view::npos && text.find("at offset ", at) != std::string_view::npos;
}

// `file` is relative to the root, and was changed at `offset`.
void ExpectFound(const CrashFileSystem& broken, const std::string& file, uint64_t offset) {
  std::unique_ptr<CrashFileSystem> disk = broken.AfterKill();
  std::vector<std::string> notes;
  Result<Bytes> restored = Restore(*disk, &notes);
  bool noted = false;
  for (const std::string& note : notes) noted |= Names(note, file);
  if (restored.ok()) {
    EXPECT_TRUE(*restored == Content());
    EXPECT_TRUE(noted) << "the restore says nothing";
  } else {
    EXPECT_TRUE(restored.status().code() == StatusCode::kCorrupt ||
                restored.status().code() == StatusCode::kUnsupported)
        << restored.status().ToString();
    EXPECT_TRUE(Names(restored.status().message(), file) || noted) << restored.status().ToString();
  }

  disk = broken.AfterKill();
  Result<std::shared_ptr<Store>> store = Store::Open(kRoot, Options(*disk));
  if (!store.ok()) {
    EXPECT_TRUE(Names(store.status().message(), file)) << store.status().ToString();
    return;
  }
  Result<VerifyReport> report = (*store)->Verify();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  bool found = false;
  for (const Damage& damage : report->damages) {
    // Told where the smallest part begins that a sum covers, so not behind the change; a manifest whose size
    // is wrong is told where it ends.
    found |=
        damage.file == file && !damage.what.empty() && (damage.offset <= offset || file.ends_with(".image"));
  }
  EXPECT_TRUE(found) << report->damages.size() << " other damages";
}

std::string Relative(const std::string& path) { return path.substr(sizeof kRoot); }

TEST(StoreDamage, EveryBit) {
  const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
  // Every bit of what is dense with fields; of long runs of bytes one bit in so many.
  const uint64_t sparse = FullTest() ? 31 : 1499;
  uint64_t flips = 0;
  for (const std::string& path : disk->AllFiles()) {
    const uint64_t bits = disk->SizeOf(path) * 8;
    const bool pack = path.ends_with(".pack");
    const uint64_t step = pack ? sparse : FullTest() ? 1 : 7;
    for (uint64_t bit = 0; bit < bits;) {
      std::unique_ptr<CrashFileSystem> broken = disk->AfterKill();
      broken->FlipBit(path, bit);
      ASSERT_NO_FATAL_FAILURE(ExpectFound(*broken, Relative(path), bit / 8));
      ASSERT_FALSE(testing::Test::HasFailure()) << "bit " << bit << " of " << path;
      ++flips;
      // The headers of a pack and of its first record, and its footer, are looked at bit by bit.
      const bool dense = pack && (bit < 80 * 8 || bit >= bits - 40 * 8);
      bit += dense                                                       ? 1
             : pack && bit + step > bits - 40 * 8 && bit < bits - 40 * 8 ? bits - 40 * 8 - bit
                                                                         : step;
    }
  }
  EXPECT_GT(flips, 1000u);
}

TEST(StoreDamage, EveryLength) {
  const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
  for (const std::string& path : disk->AllFiles()) {
    const uint64_t size = disk->SizeOf(path);
    const uint64_t step = !path.ends_with(".pack") ? 1 : FullTest() ? 17 : 301;
    for (uint64_t left = 0; left < size; left += size - left < 60 ? 1 : step) {
      std::unique_ptr<CrashFileSystem> broken = disk->AfterKill();
      broken->Truncate(path, left);
      ASSERT_NO_FATAL_FAILURE(ExpectFound(*broken, Relative(path), left));
      ASSERT_FALSE(testing::Test::HasFailure()) << path << " cut to " << left;
    }
    std::unique_ptr<CrashFileSystem> longer = disk->AfterKill();
    longer->Truncate(path, size + 1);
    ASSERT_NO_FATAL_FAILURE(ExpectFound(*longer, Relative(path), size));
    ASSERT_FALSE(testing::Test::HasFailure()) << path << " with a byte more";
  }
}

// A pack cut exactly between two records, and without its index as well.
TEST(StoreDamage, CutBetweenRecords) {
  const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
  for (const std::string& path : disk->AllFiles()) {
    if (!path.ends_with(".pack")) continue;
    const uint64_t first_record = 32 + 48 + kChunk;
    for (uint64_t left : {uint64_t{32}, first_record}) {
      for (bool with_index : {true, false}) {
        std::unique_ptr<CrashFileSystem> broken = disk->AfterKill();
        broken->Truncate(path, left);
        if (!with_index) ASSERT_OK(broken->Remove(path.substr(0, path.size() - 5) + ".idx"));
        ASSERT_NO_FATAL_FAILURE(ExpectFound(*broken, Relative(path), left));
      }
    }
  }
}

TEST(StoreDamage, LostFiles) {
  const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
  for (const std::string& path : disk->AllFiles()) {
    if (!path.ends_with(".pack")) continue;
    std::unique_ptr<CrashFileSystem> broken = disk->AfterKill();
    ASSERT_OK(broken->Remove(path));
    std::vector<std::string> notes;
    EXPECT_EQ(Restore(*broken, &notes).status().code(), StatusCode::kCorrupt);
    std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*broken));
    Result<VerifyReport> report = store->Verify();
    ASSERT_TRUE(report.ok());
    ASSERT_FALSE(report->damages.empty());
    EXPECT_EQ(report->damages[0].file, "images/job/000001.image");
  }
}

TEST(StoreDamage, AGoodCopyElsewhereIsUsed) {
  CrashFileSystem disk;
  std::shared_ptr<Store> first = *Store::Open(kRoot, Options(disk)),
                         second = *Store::Open(kRoot, Options(disk));
  for (const auto& store : {first, second}) {
    auto writer = std::move(StoreWriter::Begin(store)).value();
    ASSERT_OK(writer->Put(HashBytes(std::span(Content()).first(kChunk)), std::span(Content()).first(kChunk)));
    ASSERT_OK(writer->Finish());
  }
  const std::vector<std::string> files = disk.AllFiles();
  int damaged = 0;
  for (const std::string& path : files) {
    if (!path.ends_with(".pack")) continue;
    std::unique_ptr<CrashFileSystem> broken = disk.AfterKill();
    broken->FlipBit(path, 8 * 500);
    std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*broken));
    Bytes out(kChunk);
    Hash128 hash = HashBytes(std::span(Content()).first(kChunk));
    auto reader = std::move(StoreReader::Begin(store, {&hash, 1})).value();
    std::vector<StoreReader::Piece> pieces = {{hash, out}};
    ASSERT_OK(reader->Read(pieces));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), Content().begin()));
    Result<VerifyReport> report = store->Verify();
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->damages.size(), 1u);
    EXPECT_TRUE(broken->Exists(path.substr(0, path.size() - 5) + ".bad"));
    ++damaged;
  }
  EXPECT_EQ(damaged, 2);
}

// Whoever has the bytes puts them in again, which makes the older image whole too; then the bad packs go.
TEST(StoreDamage, TheNextCheckpointHeals) {
  for (bool by_restore : {false, true}) {
    const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
    for (const std::string& path : disk->AllFiles()) {
      if (path.ends_with(".pack")) disk->FlipBit(path, 8 * (80 + 100));
    }
    std::vector<std::string> notes;
    if (by_restore) {
      EXPECT_EQ(Restore(*disk, &notes).status().code(), StatusCode::kCorrupt);
    } else {
      std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*disk));
      EXPECT_EQ(store->Verify()->damages.size(), 4u);  // two packs, and the image needs a chunk of each
    }
    std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*disk));
    {
      auto writer = std::move(ImageWriter::Create(store, "job", "000002")).value();
      ASSERT_OK(writer->AddStream("memory", {{0, Content().size()}}));
      ASSERT_OK(WriteStream(writer.get(), "memory", Content()));
      ASSERT_OK(writer->Commit(Json::object()));
      EXPECT_GT(writer->counts().added_bytes, 0u);
    }
    Result<Bytes> restored = Restore(*disk, &notes);
    // A restore stops at the first damage, so it may take as many checkpoints as there are damaged packs.
    if (by_restore && !restored.ok()) continue;
    ASSERT_TRUE(restored.ok()) << restored.status().ToString();
    EXPECT_TRUE(*restored == Content());
    ASSERT_OK(store->CollectGarbage().status());
    EXPECT_TRUE(store->Verify()->damages.empty());
    for (const std::string& path : disk->AllFiles()) EXPECT_FALSE(path.ends_with(".bad")) << path;
    EXPECT_TRUE(Restore(*disk, &notes).ok());
  }
}

TEST(StoreDamage, ADamagedIndexIsToldOnceAndRebuilt) {
  const std::unique_ptr<CrashFileSystem> disk = MakeDisk();
  for (const std::string& path : disk->AllFiles()) {
    if (path.ends_with(".idx")) disk->FlipBit(path, 333);
  }
  std::shared_ptr<Store> store = *Store::Open(kRoot, Options(*disk));
  EXPECT_FALSE(store->notes().empty());
  EXPECT_FALSE(store->Verify()->damages.empty());
  EXPECT_TRUE(store->Verify()->damages.empty());
  store = *Store::Open(kRoot, Options(*disk));
  EXPECT_TRUE(store->notes().empty());
  EXPECT_TRUE(store->Verify()->damages.empty());
}

}  // namespace
}  // namespace stasis

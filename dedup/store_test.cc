// The store as its users see it: what is put comes back, is stored once, and is held as long as it must be.
#include "dedup/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "dedup/crash_file_system.h"
#include "dedup/image_testing.h"

namespace stasis {
namespace {

using testing::HasSubstr;

// Numbers one store in a folder of its own.
class StoreTest : public testing::Test {
 protected:
  std::shared_ptr<Store> Open(StoreOptions options = {}) { return OpenStore(root_, options); }
  std::vector<std::string> Packs(const std::string& suffix = ".pack") {
    std::vector<std::string> found;
    Result<std::vector<std::string>> names = ListFolder(root_ + "/packs");
    for (const std::string& name : *names) {
      if (name.ends_with(suffix)) found.push_back(name);
    }
    return found;
  }
  TempFolder folder_;
  const std::string root_ = folder_ / "store";
};

std::unique_ptr<StoreWriter> Begin(const std::shared_ptr<Store>& store) {
  Result<std::unique_ptr<StoreWriter>> writer = StoreWriter::Begin(store);
  EXPECT_TRUE(writer.ok()) << writer.status().ToString();
  return std::move(writer).value();
}

Status Put(StoreWriter& writer, const Bytes& bytes) { return writer.Put(HashBytes(bytes), bytes); }

bool Has(StoreWriter& writer, const Bytes& bytes) {
  Result<bool> has = writer.Has(HashBytes(bytes));
  EXPECT_TRUE(has.ok()) << has.status().ToString();
  return has.ok() && *has;
}

Status PutAll(const std::shared_ptr<Store>& store, const std::vector<Bytes>& chunks) {
  std::unique_ptr<StoreWriter> writer = Begin(store);
  for (const Bytes& chunk : chunks) RETURN_IF_ERROR(Put(*writer, chunk));
  return writer->Finish();
}

Status ReadAll(const std::shared_ptr<Store>& store, const std::vector<Bytes>& chunks) {
  std::vector<Hash128> hashes;
  for (const Bytes& chunk : chunks) hashes.push_back(HashBytes(chunk));
  ASSIGN_OR_RETURN(std::unique_ptr<StoreReader> reader, StoreReader::Begin(store, hashes));
  std::vector<Bytes> out;
  std::vector<StoreReader::Piece> pieces;
  for (const Bytes& chunk : chunks) out.emplace_back(chunk.size());
  for (size_t i = 0; i < chunks.size(); ++i) pieces.push_back({hashes[i], out[i]});
  RETURN_IF_ERROR(reader->Read(pieces));
  return out == chunks ? Status() : Status(StatusCode::kInternal, "other bytes came back");
}

std::vector<Bytes> Various(size_t count) {
  std::vector<Bytes> chunks;
  for (size_t i = 0; i < count; ++i) {
    chunks.push_back(i % 3 == 0 ? Bytes(1000 + i * 100, static_cast<std::byte>(i)) : Noise(i, 1 + i * 211));
  }
  return chunks;
}

TEST_F(StoreTest, WhatWasPutComesBack) {
  const std::vector<Bytes> chunks = Various(300);
  {
    StoreOptions options;
    options.pack_bytes = 1 << 20;
    std::shared_ptr<Store> store = Open(options);
    ASSERT_OK(PutAll(store, chunks));
    EXPECT_EQ(store->counts().chunks, chunks.size());
    EXPECT_LT(store->counts().stored_bytes, store->counts().raw_bytes);
    ASSERT_OK(ReadAll(store, chunks));
  }
  EXPECT_GT(Packs().size(), 5u);
  EXPECT_EQ(Packs(".idx").size(), Packs().size());
  std::shared_ptr<Store> store = Open();
  EXPECT_TRUE(store->notes().empty());
  ASSERT_OK(ReadAll(store, chunks));
}

TEST_F(StoreTest, LargestAndSmallestChunks) {
  const std::vector<Bytes> chunks = {Noise(1, kMaxChunkBytes), Bytes(kMaxChunkBytes, std::byte{7}),
                                     Noise(2, 1)};
  std::shared_ptr<Store> store = Open();
  ASSERT_OK(PutAll(store, chunks));
  ASSERT_OK(ReadAll(store, chunks));
  std::unique_ptr<StoreWriter> writer = Begin(store);
  EXPECT_EQ(Put(*writer, Noise(3, kMaxChunkBytes + 1)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Put(*writer, {}).code(), StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, EqualChunksAreStoredOnce) {
  const Bytes chunk = Noise(1, 50000);
  std::shared_ptr<Store> store = Open();
  std::unique_ptr<StoreWriter> writer = Begin(store);
  EXPECT_FALSE(Has(*writer, chunk));
  ASSERT_OK(Put(*writer, chunk));
  EXPECT_TRUE(Has(*writer, chunk));
  ASSERT_OK(Put(*writer, chunk));
  EXPECT_EQ(writer->added().chunks, 1u);
  ASSERT_OK(writer->Finish());
  EXPECT_EQ(Put(*writer, Noise(2, 100)).code(), StatusCode::kFailedPrecondition);
  std::unique_ptr<StoreWriter> next = Begin(store);
  ASSERT_OK(Put(*next, chunk));
  ASSERT_OK(next->Finish());
  EXPECT_EQ(next->added().chunks, 0u);
  EXPECT_EQ(store->counts().chunks, 1u);
  EXPECT_GE(store->StoredBytes(HashBytes(chunk)), 50000u);
  EXPECT_EQ(store->StoredBytes(HashBytes(Noise(2, 100))), 0u);
}

TEST_F(StoreTest, ThreadsThatPutTheSameStoreItOnce) {
  std::shared_ptr<Store> store = Open();
  std::unique_ptr<StoreWriter> writer = Begin(store);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < 500; ++i) failures += !Put(*writer, Noise(i, 5000)).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  ASSERT_OK(writer->Finish());
  EXPECT_EQ(store->counts().chunks, 500u);
  EXPECT_EQ(store->counts().raw_bytes, 500u * 5000);
}

TEST_F(StoreTest, AnotherStoreSeesNewPacksAfterRefresh) {
  std::shared_ptr<Store> first = Open(), second = Open();
  const std::vector<Bytes> chunks = Various(20);
  ASSERT_OK(PutAll(first, chunks));
  EXPECT_EQ(second->counts().chunks, 0u);
  ASSERT_OK(second->Refresh());
  EXPECT_EQ(second->counts().chunks, 20u);
  ASSERT_OK(ReadAll(second, chunks));
}

TEST_F(StoreTest, ReaderLooksAgainForWhatItDoesNotKnow) {
  std::shared_ptr<Store> first = Open(), second = Open();
  const std::vector<Bytes> chunks = Various(20);
  ASSERT_OK(PutAll(first, chunks));
  ASSERT_OK(ReadAll(second, chunks));
  Status missing = ReadAll(second, {Noise(77, 100)});
  EXPECT_EQ(missing.code(), StatusCode::kCorrupt);
  EXPECT_THAT(missing.ToString(), HasSubstr(HashText(HashBytes(Noise(77, 100)))));
}

TEST_F(StoreTest, WriterThatDoesNotFinishLeavesNothing) {
  StoreOptions options;
  options.pack_bytes = 1 << 20;
  std::shared_ptr<Store> store = Open(options);
  {
    std::unique_ptr<StoreWriter> writer = Begin(store);
    for (uint64_t i = 0; i < 100; ++i) ASSERT_OK(Put(*writer, Noise(i, 60000)));
  }
  Result<std::vector<std::string>> left = ListFolder(root_ + "/packs");
  ASSERT_TRUE(left.ok());
  EXPECT_TRUE(left->empty()) << left->front();
  EXPECT_EQ(store->counts().chunks, 0u);
}

TEST_F(StoreTest, LostIndexIsRebuiltAndSaysSo) {
  const std::vector<Bytes> chunks = Various(50);
  ASSERT_OK(PutAll(Open(), chunks));
  ASSERT_EQ(Packs(".idx").size(), 1u);
  std::filesystem::remove(root_ + "/packs/" + Packs(".idx")[0]);
  std::shared_ptr<Store> store = Open();
  ASSERT_EQ(store->notes().size(), 1u);
  EXPECT_THAT(store->notes()[0], HasSubstr(".idx was missing; rebuilt"));
  ASSERT_OK(ReadAll(store, chunks));
  EXPECT_EQ(Packs(".idx").size(), 1u);
  EXPECT_TRUE(Packs(".tmp").empty());
  EXPECT_TRUE(Open()->notes().empty());
}

TEST_F(StoreTest, ChunkSizeIsThatOfTheStore) {
  StoreOptions options;
  options.chunk_bytes = 4096;
  Open(options);
  EXPECT_EQ(Open()->options().chunk_bytes, 4096u);
  options.chunk_bytes = 5000;
  EXPECT_EQ(Store::Open(root_, options).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, AnotherVersionIsRefusedByName) {
  Open();
  const std::string line = R"({"name":"stasis image store","new":1,"version":9})";
  const std::string text = line + "\n" + HashText(HashBytes(std::as_bytes(std::span(line)))) + "\n";
  WriteBytes(root_ + "/format", std::as_bytes(std::span(text)));
  Status status = Store::Open(root_).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.ToString(), HasSubstr("version 9"));
  EXPECT_THAT(status.ToString(), HasSubstr(root_));
}

TEST_F(StoreTest, LostFormatOfAStoreThatIsInUseIsAnError) {
  Open();
  std::filesystem::remove(root_ + "/format");
  EXPECT_EQ(Store::Open(root_).status().code(), StatusCode::kCorrupt);
}

TEST_F(StoreTest, ManyOpenANewStoreAtOnce) {
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      Result<std::shared_ptr<Store>> store = Store::Open(root_);
      failures += !store.ok() || !PutAll(*store, {Noise(i, 1000)}).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(Open()->counts().chunks, 8u);
}

// The disk's own errors, each at its turn: the session fails, all is given back, the next one works.
TEST(StoreErrors, EveryChangeFailsOnce) {
  for (uint64_t change = 1;; ++change) {
    CrashFileSystem disk;
    StoreOptions options;
    options.files = &disk;
    options.pack_bytes = 256 << 10;
    std::shared_ptr<Store> store = *Store::Open("/store", options);
    const uint64_t before = disk.used();
    const std::vector<Bytes> chunks = Various(80);
    disk.FailAt(change, ErrnoStatus(EIO, "test"));
    Status status = PutAll(store, chunks);
    if (disk.changes() < change) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_GT(change, 10u);
      return;
    }
    EXPECT_FALSE(status.ok()) << change;
    disk.FailAt(0, Status());
    ASSERT_OK(store->CollectGarbage().status());
    EXPECT_EQ(disk.used(), before) << change;
    ASSERT_OK(PutAll(store, chunks));
    ASSERT_OK(ReadAll(store, chunks));
  }
}

TEST(StoreErrors, FullDiskGivesItsSpaceBack) {
  CrashFileSystem disk;
  StoreOptions options;
  options.files = &disk;
  options.pack_bytes = 1 << 20;
  std::shared_ptr<Store> store = *Store::Open("/store", options);
  ASSERT_OK(PutAll(store, Various(20)));
  const uint64_t before = disk.used();
  disk.SetCapacity(before + (3 << 20));
  {
    std::unique_ptr<StoreWriter> writer = Begin(store);
    Status status;
    // More than all the memory that waits to be written: the error comes while chunks are still put.
    for (uint64_t i = 0; i < 2000 && status.ok(); ++i) status = Put(*writer, Noise(1000 + i, 64 << 10));
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_EQ(Put(*writer, Noise(1, 100)).code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(writer->Has(HashBytes(Noise(1, 100))).status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(writer->Finish().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(disk.used(), before);
  ASSERT_OK(ReadAll(store, Various(20)));
  ASSERT_OK(PutAll(store, {Noise(5, 100000)}));
}

TEST(StoreLocks, ExcludeEachOther) {
  TempFolder folder;
  auto a = *RealFileSystem().OpenLocks(folder / "locks"), b = *RealFileSystem().OpenLocks(folder / "locks");
  const uint64_t number = (uint64_t{1} << 62) - 1;
  EXPECT_TRUE(*a->TryLock(number, false));
  EXPECT_TRUE(*b->TryLock(number, false));
  EXPECT_FALSE(*a->TryLock(number, true));
  EXPECT_TRUE(*a->IsLocked(number));
  ASSERT_OK(b->Unlock(number));
  EXPECT_FALSE(*a->IsLocked(number));
  EXPECT_TRUE(*b->IsLocked(number));
  EXPECT_TRUE(*a->TryLock(number, true));
  EXPECT_FALSE(*b->TryLock(number, false));
  EXPECT_TRUE(*b->TryLock(number - 1, true));
  std::atomic<bool> got{false};
  std::thread waits([&] { got = b->LockShared(number).ok(); });
  EXPECT_TRUE(*a->TryLock(number, false));  // a weaker lock lets it in
  waits.join();
  EXPECT_TRUE(got);
  a.reset();
  EXPECT_TRUE(*b->TryLock(number, true));
}

}  // namespace
}  // namespace stasis

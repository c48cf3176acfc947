// The store as its users see it: what is put comes back, once stored, from any process.
#include "dedup/store.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/files.h"

namespace stasis {
namespace {

class StoreTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/stasis-store-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
    root_ = folder_ + "/store";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<Store> Open(StoreOptions options = {}) {
    Result<std::shared_ptr<Store>> store = Store::Open(root_, options);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? *store : nullptr;
  }
  std::string folder_, root_;
};

std::vector<std::byte> Noise(uint64_t seed, size_t size) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_F(StoreTest, WhatWasPutComesBack) {
  std::vector<std::vector<std::byte>> chunks;
  for (uint64_t i = 0; i < 300; ++i) {
    chunks.push_back(i % 3 == 0 ? std::vector<std::byte>(1000 + i * 100, static_cast<std::byte>(i))
                                : Noise(i, 1 + i * 211));
  }
  std::vector<Hash128> hashes;
  {
    StoreOptions options;
    options.pack_bytes = 1 << 20;
    std::shared_ptr<Store> store = Open(options);
    auto writer = StoreWriter::Begin(store);
    ASSERT_TRUE(writer.ok());
    for (const auto& chunk : chunks) {
      hashes.push_back(HashBytes(chunk));
      Status put = (*writer)->Put(hashes.back(), chunk);
      ASSERT_TRUE(put.ok()) << put.ToString();
    }
    Status finished = (*writer)->Finish();
    ASSERT_TRUE(finished.ok()) << finished.ToString();
    EXPECT_EQ(store->counts().chunks, chunks.size());
    EXPECT_LT(store->counts().stored_bytes, store->counts().raw_bytes);
  }
  std::shared_ptr<Store> store = Open();
  EXPECT_TRUE(store->notes().empty()) << store->notes().front();
  auto reader = StoreReader::Begin(store, hashes);
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  std::vector<std::vector<std::byte>> out;
  std::vector<StoreReader::Piece> pieces;
  for (size_t i = 0; i < chunks.size(); ++i) out.emplace_back(chunks[i].size());
  for (size_t i = 0; i < chunks.size(); ++i) pieces.push_back({hashes[i], out[i]});
  Status read = (*reader)->Read(pieces);
  ASSERT_TRUE(read.ok()) << read.ToString();
  EXPECT_TRUE(out == chunks);
}

}  // namespace
}  // namespace stasis

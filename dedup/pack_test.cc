// Codings, packs and their index in memory, with input that is not what it claims to be.
#include "dedup/pack.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "dedup/codec.h"
#include "dedup/image_testing.h"
#include "dedup/store_index.h"

namespace stasis {
namespace {

Bytes Text(size_t size) {
  Bytes bytes;
  for (size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>("state of a stream "[i % 18]));
  return bytes;
}

TEST(Codec, KeepsWhatDoesNotCompress) {
  for (size_t size : {1u, 15u, 16u, 4095u, 4096u, 65536u, 1048576u}) {
    const Bytes noise = Noise(size, size);
    EncodedChunk chunk = EncodeChunk(noise, 1);
    EXPECT_EQ(chunk.coding, Coding::kRaw) << size;
    EXPECT_EQ(chunk.bytes.data(), noise.data());
    EXPECT_EQ(chunk.bytes.size(), size);
  }
  EXPECT_FALSE(LooksCompressible(Noise(1, 65536)));
}

TEST(Codec, CompressesWhatDoes) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  Bytes halves;  // the upper halves of floats: sign, exponent and seven bits of noise
  for (int i = 0; i < 32768; ++i) {
    float value = normal(random);
    std::byte raw[4];
    std::memcpy(raw, &value, 4);
    halves.insert(halves.end(), raw + 2, raw + 4);
  }
  Bytes repeated = Noise(7, 1000 * 8);
  repeated = Joined({repeated, repeated, repeated, repeated});
  for (const Bytes& raw : {Text(65536), Bytes(65536, std::byte{1}), halves, repeated, Text(100)}) {
    EXPECT_TRUE(LooksCompressible(raw));
    EncodedChunk chunk = EncodeChunk(raw, 1);
    EXPECT_EQ(chunk.coding, Coding::kZstd);
    EXPECT_LE(chunk.bytes.size(), raw.size() - raw.size() / 16);
    Bytes out(raw.size());
    ASSERT_OK(DecodeChunk(chunk.coding, chunk.bytes, out));
    EXPECT_TRUE(out == raw);
    EXPECT_EQ(EncodeChunk(raw, 0).coding, Coding::kRaw);
  }
}

TEST(Codec, HostileFramesFillNoMoreThanTheChunk) {
  const Bytes raw = Text(65536);
  EncodedChunk chunk = EncodeChunk(raw, 1);
  ASSERT_EQ(chunk.coding, Coding::kZstd);
  const Bytes frame(chunk.bytes.begin(), chunk.bytes.end());
  Bytes small(65535), large(65537);
  EXPECT_EQ(DecodeChunk(Coding::kZstd, frame, small).code(), StatusCode::kCorrupt);
  EXPECT_EQ(DecodeChunk(Coding::kZstd, frame, large).code(), StatusCode::kCorrupt);
  EXPECT_EQ(DecodeChunk(Coding::kRaw, frame, large).code(), StatusCode::kCorrupt);
  EXPECT_EQ(DecodeChunk(static_cast<Coding>(9), frame, large).code(), StatusCode::kCorrupt);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    Bytes bad = frame;
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    bad.resize(random() % 8 == 0 ? random() % bad.size() : bad.size());
    Bytes out(raw.size());
    (void)DecodeChunk(Coding::kZstd, bad, out);  // the sanitizers say whether it stays inside
  }
}

TEST(Pack, IdsAreNamesAndNothingElseIs) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 1000; ++i) {
    uint64_t id = RandomPackId();
    EXPECT_GE(id, kFirstPackId);
    EXPECT_LT(id, uint64_t{1} << 62);
    EXPECT_EQ(PackIdOfName(PackIdText(id) + ".pack", ".pack"), id);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 1000u);
  for (const char* name :
       {"", ".pack", "0000000000000000.pack", "000000000000000f.pack", "4000000000000000.pack",
        "123456789abcdef.pack", "0123456789ABCDEF.pack", "0123456789abcdef.idx", "0123456789abcdef.pack.pack",
        "x123456789abcdef.pack", "+123456789abcdef.pack"}) {
    EXPECT_FALSE(PackIdOfName(name, ".pack").has_value()) << name;
  }
}

TEST(Pack, EveryBitOfAHeaderCounts) {
  const Bytes raw = Text(5000);
  EncodedChunk chunk = EncodeChunk(raw, 1);
  std::array<std::byte, kRecordHeaderBytes> record;
  EncodeRecordHeader(MakeRecordHeader(HashBytes(raw), raw.size(), chunk), record);
  std::array<std::byte, kPackHeaderBytes> header;
  EncodePackHeader(77, 0, header);
  std::array<std::byte, kPackFooterBytes> footer;
  EncodePackFooter(77, 3, 1000, footer);
  ASSERT_OK(DecodeRecordHeader(record).status());
  ASSERT_OK(DecodePackHeader(header, 77).status());
  ASSERT_OK(DecodePackFooter(footer, 77, 3, 1000));
  EXPECT_FALSE(DecodePackHeader(header, 78).ok());
  EXPECT_FALSE(DecodePackFooter(footer, 77, 4, 1000).ok());
  EXPECT_FALSE(DecodePackFooter(footer, 77, 3, 1001).ok());
  for (size_t bit = 0; bit < 8 * kRecordHeaderBytes; ++bit) {
    auto flipped = [bit](auto bytes) {
      if (bit / 8 < bytes.size()) bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      return bytes;
    };
    EXPECT_FALSE(DecodeRecordHeader(flipped(record)).ok()) << bit;
    EXPECT_TRUE(bit / 8 >= header.size() || !DecodePackHeader(flipped(header), 77).ok()) << bit;
    EXPECT_TRUE(bit / 8 >= footer.size() || !DecodePackFooter(flipped(footer), 77, 3, 1000).ok()) << bit;
  }
}

TEST(Pack, EveryBitOfACompressedChunkCounts) {
  const Bytes raw = Joined({Text(1500), Noise(1, 500)});
  EncodedChunk chunk = EncodeChunk(raw, 1);
  ASSERT_EQ(chunk.coding, Coding::kZstd);
  Bytes stored(chunk.bytes.begin(), chunk.bytes.end()), out(raw.size());
  RecordHeader header = MakeRecordHeader(HashBytes(raw), raw.size(), chunk);
  ASSERT_OK(DecodeRecord(header, stored, out));
  for (size_t bit = 0; bit < stored.size() * 8; ++bit) {
    stored[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(DecodeRecord(header, stored, out).code(), StatusCode::kCorrupt) << bit;
    stored[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

std::vector<PackEntry> SomeEntries(size_t count, uint64_t seed) {
  std::vector<PackEntry> entries;
  uint64_t offset = kPackHeaderBytes;
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) {
    entries.push_back({{random(), random()}, offset, 4096, static_cast<uint32_t>(random() % 4097)});
    offset = entries.back().end();
  }
  return entries;
}

TEST(PackIndex, ComesBackAndNothingElseDoes) {
  const std::vector<PackEntry> entries = SomeEntries(10, 1);
  const uint64_t size = entries.back().end() + kPackFooterBytes;
  Bytes bytes = EncodeIndex(99, size, entries);
  uint64_t said = 0;
  Result<std::vector<PackEntry>> read = DecodeIndex(bytes, 99, &said);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(*read == entries);
  EXPECT_EQ(said, size);
  EXPECT_FALSE(DecodeIndex(bytes, 98, &said).ok());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(DecodeIndex(bytes, 99, &said).ok()) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
  for (size_t size_left = 0; size_left < bytes.size(); ++size_left) {
    EXPECT_FALSE(DecodeIndex(std::span(bytes).first(size_left), 99, &said).ok()) << size_left;
  }
}

// Sums that fit, and entries that do not.
TEST(PackIndex, EntriesOutsideThePackAreRefused) {
  uint64_t said = 0;
  for (PackEntry bad :
       {PackEntry{{1, 2}, 990, 4096, 100}, PackEntry{{1, 2}, UINT64_MAX - 10, 4096, 100},
        PackEntry{{1, 2}, 32, 0, 0}, PackEntry{{1, 2}, 32, 1 << 21, 100}, PackEntry{{1, 2}, 32, 100, 200}}) {
    EXPECT_FALSE(DecodeIndex(EncodeIndex(99, 1000, {&bad, 1}), 99, &said).ok());
  }
}

TEST(StoreIndex, FindsEveryCopyThroughChanges) {
  StoreIndex index;
  std::map<uint64_t, std::vector<PackEntry>> model;
  std::mt19937_64 random(5);
  for (int step = 0; step < 200; ++step) {
    if (random() % 3 != 0 || model.empty()) {
      // Packs of few seeds: the same chunks come again in other packs.
      uint64_t id = RandomPackId();
      model[id] = SomeEntries(random() % 300, random() % 10);
      index.Add(id, model[id]);
    } else {
      auto victim = std::next(model.begin(), static_cast<long>(random() % model.size()));
      index.Remove(victim->first);
      model.erase(victim);
    }
    if (step % 20 != 0) continue;
    uint64_t chunks = 0;
    for (const auto& [id, entries] : model) {
      chunks += entries.size();
      for (const PackEntry& entry : entries) {
        size_t copies = 0;
        for (const ChunkPlace& place : index.Find(entry.hash)) {
          EXPECT_EQ(place.entry.hash, entry.hash);
          copies += place.pack == id && place.entry == entry;
        }
        ASSERT_EQ(copies, 1u);
      }
    }
    EXPECT_EQ(index.counts().chunks, chunks);
    EXPECT_EQ(index.Packs().size(), model.size());
    EXPECT_TRUE(index.Find({1, 2}).empty());
  }
}

}  // namespace
}  // namespace stasis

#include "dedup/image_manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "dedup/image_testing.h"

// The largest piece of memory that was asked for: a parser of untrusted bytes must not ask for what they
// claim.
static std::atomic<size_t> largest_allocation{0};

static void NoteAllocation(size_t size) {
  if (size > largest_allocation.load(std::memory_order_relaxed)) largest_allocation = size;
}

#if defined(__has_feature)
#define STASIS_SANITIZED __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#else
#define STASIS_SANITIZED 0
#endif
#if STASIS_SANITIZED
// The sanitizers have their own operators, and these hooks.
extern "C" __attribute__((visibility("default"))) void __sanitizer_malloc_hook(const volatile void*,
                                                                               size_t size) {
  NoteAllocation(size);
}
extern "C" __attribute__((visibility("default"))) void __sanitizer_free_hook(const volatile void*) {}
#else
// Not inline: the compiler would pair what one of them does with the other name.
__attribute__((noinline)) void* operator new(size_t size) {
  NoteAllocation(size);
  void* memory = std::malloc(size ? size : 1);
  if (!memory) std::abort();
  return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace stasis {
namespace {

constexpr char kFile[] = "images/job/000001.image";
constexpr uint64_t kUnit = 4096;

ManifestStream MakeStream(const std::string& name, std::vector<Segment> segments) {
  ManifestStream stream{name, std::move(segments), {}};
  stream.chunks.resize(*StreamLayout::CountChunks(stream.segments, kUnit));
  for (size_t i = 0; i < stream.chunks.size(); ++i) {
    if (i % 3 != 0) stream.chunks[i] = {HashBytes(std::as_bytes(std::span(stream.name))).high, i};
  }
  return stream;
}

ImageManifest MakeManifest() {
  ImageManifest manifest;
  manifest.task = "job";
  manifest.id = "000001";
  manifest.chunk_bytes = kUnit;
  manifest.streams = {MakeStream("a", {{kUnit, 3 * kUnit}}), MakeStream("b", {}),
                      MakeStream("c", {{10, 5 * kUnit}, {1ull << 40, 6}})};
  manifest.folders = {{"criu", {MakeStream("empty", {}), MakeStream("file", {{0, kUnit + 1}})}}, {"x", {}}};
  manifest.meta = {{"key", "value"}, {"nested", {{"deep", {1, 2, 3}}}}};
  return manifest;
}

Bytes Serialized(const ImageManifest& manifest) {
  Result<Bytes> bytes = SerializeImageManifest(manifest);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  return bytes.ok() ? *bytes : Bytes();
}

template <typename T>
void Put(Bytes* bytes, size_t offset, T value) {
  std::memcpy(bytes->data() + offset, &value, sizeof value);
}

// Size and sum right, as one who makes a hostile manifest would set them.
Bytes Sealed(Bytes bytes) {
  Put<uint64_t>(&bytes, 16, bytes.size());
  Put(&bytes, bytes.size() - 16, HashBytes(std::span(bytes).first(bytes.size() - 16)));
  return bytes;
}

// The first occurrence of `from` becomes `to`, of the same length.
Bytes Replaced(Bytes bytes, std::string_view from, std::string_view to) {
  STASIS_CHECK(from.size() == to.size());
  auto is = [](std::byte a, char b) { return a == static_cast<std::byte>(b); };
  auto found = std::search(bytes.begin(), bytes.end(), from.begin(), from.end(), is);
  STASIS_CHECK(found != bytes.end());
  std::memcpy(&*found, to.data(), to.size());
  return Sealed(std::move(bytes));
}

void ExpectSame(const ManifestStream& a, const ManifestStream& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.segments, b.segments);
  EXPECT_EQ(a.chunks, b.chunks);
}

TEST(ImageManifestTest, WhatWasWrittenIsRead) {
  ImageManifest manifest = MakeManifest();
  Bytes bytes = Serialized(manifest);
  Result<ImageManifest> read = ParseImageManifest(bytes, kFile);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->task, "job");
  EXPECT_EQ(read->id, "000001");
  EXPECT_EQ(read->chunk_bytes, kUnit);
  EXPECT_EQ(read->file_bytes, bytes.size());
  EXPECT_EQ(read->meta, manifest.meta);
  ASSERT_EQ(read->streams.size(), 3u);
  for (size_t i = 0; i < 3; ++i) ExpectSame(read->streams[i], manifest.streams[i]);
  ASSERT_EQ(read->folders.size(), 2u);
  EXPECT_EQ(read->folders[0].name, "criu");
  ASSERT_EQ(read->folders[0].files.size(), 2u);
  for (size_t i = 0; i < 2; ++i) ExpectSame(read->folders[0].files[i], manifest.folders[0].files[i]);
  EXPECT_TRUE(read->folders[1].files.empty());
  EXPECT_EQ(Serialized(*read), bytes);
}

TEST(ImageManifestTest, EveryFlippedBitIsFound) {
  const Bytes good = Serialized(MakeManifest());
  for (size_t i = 0; i < good.size() * 8; ++i) {
    Bytes bad = good;
    bad[i / 8] ^= std::byte{1} << i % 8;
    Result<ImageManifest> read = ParseImageManifest(bad, kFile);
    ASSERT_EQ(read.status().code(), StatusCode::kCorrupt) << "bit " << i;
    ASSERT_NE(read.status().message().find(kFile), std::string::npos);
    ASSERT_NE(read.status().message().find("at offset "), std::string::npos);
  }
}

TEST(ImageManifestTest, EveryTruncationAndAdditionIsFound) {
  Bytes bytes = Serialized(MakeManifest());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_EQ(ParseImageManifest(cut, kFile).status().code(), StatusCode::kCorrupt) << size;
    if (size < 40) continue;
    ASSERT_EQ(ParseImageManifest(Sealed(cut), kFile).status().code(), StatusCode::kCorrupt) << size;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(ParseImageManifest(bytes, kFile).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ParseImageManifest(Sealed(bytes), kFile).status().code(), StatusCode::kCorrupt);
}

TEST(ImageManifestTest, AnotherVersionIsRefusedByName) {
  Bytes bytes = Serialized(MakeManifest());
  Put<uint32_t>(&bytes, 8, 4);
  Status status = ParseImageManifest(Sealed(bytes), kFile).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(),
            std::string(kFile) + " has image format version 4, this program reads versions 2 and 3");
}

void ExpectCorrupt(const Bytes& bytes, const std::string& what) {
  Status status = ParseImageManifest(bytes, kFile).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << what;
  EXPECT_NE(status.message().find(what), std::string::npos) << status.ToString();
}

TEST(ImageManifestTest, NamesThatLeadElsewhereAreRefused) {
  ImageManifest manifest = MakeManifest();
  manifest.folders[0].files[1].name = "1234567890";
  const Bytes good = Serialized(manifest);
  for (std::string name : {"../secret1", "/etc/hosts", "a/b/c/d/ef", "new\nline12"}) {
    ExpectCorrupt(Replaced(good, "1234567890", name), "a name of a file that is none");
  }
  ExpectCorrupt(Replaced(good, std::string_view("1234567890"), std::string_view("nul\0middle", 10)),
                "a name of a file that is none");
  ExpectCorrupt(Replaced(good, "job", "../"), "a name of a task that is none");
  ExpectCorrupt(Replaced(good, "000001", "../../"), "a name of a id that is none");
  ExpectCorrupt(Replaced(good, "000001", "00000x"), "six digits");
  for (std::string name : {"", ".", ".."}) {
    manifest.folders[0].name = name;
    ExpectCorrupt(Serialized(manifest), "a name of a folder that is none");
  }
  manifest.folders[0].name = std::string(256, 'x');
  ExpectCorrupt(Serialized(manifest), "longer than");
}

TEST(ImageManifestTest, NamesAreThereOnce) {
  ImageManifest manifest = MakeManifest();
  manifest.streams[1].name = "a";
  ExpectCorrupt(Serialized(manifest), "the name 'a' is not in its order");
  manifest = MakeManifest();
  manifest.folders[1].name = "criu";
  ExpectCorrupt(Serialized(manifest), "the name 'criu' is not in its order");
  manifest = MakeManifest();
  manifest.folders[0].files[1].name = "empty";
  ExpectCorrupt(Serialized(manifest), "the name 'empty' is not in its order");
}

TEST(ImageManifestTest, ChunksFitTheSegments) {
  ImageManifest manifest = MakeManifest();
  manifest.streams[0].chunks.pop_back();
  ExpectCorrupt(Serialized(manifest), "does not fit its segments");
  for (Segment segment :
       {Segment{0, 0}, Segment{UINT64_MAX, 2}, Segment{1, UINT64_MAX}, Segment{0, 1ull << 63}}) {
    manifest = MakeManifest();
    manifest.streams[0].segments = {segment};
    ExpectCorrupt(Serialized(manifest), "segments of 'a' that cannot be");
  }
  manifest = MakeManifest();
  manifest.streams[0].segments = {{0, 1ull << 61}};
  ExpectCorrupt(Serialized(manifest), "does not fit its segments");
}

TEST(ImageManifestTest, ChunkSizesThatCannotBeAreRefused) {
  for (uint32_t size : {0u, 1u, 2048u, 4097u, 12288u, 2u << 20, UINT32_MAX}) {
    Bytes bytes = Serialized(MakeManifest());
    Put<uint32_t>(&bytes, 12, size);
    ExpectCorrupt(Sealed(bytes), "a chunk size that cannot be");
  }
}

TEST(ImageManifestTest, MetaIsAnObjectOfBoundedDepth) {
  ImageManifest manifest = MakeManifest();
  manifest.meta = {{"k", "0123456789"}};
  Bytes good = Serialized(manifest);
  ExpectCorrupt(Replaced(good, "{\"k\":\"0123456789\"}", "[\"k\",\"0123456789\"]"), "meta: ");
  ExpectCorrupt(Replaced(good, "{\"k\":\"0123456789\"}", "{\"k\":\"012345678\\\"}"), "meta: ");
  Json deep = Json::object();
  for (int i = 0; i < 150; ++i) deep = Json{{"a", deep}};
  manifest.meta = deep;
  EXPECT_FALSE(SerializeImageManifest(manifest).ok());
  manifest.meta = {{"text", std::string(100000, '[')}};
  EXPECT_TRUE(ParseImageManifest(Serialized(manifest), kFile).ok());
  manifest.meta = {{"text", std::string(kMaxMetaBytes, 'x')}};
  EXPECT_FALSE(SerializeImageManifest(manifest).ok());
}

TEST(ImageManifestTest, OneHashHasOneSize) {
  ImageManifest manifest = MakeManifest();
  ASSERT_TRUE(DistinctChunks(manifest).ok());
  manifest.streams[2].chunks[0] = manifest.streams[2].chunks[1];
  Status status = DistinctChunks(manifest).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_NE(status.message().find("two sizes"), std::string::npos);
}

TEST(ImageManifestTest, DistinctChunksComeInTheOrderOfFirstUse) {
  ImageManifest manifest = MakeManifest();
  Hash128 high{9, 9}, low{1, 1};
  manifest.streams = {MakeStream("a", {{0, 4 * kUnit}}), MakeStream("b", {{0, 2 * kUnit}})};
  manifest.streams[0].chunks = {high, kZeroChunk, low, high};
  manifest.streams[1].chunks = {low, {5, 5}};
  manifest.folders.clear();
  Result<std::vector<ChunkRef>> chunks = DistinctChunks(manifest);
  ASSERT_TRUE(chunks.ok());
  ASSERT_EQ(chunks->size(), 3u);
  EXPECT_EQ((*chunks)[0].hash, high);
  EXPECT_EQ((*chunks)[1].hash, low);
  EXPECT_EQ((*chunks)[2].hash, (Hash128{5, 5}));
  EXPECT_EQ(TotalSize(*chunks), 3 * kUnit);
  size_t all = 0;
  VisitChunks(manifest, [&](const ChunkRef&) { ++all; });
  EXPECT_EQ(all, 6u);
}

// Each place of the manifest, read as a number of whatever, becomes huge.
TEST(ImageManifestTest, WhatItClaimsTakesNoMemory) {
  const Bytes good = Serialized(MakeManifest());
  for (size_t at = 24; at + 20 <= good.size(); ++at) {
    for (uint32_t value : {UINT32_MAX, 0x7fffffffu, 0x01000000u}) {
      Bytes bad = good;
      Put(&bad, at, value);
      bad = Sealed(std::move(bad));
      largest_allocation = 0;
      { Bytes control(100); }
      ASSERT_GE(largest_allocation, 100u);  // it counts
      Result<ImageManifest> read = ParseImageManifest(bad, kFile);
      if (read.ok()) (void)DistinctChunks(*read);
      ASSERT_LT(largest_allocation, 16 * good.size()) << "at " << at;
    }
  }
}

TEST(ImageManifestTest, RandomDamageUnderAGoodSumIsSurvived) {
  const Bytes good = Serialized(MakeManifest());
  std::mt19937_64 random(1);
  const int rounds = FullTest() ? 1000000 : 20000;
  for (int round = 0; round < rounds; ++round) {
    Bytes bad = good;
    for (uint64_t i = random() % 4; i < 4; ++i) {
      bad[24 + random() % (bad.size() - 40)] = static_cast<std::byte>(random() % 2 ? random() : random() % 8);
    }
    if (random() % 4 == 0) bad.resize(40 + random() % (bad.size() - 40));
    largest_allocation = 0;
    Result<ImageManifest> read = ParseImageManifest(Sealed(std::move(bad)), kFile);
    ASSERT_LT(largest_allocation, 32 * good.size());
    if (!read.ok()) continue;
    Bytes again = Serialized(*read);
    ASSERT_TRUE(ParseImageManifest(again, kFile).ok());
  }
}

TEST(ImageManifestTest, BatchesKeepOrderAndBound) {
  std::vector<ChunkRef> chunks;
  for (uint32_t size : {5u, 5u, 1u, 20u, 3u, 7u, 10u}) chunks.push_back({{1, size}, size});
  std::vector<size_t> sizes;
  for (std::span<const ChunkRef> batch : CutIntoBatches(chunks, 10)) sizes.push_back(TotalSize(batch));
  EXPECT_EQ(sizes, (std::vector<size_t>{10, 1, 20, 10, 10}));
  EXPECT_TRUE(CutIntoBatches({}, 10).empty());
}

}  // namespace
}  // namespace stasis

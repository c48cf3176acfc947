// Writers that write to one store together, each chunk by one of them.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "dedup/image.h"
#include "dedup/image_testing.h"
#include "dedup/store.h"

namespace stasis {
namespace {

constexpr size_t kUnit = kDefaultChunkBytes;

testing::AssertionResult IsOk(const Status& status) {
  return status.ok() ? testing::AssertionSuccess() : testing::AssertionFailure() << status.ToString();
}

// First come, first served.
class Claims {
 public:
  ChunkClaim Of(int writer) {
    return [this, writer](std::span<const Hash128> chunks) -> Result<std::vector<bool>> {
      std::lock_guard lock(mutex_);
      std::vector<bool> mine;
      for (const Hash128& hash : chunks) {
        EXPECT_FALSE(hash == kZeroChunk);
        mine.push_back(owners_.emplace(std::pair(hash.high, hash.low), writer).first->second == writer);
      }
      return mine;
    };
  }
  size_t chunks() const { return owners_.size(); }

 private:
  std::mutex mutex_;
  std::map<std::pair<uint64_t, uint64_t>, int> owners_;
};

class ImageShareTest : public testing::Test {
 protected:
  // As each process has one of its own.
  std::shared_ptr<Store> Open() { return OpenStore(folder_ / "store"); }
  static std::string Task(int writer) { return "job." + std::to_string(writer); }
  std::unique_ptr<ImageWriter> Create(int writer, const std::string& id = "000001") {
    Result<std::unique_ptr<ImageWriter>> image = ImageWriter::Create(Open(), Task(writer), id);
    EXPECT_TRUE(IsOk(image.status()));
    (*image)->ShareWith(claims_.Of(writer));
    return *std::move(image);
  }
  std::string Scratch(int writer) { return folder_ / ("scratch" + std::to_string(writer)); }
  Status Fill(ImageWriter* image, int writer) { return FillImage(image, sample_, Scratch(writer)); }
  Status Read(int writer) { return ReadSample(Open(), Task(writer), "000001", sample_, Scratch(writer)); }
  GcReport Collect() {
    Result<GcReport> report = Open()->CollectGarbage();
    EXPECT_TRUE(IsOk(report.status()));
    return report.ok() ? *report : GcReport();
  }

  TempFolder folder_;
  Claims claims_;
  const Sample sample_ = MakeSample(1, kUnit);
};

TEST_F(ImageShareTest, EachChunkIsWrittenByOne) {
  std::unique_ptr<ImageWriter> a = Create(0), b = Create(1);
  ASSERT_OK(Fill(a.get(), 0));
  ASSERT_OK(Fill(b.get(), 1));
  ASSERT_OK(a->Prepare(sample_.meta));
  ASSERT_OK(b->Prepare(sample_.meta));
  EXPECT_EQ(a->counts().others_bytes, 0u);
  EXPECT_EQ(a->counts().new_bytes, a->counts().unique_bytes);
  EXPECT_EQ(b->counts().others_bytes, b->counts().unique_bytes);
  EXPECT_EQ(b->counts().new_bytes, 0u);
  ASSERT_OK(b->Commit());
  ASSERT_OK(a->Commit());
  EXPECT_EQ(Open()->counts().chunks, claims_.chunks());
  ASSERT_OK(Read(0));
  ASSERT_OK(Read(1));
}

TEST_F(ImageShareTest, WritersAtTheSameTimeShareTheWork) {
  constexpr int kWriters = 4;
  std::vector<std::unique_ptr<ImageWriter>> images;
  for (int i = 0; i < kWriters; ++i) images.push_back(Create(i));
  std::vector<std::thread> threads;
  for (int i = 0; i < kWriters; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(IsOk(Fill(images[i].get(), i)));
      EXPECT_TRUE(IsOk(images[i]->Prepare(sample_.meta)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t added = 0;
  for (auto& image : images) added += image->counts().new_bytes;
  EXPECT_EQ(added, images[0]->counts().unique_bytes);
  Collect();  // nothing is named yet
  for (auto& image : images) ASSERT_OK(image->Commit());
  images.clear();
  Collect();
  for (int i = 0; i < kWriters; ++i) ASSERT_OK(Read(i));
}

TEST_F(ImageShareTest, WhatIsOfferedByItsHashIsAskedForToo) {
  Bytes bytes = Joined({Noise(1, kUnit), Noise(2, kUnit)});
  std::vector<Hash128> hashes = {HashBytes(Noise(1, kUnit)), HashBytes(Noise(2, kUnit))};
  std::unique_ptr<ImageWriter> a = Create(0), b = Create(1);
  std::vector<bool> wanted;
  ASSERT_OK(a->AddStream("s", {{0, kUnit}}));
  ASSERT_OK(WriteStream(a.get(), "s", Noise(1, kUnit)));
  ASSERT_OK(b->AddStream("s", {{0, bytes.size()}}));
  ASSERT_OK(b->OfferPiece("s", 0, hashes, &wanted));
  EXPECT_EQ(wanted, (std::vector<bool>{false, true}));
  EXPECT_EQ(b->WriteChunk("s", 0, Noise(1, kUnit)).code(), StatusCode::kInvalidArgument);
  ASSERT_OK(b->WriteChunk("s", 1, Noise(2, kUnit)));
  ASSERT_OK(a->Prepare(Json::object()));
  ASSERT_OK(b->Prepare(Json::object()));
  EXPECT_EQ(b->counts().others_bytes, kUnit);
  ASSERT_OK(b->Commit());
}

TEST_F(ImageShareTest, NoManifestNamesWhatHasNotCome) {
  std::unique_ptr<ImageWriter> a = Create(0), b = Create(1);
  ASSERT_OK(Fill(a.get(), 0));
  ASSERT_OK(Fill(b.get(), 1));
  ASSERT_OK(b->Prepare(sample_.meta));
  Status status = b->Commit();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_NE(status.ToString().find("were to write"), std::string::npos) << status.ToString();
  b.reset();
  Result<std::vector<std::string>> images = ListImages(*Open(), Task(1));
  ASSERT_OK(images.status());
  EXPECT_TRUE(images->empty());
}

TEST_F(ImageShareTest, WhatHasComeStaysWhileItsWriterIsThere) {
  std::unique_ptr<ImageWriter> a = Create(0), b = Create(1);
  ASSERT_OK(Fill(a.get(), 0));
  ASSERT_OK(Fill(b.get(), 1));
  ASSERT_OK(a->Prepare(sample_.meta));
  ASSERT_OK(b->Prepare(sample_.meta));
  EXPECT_EQ(Collect().packs_removed, 0u);
  ASSERT_OK(b->Commit());
  // Now the image of b holds it, whatever becomes of a's.
  a.reset();
  b.reset();
  Collect();
  ASSERT_OK(Read(1));
}

TEST_F(ImageShareTest, AWriterThatGaveUpIsNoticed) {
  std::unique_ptr<ImageWriter> a = Create(0), b = Create(1);
  ASSERT_OK(Fill(a.get(), 0));
  ASSERT_OK(Fill(b.get(), 1));
  ASSERT_OK(a->Prepare(sample_.meta));
  ASSERT_OK(b->Prepare(sample_.meta));
  a.reset();
  EXPECT_GT(Collect().packs_removed, 0u);
  EXPECT_EQ(b->Commit().code(), StatusCode::kFailedPrecondition);
}

TEST_F(ImageShareTest, AClaimThatFailsFailsTheImage) {
  std::unique_ptr<ImageWriter> image = Create(0);
  image->ShareWith([](std::span<const Hash128>) -> Result<std::vector<bool>> {
    return Status(StatusCode::kPeerDied, "nobody to ask");
  });
  EXPECT_EQ(Fill(image.get(), 0).code(), StatusCode::kPeerDied);
  EXPECT_FALSE(image->Prepare(sample_.meta).ok());

  image = Create(1);
  image->ShareWith([](std::span<const Hash128>) { return std::vector<bool>(); });
  EXPECT_EQ(Fill(image.get(), 1).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace stasis

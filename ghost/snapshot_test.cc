#include "ghost/snapshot.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <random>
#include <thread>
#include <utility>

#include "base/testing.h"
#include "ghost/holdings.h"
#include "ghost/pressure.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kExtent = 16 << 20;
constexpr uint64_t kAddress = 0x7f0000000000, kSecondAddress = kAddress + 4 * kExtent;
constexpr uint64_t kPlenty = 1ull << 40;

// One process with two extents, of each of which a part is active.
class SnapshotTest : public testing::Test {
 protected:
  SnapshotTest() : node_({"--gpus", "1", "--memory", "128MiB"}) {
    Result<std::unique_ptr<Gpu>> gpu = Gpu::Open(LIBCUDA_PATH);
    EXPECT_STATUS_OK(gpu.status());
    gpu_ = *std::move(gpu);
    std::mt19937_64 random(7);
    bytes_.resize(2 * kExtent);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    HeldMember member;
    member.nspid = 5;
    member.placed = member.placements = {{0, 0}};
    for (uint64_t i = 0; i < 2; ++i) {
      Result<GpuMemory> memory = gpu_->Create(0, kExtent);
      EXPECT_STATUS_OK(memory.status());
      EXPECT_STATUS_OK(memory->Write(0, std::span(bytes_).subspan(i * kExtent, kExtent)));
      Result<Fd> fd = memory->Export();
      EXPECT_STATUS_OK(fd.status());
      member.extents.push_back({{i + 1, 0, i == 0 ? kAddress : kSecondAddress, kExtent}, 0, *std::move(fd)});
    }
    member.ranges = {{kAddress + 512, 9 << 20}, {kSecondAddress + (1 << 20), (5 << 20) + 100}};
    holdings_.members.push_back(std::move(member));
    layout_ = StreamLayout(holdings_.members[0].Segments(), kDefaultChunkBytes);
  }
  ~SnapshotTest() override {
    holdings_.Clear();
    snapshot_.reset();
    gpu_.reset();
  }

  std::vector<std::byte> Stream() const {
    std::vector<std::byte> stream;
    auto add = [&](uint64_t at, uint64_t size) {
      stream.insert(stream.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(at + size));
    };
    add(512, 9 << 20);
    add(kExtent + (1 << 20), (5 << 20) + 100);
    return stream;
  }

  Status Take(Snapshot::Place place, uint64_t limit) {
    Result<std::unique_ptr<Snapshot>> snapshot =
        Snapshot::Take(*gpu_, holdings_.members, {&layout_}, place, limit);
    if (snapshot.ok()) snapshot_ = *std::move(snapshot);
    // The program overwrites its memory meanwhile.
    for (const HeldExtent& e : holdings_.members[0].extents) {
      Result<GpuMemory> memory = gpu_->Import(0, e.fd.get(), kExtent);
      EXPECT_STATUS_OK(memory.status());
      EXPECT_STATUS_OK(memory->Write(0, std::vector<std::byte>(kExtent)));
    }
    return snapshot.status();
  }

  // Pieces [begin, end), used and given back.
  std::vector<std::byte> Read(MemorySource& source, size_t begin, size_t end) {
    std::vector<std::byte> all, staging(kPieceBytes);
    for (size_t i = begin; i < end; ++i) {
      MemberPiece piece{0, i, layout_.pieces()[i]};
      auto bytes = source.Read(piece, std::span(staging).first(piece.piece.size));
      EXPECT_STATUS_OK(bytes.status());
      if (!bytes.ok()) return all;
      all.insert(all.end(), bytes->begin(), bytes->end());
      source.Done(piece);
    }
    return all;
  }
  size_t pieces() const { return layout_.pieces().size(); }

  vmm::TestNode node_;
  TempFolder folder_;
  std::unique_ptr<Gpu> gpu_;
  std::vector<std::byte> bytes_;
  Holdings holdings_;
  StreamLayout layout_;
  std::unique_ptr<Snapshot> snapshot_;
};

TEST_F(SnapshotTest, IsWhatWasThereAndIsGivenBackAsItIsUsed) {
  for (Snapshot::Place place : {Snapshot::Place::kDevice, Snapshot::Place::kHost}) {
    ASSERT_TRUE(gpu_->FreeBytes(0).ok());
    uint64_t before = *gpu_->FreeBytes(0);
    std::vector<std::byte> expected = Stream();
    ASSERT_TRUE(Take(place, kPlenty).ok());
    bool on_device = place == Snapshot::Place::kDevice;
    EXPECT_EQ(snapshot_->DeviceBytes().count(0), on_device ? 1u : 0u);
    EXPECT_EQ(*gpu_->FreeBytes(0) < before, on_device);
    EXPECT_TRUE(Read(*snapshot_, 0, pieces()) == expected);
    EXPECT_TRUE(snapshot_->DeviceBytes().empty());
    EXPECT_EQ(*gpu_->FreeBytes(0), before);
    EXPECT_FALSE(snapshot_->gave_up());
    // The next one is of what the program has now.
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0});
  }
}

TEST_F(SnapshotTest, TakesNoMoreThanThereIs) {
  EXPECT_EQ(Take(Snapshot::Place::kHost, 14 << 20).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Take(Snapshot::Place::kHost, (14 << 20) + 100).ok());
  Result<uint64_t> free_bytes = gpu_->FreeBytes(0);
  ASSERT_TRUE(free_bytes.ok());
  Result<GpuMemory> hog = gpu_->Create(0, *free_bytes - (14 << 20));
  ASSERT_TRUE(hog.ok());
  EXPECT_EQ(Take(Snapshot::Place::kDevice, kPlenty).code(), StatusCode::kResourceExhausted);
}

TEST_F(SnapshotTest, GoesToTheHostWhenItHasToGiveUpTheDevice) {
  std::vector<std::byte> expected = Stream();
  ASSERT_TRUE(Take(Snapshot::Place::kDevice, kPlenty).ok());
  std::vector<std::byte> read = Read(*snapshot_, 0, 1);
  ASSERT_TRUE(snapshot_->GiveUpDevice().ok());
  EXPECT_TRUE(snapshot_->gave_up());
  EXPECT_TRUE(snapshot_->DeviceBytes().empty());
  std::vector<std::byte> rest = Read(*snapshot_, 1, pieces());
  read.insert(read.end(), rest.begin(), rest.end());
  EXPECT_TRUE(read == expected);
}

TEST_F(SnapshotTest, IsLostWhereTheHostHasNoRoom) {
  ASSERT_TRUE(Take(Snapshot::Place::kDevice, 1 << 20).ok());
  EXPECT_EQ(snapshot_->GiveUpDevice().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(snapshot_->DeviceBytes().empty()) << "the program has its memory all the same";
  std::vector<std::byte> staging(kPieceBytes);
  MemberPiece piece{0, 0, layout_.pieces()[0]};
  EXPECT_EQ(snapshot_->Read(piece, std::span(staging).first(piece.piece.size)).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(SnapshotTest, PressureIsAnsweredOnceTheMemoryIsFree) {
  std::vector<std::byte> expected = Stream();
  ASSERT_TRUE(Take(Snapshot::Place::kDevice, kPlenty).ok());
  Result<std::unique_ptr<PressureWatch>> watch = PressureWatch::Start(*snapshot_, 2);
  ASSERT_TRUE(watch.ok());
  Result<std::vector<Fd>> first = (*watch)->DescriptorsOf(0), second = (*watch)->DescriptorsOf(1);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(eventfd_write((*first)[0].get(), 1), 0);
  pollfd wait{(*first)[1].get(), POLLIN, 0};
  ASSERT_EQ(poll(&wait, 1, 30000), 1);
  EXPECT_TRUE(snapshot_->DeviceBytes().empty());
  pollfd nobody{(*second)[1].get(), POLLIN, 0};
  EXPECT_EQ(poll(&nobody, 1, 0), 0) << "who has not asked gets no answer";
  // Nothing is left to be given up, and who asks is told so.
  ASSERT_EQ(eventfd_write((*second)[0].get(), 1), 0);
  EXPECT_EQ(poll(&nobody, 1, 30000), 1);
  EXPECT_TRUE(Read(*snapshot_, 0, pieces()) == expected);
}

TEST_F(SnapshotTest, HoldingsKeepTheActiveBytesWhereverTheyAre) {
  std::vector<std::byte> expected = Stream();
  Result<std::shared_ptr<Store>> store = Store::Open(folder_.path());
  ASSERT_TRUE(store.ok());
  for (bool on_disk : {false, true}) {
    EXPECT_STATUS_OK(on_disk ? holdings_.CopyToDisk(*gpu_, *store, "task", {})
                             : holdings_.CopyToHost(*gpu_, {}));
    holdings_.DropDevice();
    EXPECT_EQ(holdings_.device_bytes(), 0u);
    // On its way through another process.
    Json description = holdings_.Describe();
    Result<Holdings> adopted = Holdings::Adopt(description, holdings_.Descriptors(), "task");
    ASSERT_TRUE(adopted.ok());
    EXPECT_EQ(adopted->on_disk(), on_disk);
    adopted->UseStore(*store);
    ASSERT_TRUE(adopted->CopyToDevice(*gpu_, {}).ok());
    EXPECT_EQ(adopted->device_bytes(), 2 * kExtent);
    Result<DeviceMemory> memory = ImportAll(*gpu_, adopted->members);
    ASSERT_TRUE(memory.ok());
    EXPECT_TRUE(Read(*SourceOf(adopted->members, *std::move(memory)), 0, pieces()) == expected);
    holdings_ = *std::move(adopted);
    on_disk ? holdings_.DropDisk() : holdings_.DropHost();
  }
  EXPECT_EQ(RemoveImage(**store, "task", kHeldImage).code(), StatusCode::kNotFound);
}

// On its way to and from every place, and in whichever thread.
TEST_F(SnapshotTest, NoCopyIsOfPageableMemory) {
  Result<std::shared_ptr<Store>> store = Store::Open(folder_.path());
  ASSERT_TRUE(store.ok());
  vmm::CopyWatch watch;
  auto expect_pinned = [&watch](const char* what, Status status) {
    EXPECT_STATUS_OK(status);
    const vmm::CopyWatch::Seen seen = watch.Take();
    EXPECT_GT(seen.copies, 0) << what;
    EXPECT_EQ(seen.pageable, 0) << what;
  };
  auto save = [&](const char* id, MemorySource& source, Gpu* gpu) -> Status {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> image, ImageWriter::Create(*store, "task", id));
    RETURN_IF_ERROR(holdings_.AddStreams(*image));
    return SaveStreams(holdings_.StreamNames(), source, gpu, *image, {});
  };
  auto take = [&](Snapshot::Place place) {
    Result<std::unique_ptr<Snapshot>> snapshot =
        Snapshot::Take(*gpu_, holdings_.members, {&layout_}, place, kPlenty);
    if (snapshot.ok()) snapshot_ = *std::move(snapshot);
    return snapshot.status();
  };
  expect_pinned("a snapshot in the host", take(Snapshot::Place::kHost));
  EXPECT_STATUS_OK(take(Snapshot::Place::kDevice));
  Status status;
  std::thread([&] { status = save("000001", *snapshot_, gpu_.get()); }).join();
  expect_pinned("a snapshot on the device, saved by a thread that has had nothing to do with it", status);
  EXPECT_STATUS_OK(take(Snapshot::Place::kDevice));
  std::thread([&] { status = snapshot_->GiveUpDevice(); }).join();
  expect_pinned("a snapshot that gives up the device", status);
  expect_pinned("pause to the host", holdings_.CopyToHost(*gpu_, {}));
  holdings_.DropDevice();
  expect_pinned("resume from the host", holdings_.CopyToDevice(*gpu_, {}));
  holdings_.DropHost();
  expect_pinned("pause to the disk", holdings_.CopyToDisk(*gpu_, *store, "task", {}));
  holdings_.DropDevice();
  expect_pinned("resume from the disk", holdings_.CopyToDevice(*gpu_, {}));
  holdings_.DropDisk();
}

TEST_F(SnapshotTest, AnAdoptedDescriptionNeedsItsDescriptors) {
  Json description = holdings_.Describe();
  std::vector<Fd> few = holdings_.Descriptors();
  few.pop_back();
  EXPECT_EQ(Holdings::Adopt(description, std::move(few), "task").status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stasis

#include "ghost/fan_out.h"

#include <gtest/gtest.h>

#include <list>
#include <random>
#include <utility>

#include "base/testing.h"
#include "dedup/image.h"
#include "ghost/manifest.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kExtent = 8 << 20;
constexpr uint64_t kAddress = 0x7f0000000000, kSecondAddress = kAddress + 4 * kExtent;
constexpr uint64_t kOwnBytes = 1 << 20;  // of each rank, after what all have

using Bytes = std::vector<std::byte>;

// Ranks of one process each, whose memory is two extents: one that is the same in all of them, and one that
// ends differently.
class FanOutTest : public testing::Test {
 protected:
  FanOutTest() : node_({"--gpus", "2", "--memory", "256MiB"}) {
    Result<std::unique_ptr<Gpu>> gpu = Gpu::Open(LIBCUDA_PATH);
    EXPECT_STATUS_OK(gpu.status());
    gpu_ = *std::move(gpu);
    Result<std::shared_ptr<Store>> store = Store::Open(folder_ / "store");
    EXPECT_STATUS_OK(store.status());
    store_ = *std::move(store);
  }
  ~FanOutTest() override {
    ranks_.clear();
    gpu_.reset();
  }

  struct Rank {
    std::string task;
    Bytes bytes;  // of its stream
    std::unique_ptr<ImageReader> image;
    std::unique_ptr<FanOut> fan_out;
    Holdings holdings;
  };

  static HeldMember Member(int device) {
    HeldMember member;
    member.nspid = 2;
    member.placed = member.placements = {{0, device}};
    member.extents.push_back({{1, 0, kAddress, kExtent, 0, 0}, 0, Fd(), false});
    member.extents.push_back({{2, 0, kSecondAddress, kExtent, 0, 0}, 0, Fd(), false});
    member.ranges = {{kAddress + 512, 5 << 20}, {kSecondAddress, kExtent}};
    return member;
  }
  static Json Meta(const HeldMember& held, const std::string& task) {
    Manifest manifest;
    manifest.task = {
        {"version", 1},       {"name", task}, {"argv", {"a"}},         {"cwd", "/"},
        {"created", 1},       {"uid", 0},     {"device", "soft"},      {"driver", "/l/libcuda.so.1"},
        {"strategy", "auto"}, {"gpus", {0}},  {"pid_namespace", true}, {"log", "/l/output.log"}};
    manifest.machine = MachineName();
    manifest.kernel = manifest.criu = "x";
    manifest.init_nspid = 1;
    manifest.program_nspid = 2;
    manifest.log = "/l/output.log";
    manifest.run = "/r/tasks/t";
    ManifestMember member;
    member.nspid = held.nspid;
    member.driver_version = 13000;
    member.devices = {{0, 0, std::string(16, '\x7f'), "GPU", 1 << 30, 120, true}};
    member.stream = held.stream();
    for (const HeldExtent& e : held.extents) member.extents.push_back(e.extent);
    member.ranges = held.ranges;
    manifest.members = {member};
    return ManifestJson(manifest);
  }

  static Bytes Noise(uint64_t seed, size_t size) {
    std::mt19937_64 random(seed);
    Bytes bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }

  void AddRank(int index, int device) {
    Rank& rank = ranks_.emplace_back();
    rank.task = "job." + std::to_string(index);
    rank.holdings.members.push_back(Member(device));
    const HeldMember& member = rank.holdings.members[0];
    rank.bytes = Noise(1, member.active_bytes());
    Bytes own = Noise(100 + index, kOwnBytes);
    std::copy(own.begin(), own.end(), rank.bytes.end() - kOwnBytes);
    std::fill_n(rank.bytes.begin() + (6 << 20), 1 << 20, std::byte{0});
    Result<std::unique_ptr<ImageWriter>> image = ImageWriter::Create(store_, rank.task, "000001");
    EXPECT_STATUS_OK(image.status());
    EXPECT_STATUS_OK((*image)->AddStream(member.stream(), member.Segments()));
    const StreamLayout& layout = (*image)->Layout(member.stream());
    for (size_t i = 0; i < layout.pieces().size(); ++i) {
      const Piece& piece = layout.pieces()[i];
      EXPECT_STATUS_OK(
          (*image)->WritePiece(member.stream(), i, std::span(rank.bytes).subspan(piece.offset, piece.size)));
    }
    EXPECT_STATUS_OK((*image)->Commit(Meta(member, rank.task)));
  }

  std::vector<FanOut::Peer> Peers() const {
    std::vector<FanOut::Peer> peers;
    for (const Rank& rank : ranks_) peers.push_back({rank.task, "000001", folder_ / (rank.task + ".sock")});
    return peers;
  }

  Status Plan(Rank& rank, bool together) {
    ASSIGN_OR_RETURN(rank.image, ImageReader::Open(store_, rank.task, "000001"));
    ASSIGN_OR_RETURN(rank.fan_out,
                     FanOut::Plan(*store_, *rank.image, together ? Peers() : std::vector<FanOut::Peer>()));
    return Status();
  }

  // What the rank's program would find.
  Bytes Restored(Rank& rank) {
    Result<DeviceMemory> memory = ImportAll(*gpu_, rank.holdings.members);
    EXPECT_STATUS_OK(memory.status());
    Bytes bytes(rank.bytes.size());
    StreamMap map(rank.holdings.members[0]);
    EXPECT_STATUS_OK(
        map.ForParts(0, std::span(bytes), [&](size_t extent, uint64_t inside, std::span<std::byte> part) {
          return (*memory)[0][extent].Read(inside, part);
        }));
    return bytes;
  }

  vmm::TestNode node_;
  TempFolder folder_;
  std::unique_ptr<Gpu> gpu_;
  std::shared_ptr<Store> store_;
  std::list<Rank> ranks_;
};

constexpr uint64_t kActive = (5 << 20) + kExtent;
constexpr uint64_t kDistinct = kActive - (1 << 20);  // without zeros; nearly, as those end within chunks

TEST_F(FanOutTest, WhatAllHaveIsReadOnce) {
  for (int i = 0; i < 3; ++i) AddRank(i, i % 2);
  for (Rank& rank : ranks_) ASSERT_OK(Plan(rank, true));
  for (Rank& rank : ranks_) ASSERT_OK(rank.fan_out->Load(*gpu_, rank.holdings, {}));
  for (Rank& rank : ranks_) ASSERT_OK(rank.fan_out->Fetch(*gpu_, rank.holdings, {}));
  uint64_t read = 0, all = 0;
  for (Rank& rank : ranks_) {
    EXPECT_TRUE(Restored(rank) == rank.bytes) << rank.task;
    EXPECT_TRUE(rank.fan_out->notes().empty()) << rank.fan_out->notes()[0];
    EXPECT_GT(rank.fan_out->read_bytes(), kDistinct / 8) << "the work is shared";
    read += rank.fan_out->read_bytes();
    all += rank.fan_out->read_bytes() + rank.fan_out->fanned_out_bytes();
  }
  EXPECT_LE(read, kDistinct + 2 * kOwnBytes + 5 * kDefaultChunkBytes);
  EXPECT_GE(read, kDistinct + 2 * kOwnBytes);
  EXPECT_GE(all, 3 * kDistinct);
}

TEST_F(FanOutTest, AloneEachReadsItsOwn) {
  AddRank(0, 1);
  Rank& rank = ranks_.front();
  ASSERT_OK(Plan(rank, false));
  ASSERT_OK(rank.fan_out->Load(*gpu_, rank.holdings, {}));
  ASSERT_OK(rank.fan_out->Fetch(*gpu_, rank.holdings, {}));
  EXPECT_TRUE(Restored(rank) == rank.bytes);
  EXPECT_GE(rank.fan_out->read_bytes(), kDistinct);
  EXPECT_EQ(rank.fan_out->fanned_out_bytes(), 0u);
}

TEST_F(FanOutTest, ProcessesOfOneTaskReadOnceToo) {
  AddRank(0, 0);
  Rank& rank = ranks_.front();
  rank.holdings.members.push_back(Member(1));
  HeldMember& second = rank.holdings.members[1];
  second.nspid = 3;
  Result<std::unique_ptr<ImageWriter>> writer = ImageWriter::Create(store_, "tree", "000001");
  ASSERT_OK(writer.status());
  Json meta = Meta(rank.holdings.members[0], "tree");
  meta["members"].push_back(Meta(second, "tree")["members"][0]);
  for (const HeldMember& member : rank.holdings.members) {
    ASSERT_OK((*writer)->AddStream(member.stream(), member.Segments()));
    const StreamLayout& layout = (*writer)->Layout(member.stream());
    for (size_t i = 0; i < layout.pieces().size(); ++i) {
      const Piece& piece = layout.pieces()[i];
      ASSERT_OK(
          (*writer)->WritePiece(member.stream(), i, std::span(rank.bytes).subspan(piece.offset, piece.size)));
    }
  }
  ASSERT_OK((*writer)->Commit(meta));
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store_, "tree", "000001");
  ASSERT_OK(image.status());
  Result<std::unique_ptr<FanOut>> fan_out = FanOut::Plan(*store_, **image, {});
  ASSERT_OK(fan_out.status());
  ASSERT_OK((*fan_out)->Load(*gpu_, rank.holdings, {}));
  EXPECT_LE((*fan_out)->read_bytes(), kDistinct + 3 * kDefaultChunkBytes);
  EXPECT_GE((*fan_out)->fanned_out_bytes(), kDistinct);
  EXPECT_TRUE(Restored(rank) == rank.bytes);
  rank.holdings.members.erase(rank.holdings.members.begin());
  EXPECT_TRUE(Restored(rank) == rank.bytes) << "the other process's";
}

// A driver that takes over no memory any more after some.
struct ImportsEnd {
  explicit ImportsEnd(int after) {
    left = after;
    import = std::exchange(internal::g_driver.cuMemImportFromShareableHandle, &Import);
  }
  ~ImportsEnd() { internal::g_driver.cuMemImportFromShareableHandle = import; }
  static CUresult Import(CUmemGenericAllocationHandle* handle, void* shared, CUmemAllocationHandleType type) {
    return --left < 0 ? CUDA_ERROR_NOT_SUPPORTED : import(handle, shared, type);
  }
  static inline int left = 0;
  static inline decltype(&cuMemImportFromShareableHandle) import = nullptr;
};

TEST_F(FanOutTest, NoCopyIsOfPageableMemory) {
  for (int i = 0; i < 2; ++i) AddRank(i, i);
  for (Rank& rank : ranks_) ASSERT_OK(Plan(rank, true));
  vmm::CopyWatch watch;
  for (Rank& rank : ranks_) ASSERT_OK(rank.fan_out->Load(*gpu_, rank.holdings, {}));
  vmm::CopyWatch::Seen seen = watch.Take();
  EXPECT_GT(seen.copies, 0);
  EXPECT_EQ(seen.pageable, 0);
  Rank& rank = ranks_.front();
  {
    const ImportsEnd after_its_own(2);
    ASSERT_OK(rank.fan_out->Fetch(*gpu_, rank.holdings, {}));
  }
  seen = watch.Take();
  EXPECT_GT(seen.copies, 0) << "what another rank has is read from the store where it cannot be reached";
  EXPECT_EQ(seen.pageable, 0);
  EXPECT_FALSE(rank.fan_out->notes().empty());
  EXPECT_TRUE(Restored(rank) == rank.bytes);
}

TEST_F(FanOutTest, ARankThatIsGoneFailsTheOthers) {
  for (int i = 0; i < 2; ++i) AddRank(i, 0);
  for (Rank& rank : ranks_) ASSERT_OK(Plan(rank, true));
  for (Rank& rank : ranks_) ASSERT_OK(rank.fan_out->Load(*gpu_, rank.holdings, {}));
  ranks_.front().fan_out.reset();
  Status status = ranks_.back().fan_out->Fetch(*gpu_, ranks_.back().holdings, {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.ToString().find("job.0"), std::string::npos) << status.ToString();
}

TEST_F(FanOutTest, AnImageOfAnotherRankThatIsNotThereIsNamed) {
  AddRank(0, 0);
  Rank& rank = ranks_.front();
  ASSERT_OK(Plan(rank, true));
  std::vector<FanOut::Peer> peers = Peers();
  peers.push_back({"job.1", "000001", ""});
  Status status = FanOut::Plan(*store_, *rank.image, peers).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.ToString().find("job.1"), std::string::npos) << status.ToString();
  peers.erase(peers.begin());
  EXPECT_FALSE(FanOut::Plan(*store_, *rank.image, peers).ok());
}

TEST_F(FanOutTest, OnlyWhatIsThereIsGivenOut) {
  AddRank(0, 0);
  Rank& rank = ranks_.front();
  ASSERT_OK(Plan(rank, false));
  ASSERT_OK(rank.fan_out->Load(*gpu_, rank.holdings, {}));
  std::string path = folder_ / "memory.sock";
  Result<std::unique_ptr<ExtentServer>> server = ExtentServer::Start(path, rank.holdings.members);
  ASSERT_OK(server.status());
  Deadline deadline = Deadline::After(std::chrono::seconds(60));
  Result<std::vector<Fd>> fds = FetchExtents(path, {{0, 1}, {0, 0}, {0, 1}}, deadline);
  ASSERT_OK(fds.status());
  EXPECT_EQ(fds->size(), 3u);
  for (ExtentName name : {ExtentName{0, 2}, ExtentName{1, 0}, ExtentName{~0u, ~0u}}) {
    EXPECT_EQ(FetchExtents(path, {name}, deadline).status().code(), StatusCode::kNotFound);
  }
  std::vector<ExtentName> many(3000, ExtentName{0, 0});
  fds = FetchExtents(path, many, deadline);
  ASSERT_OK(fds.status());
  EXPECT_EQ(fds->size(), many.size());
  server->reset();
  EXPECT_FALSE(FetchExtents(path, {{0, 0}}, deadline).ok());
}

}  // namespace
}  // namespace stasis

#include "ghost/device_save.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/testing.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kBytes = 16 << 20;
constexpr uint64_t kAddress = 0x7f0000000000;  // where the program has the memory
// Two ranges that begin and end within chunks, one behind the other in the stream.
constexpr Segment kFirst = {kAddress + 512, (9 << 20) + 1024},
                  kSecond = {kAddress + (10 << 20), (4 << 20) + 7};
constexpr uint64_t kStreamBytes = kFirst.size + kSecond.size;

uint64_t InMemory(uint64_t offset) {
  return offset < kFirst.size ? kFirst.address - kAddress + offset
                              : kSecond.address - kAddress + offset - kFirst.size;
}

class DeviceSaveTest : public testing::Test {
 protected:
  DeviceSaveTest() : node_({"--gpus", "1", "--memory", "256MiB"}) {
    Result<std::unique_ptr<Gpu>> gpu = Gpu::Open(LIBCUDA_PATH);
    EXPECT_STATUS_OK(gpu.status());
    gpu_ = *std::move(gpu);
    Result<GpuMemory> memory = gpu_->Create(0, kBytes);
    EXPECT_STATUS_OK(memory.status());
    memory_ = *std::move(memory);
    bytes_.resize(kBytes);
    std::mt19937_64 random(7);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    Result<std::shared_ptr<Store>> store = Store::Open(folder_.path());
    EXPECT_STATUS_OK(store.status());
    store_ = *std::move(store);
  }
  ~DeviceSaveTest() override {
    store_.reset();
    memory_ = GpuMemory();
    gpu_.reset();
  }

  DeviceBytes Bytes() {
    return {[this](uint64_t offset, std::span<std::byte> out) -> Status {
              uint64_t head = offset < kFirst.size ? std::min<uint64_t>(out.size(), kFirst.size - offset) : 0;
              RETURN_IF_ERROR(memory_.Read(InMemory(offset), out.first(head > 0 ? head : out.size())));
              if (head == 0 || head == out.size()) return Status();
              return memory_.Read(InMemory(kFirst.size), out.subspan(head));
            },
            [this](uint64_t offset, uint64_t size) -> std::optional<DevicePlace> {
              if (offset >= hidden_.address && offset < hidden_.address + hidden_.size) return std::nullopt;
              EXPECT_EQ(InMemory(offset) + size - 1, InMemory(offset + size - 1));
              return DevicePlace{0, memory_.address() + InMemory(offset)};
            }};
  }

  // Saves the memory as it is into a new image, reads that back and compares. What was copied.
  uint64_t Save(const std::string& id, DeviceHashMode mode, bool* known = nullptr) {
    EXPECT_STATUS_OK(memory_.Write(0, bytes_));
    Result<std::unique_ptr<ImageWriter>> image = ImageWriter::Create(store_, "task", id);
    EXPECT_STATUS_OK(image.status());
    EXPECT_STATUS_OK((*image)->AddStream("s", {kFirst, kSecond}));
    DeviceSaver saver(*gpu_, **image, mode);
    EXPECT_STATUS_OK(saver.AddStream("s", Bytes()));
    if (known) *known = saver.Knows("s");
    std::vector<std::byte> staging(kPieceBytes);
    const std::vector<Piece>& pieces = (*image)->Layout("s").pieces();
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (saver.Knows("s")) {
        EXPECT_STATUS_OK(saver.SavePiece("s", i, staging));
      } else {
        std::span<std::byte> piece = std::span(staging).first(pieces[i].size);
        EXPECT_STATUS_OK(Bytes().read(pieces[i].offset, piece));
        EXPECT_STATUS_OK((*image)->WritePiece("s", i, piece));
      }
    }
    EXPECT_STATUS_OK((*image)->Commit(Json::object()));
    ExpectSaved(id);
    return saver.copied_bytes();
  }

  void ExpectSaved(const std::string& id) {
    Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store_, "task", id);
    EXPECT_STATUS_OK(image.status());
    std::vector<std::byte> read(kStreamBytes);
    const std::vector<Piece>& pieces = (*image)->Layout("s")->pieces();
    for (size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_STATUS_OK(
          (*image)->ReadPiece("s", i, std::span(read).subspan(pieces[i].offset, pieces[i].size)));
    }
    EXPECT_EQ(std::memcmp(read.data(), bytes_.data() + InMemory(0), kFirst.size), 0);
    EXPECT_EQ(std::memcmp(read.data() + kFirst.size, bytes_.data() + InMemory(kFirst.size), kSecond.size), 0);
  }

  vmm::TestNode node_;
  TempFolder folder_;
  std::unique_ptr<Gpu> gpu_;
  GpuMemory memory_;
  std::vector<std::byte> bytes_;
  std::shared_ptr<Store> store_;
  Segment hidden_;  // offsets in the stream that are told not to be on the device
};

TEST_F(DeviceSaveTest, OnlyWhatChangedIsCopied) {
  EXPECT_GE(Save("000001", DeviceHashMode::kOn), kStreamBytes);
  EXPECT_EQ(Save("000002", DeviceHashMode::kOn), 0u);
  bytes_[3 << 20] ^= std::byte{1};
  bytes_[InMemory(kStreamBytes - 1)] ^= std::byte{1};
  uint64_t copied = Save("000003", DeviceHashMode::kOn);
  EXPECT_EQ(copied, store_->options().chunk_bytes + kSecond.size % store_->options().chunk_bytes);
}

TEST_F(DeviceSaveTest, ZerosAreNotCopied) {
  std::fill(bytes_.begin() + (1 << 20), bytes_.begin() + (9 << 20), std::byte{0});
  EXPECT_EQ(Save("000001", DeviceHashMode::kOn), kStreamBytes - (8 << 20));
}

TEST_F(DeviceSaveTest, WhatIsNotOnTheDeviceIsHashedHere) {
  Save("000001", DeviceHashMode::kOn);
  hidden_ = {2 << 20, 1 << 20};
  uint64_t copied = Save("000002", DeviceHashMode::kOn);
  EXPECT_GE(copied, hidden_.size);
  EXPECT_LE(copied, hidden_.size + store_->options().chunk_bytes);
}

TEST_F(DeviceSaveTest, NothingIsHashedThereWhenItIsOff) {
  bool known = true;
  EXPECT_EQ(Save("000001", DeviceHashMode::kOff, &known), 0u);
  EXPECT_FALSE(known);
}

TEST_F(DeviceSaveTest, ASlowDeviceIsLeftAlone) {
  bool known = true;
  Save("000001", DeviceHashMode::kAuto, &known);
  EXPECT_FALSE(known);
}

}  // namespace
}  // namespace stasis

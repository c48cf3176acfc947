#include "ghost/device_hash.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "vmm/testing.h"

namespace stasis {
namespace {

class DeviceHashTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 3 << 20;

  DeviceHashTest() : node_({"--gpus", "1", "--memory", "256MiB"}) {
    vmm::OpenOn(0);
    EXPECT_CUDA_OK(Driver().cuMemAlloc_v2(&memory_, kBytes));
    bytes_.resize(kBytes);
    std::mt19937_64 random(20);
    for (std::byte& byte : bytes_) byte = static_cast<std::byte>(random());
    Upload();
    Result<std::unique_ptr<DeviceHasher>> hasher = DeviceHasher::Create();
    EXPECT_STATUS_OK(hasher.status());
    if (hasher.ok()) hasher_ = *std::move(hasher);
  }
  ~DeviceHashTest() override {
    hasher_.reset();
    vmm::CloseAll(1);
  }

  void Upload() { EXPECT_CUDA_OK(Driver().cuMemcpyHtoD_v2(memory_, bytes_.data(), kBytes)); }
  void Add(uint64_t offset, uint64_t size) { ranges_.push_back({memory_ + offset, size}); }
  // Each range that was added against the library.
  void Check() {
    std::vector<Hash128> hashes(ranges_.size());
    EXPECT_STATUS_OK(hasher_->Hash(ranges_, hashes));
    for (size_t i = 0; i < ranges_.size(); ++i) {
      std::span<const std::byte> bytes =
          std::span<const std::byte>(bytes_).subspan(ranges_[i].address - memory_, ranges_[i].size);
      Hash128 expected = AllZero(bytes) ? Hash128{} : HashBytes(bytes);
      ASSERT_EQ(HashText(hashes[i]), HashText(expected))
          << ranges_[i].size << " bytes at " << ranges_[i].address - memory_;
    }
    ranges_.clear();
  }

  vmm::TestNode node_;
  CUdeviceptr memory_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<DeviceRange> ranges_;
  std::unique_ptr<DeviceHasher> hasher_;
};

TEST_F(DeviceHashTest, EveryLengthOfThreeBlocks) {
  for (uint64_t size = 0; size <= 3 * 1024 + 65; ++size) Add(512, size);
  Check();
}

TEST_F(DeviceHashTest, LengthsAroundTheEndsOfChunks) {
  for (uint64_t chunk = 4096; chunk <= 1 << 20; chunk *= 2) {
    for (int more : {-1025, -1024, -1023, -65, -64, -63, -1, 0, 1}) {
      if (chunk + more <= 1 << 20) Add(0, chunk + more);
    }
  }
  Check();
}

TEST_F(DeviceHashTest, RandomLengthsAtMultiplesOf512) {
  std::mt19937_64 random(21);
  for (int i = 0; i < 100; ++i) Add(random() % 1024 * 512, random() % (128 << 10));
  Check();
}

TEST_F(DeviceHashTest, AnyAddress) {
  std::mt19937_64 random(22);
  for (uint64_t offset = 0; offset < 64; ++offset) {
    Add(offset, 241 + random() % 4096);
    Add(offset, 1024 + offset);
  }
  Check();
}

TEST_F(DeviceHashTest, ZerosAreToldAndOneBitIsNot) {
  std::fill(bytes_.begin(), bytes_.begin() + (1 << 20), std::byte{0});
  constexpr uint64_t kSizes[] = {1, 240, 241, 512, 1024, 1025, 4096, 65535, 65536};
  for (uint64_t size : kSizes) Add(4096, size);
  std::vector<Hash128> hashes(ranges_.size(), Hash128{1, 1});
  Upload();
  EXPECT_STATUS_OK(hasher_->Hash(ranges_, hashes));
  for (const Hash128& hash : hashes) EXPECT_EQ(hash, Hash128{});
  Check();
  // A bit in the first and in the last byte.
  for (uint64_t size : kSizes) {
    for (uint64_t at : {uint64_t{0}, size - 1}) {
      bytes_[4096 + at] = std::byte{0x80};
      Upload();
      Add(4096, size);
      Check();
      bytes_[4096 + at] = std::byte{0};
    }
  }
}

TEST_F(DeviceHashTest, MoreRangesThanOneLaunchTakes) {
  for (uint64_t i = 0; i < 40000; ++i) Add(i % 5000 * 512, 241 + i % 300);
  Check();
}

TEST_F(DeviceHashTest, NothingIsTakenFromTheDevice) {
  hasher_.reset();
  size_t before = vmm::DriverFreeBytes();
  for (int i = 0; i < 3; ++i) {
    Result<std::unique_ptr<DeviceHasher>> hasher = DeviceHasher::Create();
    EXPECT_STATUS_OK(hasher.status());
    EXPECT_LE(before - vmm::DriverFreeBytes(), size_t{2} << 20);
  }
  EXPECT_EQ(vmm::DriverFreeBytes(), before);
}

TEST_F(DeviceHashTest, MemoryThatIsNotThereIsAnError) {
  Add(uint64_t{1} << 40, 4096);
  std::vector<Hash128> hashes(1);
  EXPECT_FALSE(hasher_->Hash(ranges_, hashes).ok());
  hasher_.reset();
}

TEST(DeviceHashModeTest, Names) {
  DeviceHashMode mode = DeviceHashMode::kAuto;
  EXPECT_TRUE(FindDeviceHashMode("off", &mode));
  EXPECT_EQ(mode, DeviceHashMode::kOff);
  EXPECT_TRUE(FindDeviceHashMode("on", &mode));
  EXPECT_EQ(mode, DeviceHashMode::kOn);
  EXPECT_FALSE(FindDeviceHashMode("", &mode));
}

}  // namespace
}  // namespace stasis

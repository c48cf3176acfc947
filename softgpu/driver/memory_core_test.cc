// The manager's classes without the driver around them, and the sub-allocator against a simple model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "softgpu/driver/memory_manager.h"
#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "2", "--memory", "256MiB"};

namespace {

TEST(SubAllocator, MergesNeighboursAndReportsEmptyRegions) {
  SubAllocator space(512);
  space.AddRegion(0x200000, 2048);
  uint64_t a = *space.Allocate(1), b = *space.Allocate(512), c = *space.Allocate(1024);
  EXPECT_FALSE(space.Allocate(1));
  EXPECT_FALSE(space.Free(a));
  EXPECT_FALSE(space.Allocate(1024)) << "no two free neighbours yet";
  EXPECT_FALSE(space.Free(b));
  EXPECT_EQ(*space.Allocate(1024), a);
  EXPECT_FALSE(space.Free(a));
  EXPECT_EQ(space.Free(c), std::optional<uint64_t>(0x200000));
  space.RemoveRegion(0x200000);
  EXPECT_TRUE(space.empty());
}

TEST(SubAllocator, RegionsThatTouchAreNotMerged) {
  SubAllocator space(512);
  space.AddRegion(0x1000, 0x1000);
  space.AddRegion(0x2000, 0x1000);
  EXPECT_FALSE(space.Allocate(0x1200));
  uint64_t a = *space.Allocate(0x1000), b = *space.Allocate(0x1000);
  EXPECT_TRUE(space.Free(a));
  EXPECT_TRUE(space.Free(b));
  EXPECT_FALSE(space.Allocate(0x1200));
}

TEST(SubAllocator, AgreesWithModelOverRandomCalls) {
  std::mt19937 random(20240607);
  SubAllocator space(512);
  for (uint64_t i = 0; i < 4; ++i) space.AddRegion(0x100000 + i * 0x10000, 0x8000 + i * 0x1000);
  std::map<uint64_t, uint64_t> live;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || live.empty()) {
      uint64_t bytes = random() % 0x1800 + 1;
      std::optional<uint64_t> base = space.Allocate(bytes);
      if (!base) continue;
      uint64_t size = (bytes + 511) / 512 * 512;
      ASSERT_EQ(*base % 512, 0u);
      ASSERT_EQ(space.BlockSize(*base), size);
      auto region = space.RegionOf(*base);
      ASSERT_TRUE(region && *base + size <= region->first + region->second);
      auto next = live.lower_bound(*base);
      ASSERT_TRUE(next == live.end() || next->first >= *base + size);
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, *base);
      }
      live[*base] = size;
    } else {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      space.Free(victim->first);
      live.erase(victim);
    }
  }
  for (auto [base, size] : live) space.Free(base);
  // Everything is free again: the largest region can be had in one piece.
  EXPECT_TRUE(space.Allocate(0xb000));
}

class Manager : public testing::Test {
 protected:
  void SetUp() override {
    ConnectOptions options;
    client_ = std::move(*DeviceClient::Connect(options, nullptr));
    manager_ = std::move(*MemoryManager::Create(client_.get(), 2));
    manager_->AddContext(A(), 0);
    manager_->AddContext(B(), 1);
  }
  static CUcontext A() { return reinterpret_cast<CUcontext>(0x1000); }
  static CUcontext B() { return reinterpret_cast<CUcontext>(0x2000); }
  bool Allows(int device, uint64_t address, bool write = true) {
    return manager_->access_map(device)->Allows(address, 4, write);
  }
  uint64_t Used(uint32_t device) {
    MemoryInfo info = *client_->MemInfo(device);
    return info.total_bytes - info.free_bytes;
  }
  std::unique_ptr<DeviceClient> client_;
  std::unique_ptr<MemoryManager> manager_;
};

TEST_F(Manager, PlainMemoryIsItsDevicesAndItsPeers) {
  CUdeviceptr small = 0, large = 0;
  ASSERT_EQ(manager_->AllocateDevice(A(), 100, BlockKind::kDevice, &small), CUDA_SUCCESS);
  ASSERT_EQ(manager_->AllocateDevice(A(), 5 << 20, BlockKind::kDevice, &large), CUDA_SUCCESS);
  EXPECT_EQ(Used(0), 8u << 20) << "a slab and three large pages";
  for (CUdeviceptr address : {small, large}) {
    EXPECT_TRUE(Allows(0, address));
    EXPECT_FALSE(Allows(1, address, false));
  }
  EXPECT_EQ(manager_->EnablePeer(B(), A()), CUDA_SUCCESS);
  EXPECT_EQ(manager_->EnablePeer(B(), A()), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CUdeviceptr later = 0;
  ASSERT_EQ(manager_->AllocateDevice(A(), 3 << 20, BlockKind::kDevice, &later), CUDA_SUCCESS);
  for (CUdeviceptr address : {small, large, later}) EXPECT_TRUE(Allows(1, address));
  EXPECT_EQ(manager_->DisablePeer(B(), A()), CUDA_SUCCESS);
  EXPECT_EQ(manager_->DisablePeer(B(), A()), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  for (CUdeviceptr address : {small, large, later}) {
    EXPECT_FALSE(Allows(1, address, false));
    EXPECT_TRUE(Allows(0, address));
  }
  manager_->RemoveContext(A());
  for (CUdeviceptr address : {small, large, later}) EXPECT_FALSE(Allows(0, address, false));
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(Manager, TwentyThousandSmallAllocationsShareSlabsAndGiveThemBack) {
  std::vector<CUdeviceptr> addresses(20000);
  for (CUdeviceptr& address : addresses) {
    ASSERT_EQ(manager_->AllocateDevice(A(), 1000, BlockKind::kDevice, &address), CUDA_SUCCESS);
    ASSERT_EQ(address % 512, 0u);
  }
  EXPECT_EQ(Used(0), 10ull * kLargePage) << "2048 blocks of 1024 bytes a slab";
  std::shuffle(addresses.begin(), addresses.end(), std::mt19937(7));
  for (CUdeviceptr address : addresses) ASSERT_EQ(manager_->Free(address, BlockKind::kDevice), CUDA_SUCCESS);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(manager_->Free(addresses[0], BlockKind::kDevice), CUDA_ERROR_INVALID_VALUE);
}

// Random reserve, create, map, set access, unmap, release, free against a model that knows what each page
// shows.
class VmmModel {
 public:
  VmmModel(MemoryManager& manager, unsigned seed) : manager_(manager), random_(seed) {
    EXPECT_EQ(manager_.Reserve(&base_, kPages * kLargePage, 0, 0), CUDA_SUCCESS);
  }
  void Step() {
    switch (random_() % 6) {
      case 0:
        return Create();
      case 1:
        return Release();
      case 2:
      case 3:
        return Map();
      case 4:
        return Unmap();
      default:
        return SetAccess();
    }
  }
  void Check() {
    for (int page = 0; page < kPages; ++page) {
      uint64_t address = base_ + static_cast<uint64_t>(page) * kLargePage;
      for (int device = 0; device < 2; ++device) {
        const exec::AccessMap* map = manager_.access_map(device);
        ASSERT_EQ(map->Allows(address, 8, false), pages_[page].access[device] & 1) << page;
        ASSERT_EQ(map->Allows(address + kLargePage - 8, 8, true), (pages_[page].access[device] & 2) != 0)
            << page;
      }
      if (pages_[page].mark != 0) {
        ASSERT_EQ(*reinterpret_cast<uint64_t*>(address), pages_[page].mark) << page;
      }
    }
  }
  void Finish() {
    for (int page = 0; page < kPages; ++page) {
      if (pages_[page].first) UnmapAt(page);
    }
    while (!handles_.empty()) Release();
    EXPECT_EQ(manager_.Unreserve(base_, kPages * kLargePage), CUDA_SUCCESS);
  }

 private:
  static constexpr int kPages = 24;
  struct Handle {
    CUmemGenericAllocationHandle value;
    std::vector<uint64_t> marks;  // what its pages contain
  };
  struct Page {
    bool first = false;  // of a mapping
    int length = 0;      // of that mapping
    uint64_t mark = 0;   // 0 = not mapped
    int access[2] = {0, 0};
  };
  void Create() {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(random_() % 2)};
    Handle handle{};
    size_t pages = random_() % 4 + 1;
    CUresult made = manager_.CreateHandle(&handle.value, pages * kLargePage, prop);
    if (made == CUDA_ERROR_OUT_OF_MEMORY) return;
    ASSERT_EQ(made, CUDA_SUCCESS);
    handle.marks.assign(pages, 0);
    handles_.push_back(handle);
  }
  void Release() {
    if (handles_.empty()) return;
    size_t victim = random_() % handles_.size();
    ASSERT_EQ(manager_.ReleaseHandle(handles_[victim].value), CUDA_SUCCESS);
    handles_.erase(handles_.begin() + static_cast<long>(victim));
  }
  void Map() {
    if (handles_.empty()) return;
    Handle& handle = handles_[random_() % handles_.size()];
    int page = static_cast<int>(random_() % kPages);
    int length = static_cast<int>(random_() % handle.marks.size()) + 1;
    bool fits = page + length <= kPages;
    for (int i = page; fits && i < page + length; ++i) fits = pages_[i].mark == 0;
    uint64_t address = base_ + static_cast<uint64_t>(page) * kLargePage;
    CUresult mapped = manager_.Map(address, static_cast<uint64_t>(length) * kLargePage, 0, handle.value);
    ASSERT_EQ(mapped, fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (!fits) return;
    for (int i = 0; i < length; ++i) {
      uint64_t* word = reinterpret_cast<uint64_t*>(address + static_cast<uint64_t>(i) * kLargePage);
      ASSERT_EQ(*word, handle.marks[i]) << "the same memory as through earlier mappings";
      if (handle.marks[i] == 0) *word = handle.marks[i] = ++last_mark_;
      pages_[page + i] = {i == 0, length, handle.marks[i], {0, 0}};
    }
  }
  void UnmapAt(int page) {
    int length = pages_[page].length;
    uint64_t address = base_ + static_cast<uint64_t>(page) * kLargePage;
    ASSERT_EQ(manager_.Unmap(address, static_cast<uint64_t>(length) * kLargePage), CUDA_SUCCESS);
    for (int i = page; i < page + length; ++i) pages_[i] = Page{};
  }
  void Unmap() {
    int page = static_cast<int>(random_() % kPages);
    if (pages_[page].first) return UnmapAt(page);
    uint64_t address = base_ + static_cast<uint64_t>(page) * kLargePage;
    ASSERT_EQ(manager_.Unmap(address, kLargePage), CUDA_ERROR_INVALID_VALUE) << "not the start of a mapping";
  }
  void SetAccess() {
    int page = static_cast<int>(random_() % kPages);
    CUmemAccessDesc desc{};
    desc.location = {CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(random_() % 2)};
    const CUmemAccess_flags flags[] = {CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
                                       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    desc.flags = flags[random_() % 3];
    int length = pages_[page].first ? pages_[page].length : 1;
    uint64_t address = base_ + static_cast<uint64_t>(page) * kLargePage;
    CUresult set = manager_.SetAccess(address, static_cast<uint64_t>(length) * kLargePage, &desc, 1);
    ASSERT_EQ(set, pages_[page].first ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
    if (set != CUDA_SUCCESS) return;
    for (int i = page; i < page + length; ++i) pages_[i].access[desc.location.id] = desc.flags;
  }

  MemoryManager& manager_;
  std::mt19937 random_;
  CUdeviceptr base_ = 0;
  std::vector<Handle> handles_;
  Page pages_[kPages];
  uint64_t last_mark_ = 0;
};

TEST_F(Manager, VmmAgreesWithModelOverRandomCalls) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    VmmModel model(*manager_, seed);
    for (int step = 0; step < 400; ++step) {
      model.Step();
      if (step % 8 == 0) model.Check();
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    model.Finish();
    EXPECT_EQ(Used(0) + Used(1), 0u) << "seed " << seed;
  }
}

TEST_F(Manager, SavedMemoryComesBackAtItsAddresses) {
  CUdeviceptr small = 0, large = 0, reserved = 0;
  ASSERT_EQ(manager_->AllocateDevice(A(), 100, BlockKind::kDevice, &small), CUDA_SUCCESS);
  ASSERT_EQ(manager_->AllocateDevice(B(), 16 << 20, BlockKind::kDevice, &large), CUDA_SUCCESS);
  ASSERT_EQ(manager_->Reserve(&reserved, 2 * kLargePage, 0, 0), CUDA_SUCCESS);
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemGenericAllocationHandle handle = 0;
  ASSERT_EQ(manager_->CreateHandle(&handle, kLargePage, prop), CUDA_SUCCESS);
  ASSERT_EQ(manager_->Map(reserved, kLargePage, 0, handle), CUDA_SUCCESS);
  ASSERT_EQ(manager_->Map(reserved + kLargePage, kLargePage, 0, handle), CUDA_SUCCESS);
  auto at = [](CUdeviceptr address) { return reinterpret_cast<char*>(address); };
  strcpy(at(small), "small");
  strcpy(at(large + (15 << 20)), "large");
  strcpy(at(reserved), "mapped twice");
  EXPECT_EQ(manager_->CheckpointObstacle(), nullptr);
  ASSERT_TRUE(manager_->SaveAndDetach().ok());
  EXPECT_EQ(Used(0) + Used(1), 0u);
  client_->Close();
  manager_->source().Disconnect();

  std::unique_ptr<DeviceClient> again = std::move(*DeviceClient::Connect({}, nullptr));
  client_ = std::move(again);
  manager_->source().Connect(client_.get(), {1, 0});
  ASSERT_TRUE(manager_->AttachAndLoad().ok());
  EXPECT_STREQ(at(small), "small");
  EXPECT_STREQ(at(large + (15 << 20)), "large");
  EXPECT_STREQ(at(reserved + kLargePage), "mapped twice");
  *at(reserved) = 'M';
  EXPECT_STREQ(at(reserved + kLargePage), "Mapped twice") << "still one memory";
  EXPECT_EQ(Used(1), kLargePage) << "device 0 is now the daemon's device 1";
}

}  // namespace
}  // namespace softgpu

#include "softgpu/device/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "softgpu/device/config.h"

namespace softgpu {
namespace {

using stasis::Fd;
using stasis::Result;
using stasis::StatusCode;
using ::testing::ElementsAre;

constexpr uint64_t kGranule = kMemoryGranularity;

std::vector<DeviceInfo> Devices(uint32_t count, uint64_t granules) {
  NodeConfig config;
  config.gpus = count;
  config.memory_bytes = granules * kGranule;
  return BuildDevices(config, "test");
}

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() : registry_(Devices(2, 10), [this](uint32_t, AllocId, uint64_t) { return MakeMemory(); }) {
    registry_.AddClient(1);
    registry_.AddClient(2);
  }
  Result<Fd> MakeMemory() {
    if (fail_memory_) return stasis::Status(StatusCode::kInternal, "no memory file");
    return Fd();
  }
  uint64_t Used(uint32_t device) { return registry_.StatusOf(device).used_bytes / kGranule; }
  AllocId Create(ClientId client, uint32_t device, uint64_t granules) {
    auto view = registry_.MemCreate(client, device, granules * kGranule);
    EXPECT_TRUE(view.ok()) << view.status().ToString();
    return view.ok() ? view->id : 0;
  }

  bool fail_memory_ = false;
  Registry registry_;
};

TEST_F(RegistryTest, CapacityIsEnforcedPerDevice) {
  AllocId first = Create(1, 0, 6);
  EXPECT_EQ(registry_.MemCreate(2, 0, 5 * kGranule).status().code(), StatusCode::kResourceExhausted);
  Create(2, 1, 10);
  Create(2, 0, 4);
  EXPECT_EQ(registry_.MemInfo(0)->free_bytes, 0u);
  EXPECT_EQ(registry_.MemInfo(0)->total_bytes, 10 * kGranule);
  ASSERT_TRUE(registry_.MemRelease(1, first).ok());
  EXPECT_EQ(registry_.MemInfo(0)->free_bytes, 6 * kGranule);
}

TEST_F(RegistryTest, SizesMustBeGranules) {
  for (uint64_t size : {uint64_t{0}, uint64_t{1}, kGranule - 1, kGranule + 1}) {
    EXPECT_EQ(registry_.MemCreate(1, 0, size).status().code(), StatusCode::kInvalidArgument) << size;
  }
  EXPECT_EQ(registry_.MemCreate(1, 0, UINT64_MAX - UINT64_MAX % kGranule).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(registry_.MemCreate(1, 2, kGranule).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(registry_.MemCreate(9, 0, kGranule).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(RegistryTest, FailedFileGivesTheChargeBack) {
  fail_memory_ = true;
  EXPECT_EQ(registry_.MemCreate(1, 0, kGranule).status().code(), StatusCode::kInternal);
  EXPECT_EQ(Used(0), 0u);
}

TEST_F(RegistryTest, LastReferenceFrees) {
  AllocId id = Create(1, 0, 3);
  ASSERT_TRUE(registry_.MemImport(2, id).ok());
  ASSERT_TRUE(registry_.MemImport(2, id).ok());
  registry_.AddToken(id);
  ASSERT_TRUE(registry_.MemRelease(1, id).ok());
  EXPECT_EQ(registry_.MemRelease(1, id).code(), StatusCode::kNotFound);
  ASSERT_TRUE(registry_.MemRelease(2, id).ok());
  EXPECT_EQ(Used(0), 3u);
  registry_.RemoveClient(2);
  EXPECT_EQ(Used(0), 3u) << "the token still stands for it";
  registry_.DropToken(id);
  EXPECT_EQ(Used(0), 0u);
  EXPECT_EQ(registry_.MemImport(1, id).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(RegistryTest, ExportNeedsAReference) {
  AllocId id = Create(1, 0, 1);
  EXPECT_TRUE(registry_.CheckExport(1, id).ok());
  EXPECT_EQ(registry_.CheckExport(2, id).code(), StatusCode::kNotFound);
  EXPECT_EQ(registry_.CheckExport(1, id + 1).code(), StatusCode::kNotFound);
}

TEST_F(RegistryTest, ContextsAreCounted) {
  ASSERT_TRUE(registry_.CtxCreate(1, 0).ok());
  ASSERT_TRUE(registry_.CtxCreate(1, 0).ok());
  ASSERT_TRUE(registry_.CtxCreate(2, 0).ok());
  EXPECT_THAT(registry_.ClientsOf(0), ElementsAre(1, 2));
  EXPECT_THAT(registry_.ClientsOf(1), ElementsAre());
  ASSERT_TRUE(registry_.CtxDestroy(1, 0).ok());
  EXPECT_THAT(registry_.ClientsOf(0), ElementsAre(1, 2));
  ASSERT_TRUE(registry_.CtxDestroy(1, 0).ok());
  EXPECT_THAT(registry_.ClientsOf(0), ElementsAre(2));
  EXPECT_EQ(registry_.CtxDestroy(1, 0).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(registry_.CtxCreate(1, 7).code(), StatusCode::kInvalidArgument);
}

TEST_F(RegistryTest, LostDeviceRefusesAllButCleaningUp) {
  AllocId id = Create(1, 0, 1);
  ASSERT_TRUE(registry_.CtxCreate(1, 0).ok());
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kFellOffBus}).ok());
  EXPECT_EQ(registry_.CtxCreate(1, 0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(registry_.MemCreate(1, 0, kGranule).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(registry_.MemImport(1, id).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(registry_.CheckExport(1, id).code(), StatusCode::kUnavailable);
  EXPECT_EQ(registry_.MemInfo(0).status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(registry_.MemCreate(1, 1, kGranule).ok()) << "the other device is well";
  EXPECT_TRUE(registry_.MemRelease(1, id).ok());
  EXPECT_TRUE(registry_.CtxDestroy(1, 0).ok());
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kNone}).ok());
  EXPECT_EQ(registry_.CheckUsable(0).code(), StatusCode::kUnavailable) << "none does not bring it back";
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kReset}).ok());
  EXPECT_TRUE(registry_.CheckUsable(0).ok());
}

TEST_F(RegistryTest, OtherFaultsComeAndGo) {
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kOomAfter, .count = 2}).ok());
  Create(1, 0, 1);
  EXPECT_EQ(registry_.MemCreate(1, 0, 11 * kGranule).status().code(), StatusCode::kResourceExhausted);
  Create(1, 0, 1);
  EXPECT_EQ(registry_.MemCreate(1, 0, kGranule).status().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kSlow, .factor = 0.25}).ok());
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kEcc}).ok());
  EXPECT_EQ(registry_.devices()[0].slow_factor, 0.25);
  EXPECT_EQ(registry_.devices()[0].health, Health::kEccError);
  EXPECT_TRUE(registry_.CtxCreate(1, 0).ok()) << "new contexts work after an ECC error";
  ASSERT_TRUE(registry_.Inject(0, {.kind = FaultKind::kNone}).ok());
  EXPECT_EQ(registry_.devices()[0].slow_factor, 1);
  EXPECT_EQ(registry_.devices()[0].health, Health::kHealthy);
  Create(1, 0, 1);
  EXPECT_FALSE(registry_.Inject(0, {.kind = FaultKind::kSlow, .factor = 0}).ok());
  EXPECT_FALSE(registry_.Inject(0, {.kind = FaultKind::kSlow, .factor = 0.0 / 0.0}).ok());
  EXPECT_FALSE(registry_.Inject(2, {.kind = FaultKind::kEcc}).ok());
}

TEST_F(RegistryTest, DescribesProcesses) {
  AllocId id = Create(1, 1, 2);
  Create(2, 1, 1);
  ASSERT_TRUE(registry_.MemImport(2, id).ok());
  ASSERT_TRUE(registry_.CtxCreate(2, 0).ok());
  ProcessInfo info;
  registry_.Describe(2, &info);
  EXPECT_THAT(info.contexts, ElementsAre(1, 0));
  EXPECT_THAT(info.memory_bytes, ElementsAre(0, 3 * kGranule));
}

// Random operations against the obvious model: a table of references per allocation.
TEST_F(RegistryTest, AgreesWithASimpleModel) {
  struct Alloc {
    uint32_t device;
    uint64_t granules;
    std::map<ClientId, int> references;
    int tokens = 0;
    int Total() const {
      int total = tokens;
      for (auto [client, count] : references) total += count;
      return total;
    }
  };
  for (uint32_t seed = 0; seed < 30; seed++) {
    std::mt19937 random(seed);
    Registry registry(Devices(2, 10), [](uint32_t, AllocId, uint64_t) -> Result<Fd> { return Fd(); });
    std::map<AllocId, Alloc> model;
    for (ClientId client = 1; client <= 3; client++) registry.AddClient(client);
    for (int step = 0; step < 400; step++) {
      ClientId client = 1 + random() % 3;
      AllocId any = model.empty() ? 1 : std::next(model.begin(), random() % model.size())->first;
      uint64_t used[2] = {};
      for (auto& [id, alloc] : model) used[alloc.device] += alloc.granules;
      switch (random() % 6) {
        case 0: {
          uint32_t device = random() % 2;
          uint64_t granules = 1 + random() % 4;
          auto view = registry.MemCreate(client, device, granules * kGranule);
          ASSERT_EQ(view.ok(), used[device] + granules <= 10);
          if (view.ok()) model[view->id] = Alloc{device, granules, {{client, 1}}};
          break;
        }
        case 1: {
          bool exists = model.count(any) > 0;
          ASSERT_EQ(registry.MemImport(client, any).ok(), exists);
          if (exists) model[any].references[client]++;
          break;
        }
        case 2: {
          bool has = model.count(any) > 0 && model[any].references[client] > 0;
          ASSERT_EQ(registry.MemRelease(client, any).ok(), has);
          if (has) model[any].references[client]--;
          break;
        }
        case 3:
          if (model.count(any) > 0) registry.AddToken(any), model[any].tokens++;
          break;
        case 4:
          if (model.count(any) > 0 && model[any].tokens > 0) registry.DropToken(any), model[any].tokens--;
          break;
        case 5:
          if (random() % 8 != 0) break;
          registry.RemoveClient(client);
          registry.AddClient(client);
          for (auto& [id, alloc] : model) alloc.references.erase(client);
          break;
      }
      std::erase_if(model, [](auto& entry) { return entry.second.Total() == 0; });
      ASSERT_EQ(registry.allocation_count(), model.size()) << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace softgpu

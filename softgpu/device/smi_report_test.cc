#include "softgpu/device/smi_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "softgpu/device/config.h"

namespace softgpu {
namespace {

Inventory Sample() {
  NodeConfig config;
  config.gpus = 2;
  config.memory_bytes = 64 << 20;
  std::vector<DeviceInfo> infos = BuildDevices(config, "x");
  infos[1].health = Health::kFellOffBus;
  infos[1].slow_factor = 0.5;
  Inventory inventory{"node", 77, {{infos[0], 4 << 20, false, 0}, {infos[1], 0, true, 3}}, {}};
  inventory.processes.push_back({9, 1000, "evil\x1b[31m\xff", ProcessState::kLocked, {1, 0}, {4 << 20, 0}});
  inventory.processes.push_back({10, 1000, "idle", ProcessState::kRunning, {0, 0}, {0, 0}});
  return inventory;
}

TEST(SmiReportTest, JsonSaysWhatIsThere) {
  nlohmann::json report = nlohmann::json::parse(JsonReport(Sample()));
  EXPECT_EQ(report["node"], "node");
  EXPECT_EQ(report["devices"].size(), 2u);
  EXPECT_EQ(report["devices"][0]["memory_used"], 4 << 20);
  EXPECT_EQ(report["devices"][0]["memory_free"], 60 << 20);
  EXPECT_EQ(report["devices"][0]["oom_after"], nullptr);
  EXPECT_EQ(report["devices"][0]["peers"], nlohmann::json::array({1}));
  EXPECT_EQ(report["devices"][1]["health"], "fell-off-bus");
  EXPECT_EQ(report["devices"][1]["oom_after"], 3);
  EXPECT_EQ(report["processes"][0]["pid"], 9);
  EXPECT_EQ(report["processes"][0]["state"], "locked");
  EXPECT_EQ(report["processes"][0]["devices"].size(), 1u);
  EXPECT_EQ(report["processes"][0]["devices"][0]["memory"], 4 << 20);
  EXPECT_TRUE(report["processes"][1]["devices"].empty());
}

TEST(SmiReportTest, TableHasAllAndNoControlCharacters) {
  std::string table = TableReport(Sample());
  for (const char* part :
       {"4 / 64 MiB", "fell-off-bus", "slow=0.5 oom-after=3", "locked", "idle", "pid 77"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  EXPECT_EQ(table.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace softgpu

#include "softgpu/device/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace softgpu {
namespace {

using stasis::StatusCode;

TEST(ParseSizeTest, UnitsArePowersOf1024) {
  EXPECT_EQ(*ParseSize("65536"), 65536u);
  EXPECT_EQ(*ParseSize("10B"), 10u);
  EXPECT_EQ(*ParseSize("3K"), 3072u);
  EXPECT_EQ(*ParseSize("512MiB"), 512u << 20);
  EXPECT_EQ(*ParseSize("2GiB"), 2ull << 30);
  EXPECT_EQ(*ParseSize("2GB"), 2ull << 30);
  EXPECT_EQ(*ParseSize("1.5g"), 3ull << 29);
  EXPECT_EQ(*ParseSize("1TiB"), 1ull << 40);
}

TEST(ParseSizeTest, NonsenseIsRefused) {
  for (const char* text : {"", "G", "x", "-1", "1 GiB", "1QiB", "1GiBs", "1e3", "1.2.3", "nan", "inf", "17T",
                           "99999999999999999999999", "0x10"}) {
    EXPECT_EQ(ParseSize(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(TopologyTest, PairsWorkBothWays) {
  Topology topology = *ParseTopology("0-1,3-2");
  EXPECT_TRUE(topology.Connects(0, 1));
  EXPECT_TRUE(topology.Connects(1, 0));
  EXPECT_TRUE(topology.Connects(2, 3));
  EXPECT_FALSE(topology.Connects(1, 2));
  EXPECT_FALSE(topology.Connects(0, 0));
  EXPECT_TRUE(ParseTopology("all")->Connects(4, 5));
  EXPECT_FALSE(ParseTopology("none")->Connects(4, 5));
  for (const char* text : {"", "0", "0-", "-1", "0-1,", "a-b", "0-1;2-3"}) {
    EXPECT_FALSE(ParseTopology(text).ok()) << text;
  }
}

TEST(FaultTest, TextGoesBothWays) {
  for (const char* text : {"none", "reset", "fell-off-bus", "ecc", "slow=0.5", "slow=1", "oom-after=0",
                           "oom-after=18446744073709551615"}) {
    auto fault = ParseFault(text);
    ASSERT_TRUE(fault.ok()) << text;
    EXPECT_EQ(FaultText(*fault), text);
  }
  for (const char* text : {"", "slow", "slow=", "slow=0", "slow=-1", "slow=1.01", "slow=nan", "oom-after",
                           "oom-after=-1", "oom-after=1.5", "ecc=1", "none=", "fire"}) {
    EXPECT_EQ(ParseFault(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ConfigTest, LimitsAreChecked) {
  EXPECT_TRUE(CheckConfig(NodeConfig{}).ok());
  auto broken = [](auto change) {
    NodeConfig config;
    change(config);
    return CheckConfig(config).code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(broken([](NodeConfig& c) { c.gpus = 0; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.gpus = 65; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.memory_bytes = 1 << 20; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.sm_count = 0; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.clock_mhz = 0; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.device_name = ""; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.slice = stasis::Duration::zero(); }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.h2d_gbps = -1; }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.d2h_gbps = std::numeric_limits<double>::quiet_NaN(); }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.peer_gbps = std::numeric_limits<double>::infinity(); }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.topology = *ParseTopology("0-1"); }));
  EXPECT_FALSE(broken([](NodeConfig& c) { c.gpus = 2, c.topology = *ParseTopology("0-1"); }));
  EXPECT_TRUE(broken([](NodeConfig& c) { c.gpus = 2, c.topology = *ParseTopology("1-1"); }));
}

TEST(BuildDevicesTest, UuidsAreStableAndDistinct) {
  NodeConfig config;
  config.gpus = 8;
  auto first = BuildDevices(config, "/a");
  auto again = BuildDevices(config, "/a");
  auto other = BuildDevices(config, "/b");
  std::set<std::string> uuids;
  for (size_t i = 0; i < 8; i++) {
    EXPECT_EQ(first[i].uuid, again[i].uuid);
    uuids.insert(UuidText(first[i].uuid));
    uuids.insert(UuidText(other[i].uuid));
  }
  EXPECT_EQ(uuids.size(), 16u);
  EXPECT_THAT(*uuids.begin(), ::testing::MatchesRegex("GPU-[0-9a-f-]*"));
  EXPECT_EQ(uuids.begin()->size(), 40u);
}

TEST(BuildDevicesTest, DescribesTheNode) {
  NodeConfig config;
  config.gpus = 3;
  config.memory_bytes = (5ull << 20);
  config.clock_mhz = 1500;
  config.topology = *ParseTopology("0-2");
  auto devices = BuildDevices(config, "");
  EXPECT_EQ(devices[2].ordinal, 2u);
  EXPECT_EQ(devices[2].clock_khz, 1500000u);
  EXPECT_EQ(devices[2].compute_major, 12u);
  EXPECT_EQ(devices[2].compute_minor, 0u);
  EXPECT_EQ(devices[2].memory_bytes, 4ull << 20) << "whole granules only";
  EXPECT_THAT(devices[2].peer_access, ::testing::ElementsAre(1, 0, 0));
  EXPECT_THAT(devices[1].peer_access, ::testing::ElementsAre(0, 0, 0));
  EXPECT_NE(devices[0].pci_bus, devices[1].pci_bus);
}

}  // namespace
}  // namespace softgpu

#include "scheduler/devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace stasis::scheduler {
namespace {

// The least (switches, nodes) over all choices of nodes that hold the gang.
std::tuple<int, int> BruteForceSpread(const Devices& devices, int gpus) {
  const int nodes = devices.shape().nodes;
  std::tuple<int, int> best{1 << 20, 1 << 20};
  for (unsigned choice = 1; choice < 1u << nodes; ++choice) {
    int room = 0, count = 0;
    unsigned switches = 0;
    for (int node = 0; node < nodes; ++node) {
      if ((choice >> node & 1) == 0) continue;
      ++count;
      switches |= 1u << devices.SwitchOf(static_cast<NodeId>(node));
      if (devices.usable(static_cast<NodeId>(node)))
        room += __builtin_popcountll(devices.free_on(static_cast<NodeId>(node)));
    }
    if (room >= gpus) best = std::min(best, {__builtin_popcount(switches), count});
  }
  return best;
}

TEST(DevicesTest, PlacesGangsAsCloselyAsBruteForceDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    Devices devices({6, 4, 2});
    for (NodeId node = 0; node < 6; ++node) {
      const DeviceMask taken = random() & 15;
      if (taken != 0) devices.Take({{node, taken}});
      if (random() % 8 == 0) devices.SetUsable(node, false);
    }
    for (int gpus = 1; gpus <= devices.free(); ++gpus) {
      const std::optional<Placement> place = devices.Find(gpus);
      ASSERT_TRUE(place.has_value());
      EXPECT_EQ(CountDevices(*place), gpus);
      const auto [switches, nodes] = BruteForceSpread(devices, gpus);
      const Spread spread = devices.SpreadOf(*place);
      EXPECT_EQ(spread.switches, switches) << "round " << round << ", " << gpus << " devices";
      if (switches == 1) {
        EXPECT_EQ(spread.nodes, nodes) << "round " << round << ", " << gpus << " devices";
      }
      Devices after = devices;
      after.Take(*place);  // checks that all of it was free
      EXPECT_EQ(after.free(), devices.free() - gpus);
      after.Release(*place);
      EXPECT_EQ(after.free(), devices.free());
    }
    EXPECT_FALSE(devices.Find(devices.free() + 1).has_value());
  }
}

TEST(DevicesTest, TakesTheNodeWithTheLeastRoomLeft) {
  Devices devices({3, 8, 16});
  devices.Take({{0, 0b11}});      // six free
  devices.Take({{2, 0b111111}});  // two free
  EXPECT_EQ(devices.Find(2)->front().node, 2u);
  EXPECT_EQ(devices.Find(3)->front().node, 0u);
  EXPECT_EQ(devices.Find(8)->front().node, 1u);
}

TEST(DevicesTest, ADrainedNodeKeepsWhatItHasAndGetsNothing) {
  Devices devices({2, 4, 16});
  devices.Take({{0, 0b1}});
  devices.SetUsable(0, false);
  EXPECT_EQ(devices.free(), 4);
  EXPECT_FALSE(devices.Find(5).has_value());
  devices.Release({{0, 0b1}});
  EXPECT_EQ(devices.free(), 4);
  devices.SetUsable(0, true);
  EXPECT_EQ(devices.free(), 8);
}

TEST(DevicesTest, SixtyFourDevicesANode) {
  Devices devices({1, 64, 16});
  EXPECT_EQ(devices.free(), 64);
  devices.Take(*devices.Find(64));
  EXPECT_EQ(devices.free(), 0);
}

TEST(DevicesTest, NodesThatComeLaterMayBeSmaller) {
  Devices devices(ClusterShape{0, 4, 2});
  EXPECT_FALSE(devices.Find(1).has_value());
  EXPECT_EQ(devices.AddNode(4), 0u);
  EXPECT_EQ(devices.AddNode(2), 1u);
  EXPECT_EQ(devices.total(), 6);
  const std::optional<Placement> pair = devices.Find(2);
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->front().node, 1u) << "where it fits most tightly";
  EXPECT_EQ(devices.Find(6)->size(), 2u);
  EXPECT_FALSE(devices.Find(7).has_value());
}

}  // namespace
}  // namespace stasis::scheduler

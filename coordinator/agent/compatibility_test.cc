#include "coordinator/agent/compatibility.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(PlaceDevices, WhereItWasElseWhereMostIsFree) {
  Manifest manifest;
  ManifestMember member;
  for (int i = 0; i < 2; ++i) {
    TaskDevice device;
    device.virtual_ordinal = i;
    device.physical_ordinal = i + 1;
    device.used = true;
    member.devices.push_back(device);
    member.extents.push_back({1, i, static_cast<uint64_t>(i) << 40, 100, 0, 0});
  }
  manifest.members = {member};
  std::vector<uint64_t> free = {500, 200, 50, 300};
  EXPECT_EQ(PlaceDevices({}, &free, &manifest), (std::vector<int>{1, 0}));
  EXPECT_EQ(free, (std::vector<uint64_t>{400, 100, 50, 300}));
  EXPECT_EQ(manifest.members[0].devices[1].physical_ordinal, 0);
  EXPECT_EQ(PlaceDevices({3, 2}, &free, &manifest), (std::vector<int>{3, 2}));
  EXPECT_EQ(PlaceDevices({2, 3, 0}, &free, &manifest), (std::vector<int>{2, 3, 0}));
  // What it uses is not always known, or not yet.
  Manifest nothing;
  EXPECT_EQ(PlaceDevices({2, 1}, &free, &nothing), (std::vector<int>{2, 1}));
  EXPECT_EQ(PlaceDevices({}, &free, &nothing), std::vector<int>());
}

}  // namespace
}  // namespace stasis

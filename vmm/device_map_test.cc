#include "vmm/device_map.h"

#include <gtest/gtest.h>

#include "vmm/stand_in.h"

namespace stasis {
namespace {

// Three devices where their numbers say.
void SeeThree(int used) {
  std::vector<TaskDevice> devices(3);
  for (int i = 0; i < 3; ++i) {
    devices[static_cast<size_t>(i)].virtual_ordinal = devices[static_cast<size_t>(i)].physical_ordinal = i;
    devices[static_cast<size_t>(i)].used = i == used;
  }
  SetVisibleDevices(std::move(devices));
}

TEST(DeviceMapTest, DevicesMoveBothWays) {
  SeeThree(0);
  EXPECT_FALSE(DeviceMapActive());
  ASSERT_TRUE(PlaceDevices({{0, 2}, {2, 0}}).ok());
  EXPECT_TRUE(DeviceMapActive());
  EXPECT_EQ(ToPhysicalDevice(0), 2);
  EXPECT_EQ(ToVirtualDevice(0), 2);
  EXPECT_EQ(ToPhysicalDevice(3), CU_DEVICE_INVALID);
  EXPECT_EQ(ToVirtualDevice(3), -1);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(IsStandIn(i));
}

TEST(DeviceMapTest, ADriverWithTheProgramsDevicesAloneNumbersThemAsTheProgramDoes) {
  std::vector<TaskDevice> devices(2);
  devices[1].virtual_ordinal = 1;
  devices[0].physical_ordinal = 3;
  devices[1].physical_ordinal = 1;
  SetVisibleDevices(devices, /*hides_others=*/true, /*own_numbers=*/true);
  EXPECT_TRUE(DriverHasOwnNumbers());
  using Placements = std::vector<TaskAttach::Placement>;
  for (const Placements& placements : {Placements{}, Placements{{0, 1}, {1, 3}}}) {
    ASSERT_TRUE(PlaceDevices(placements).ok());
    EXPECT_FALSE(DeviceMapActive());
    for (const int one : {0, 1}) {
      EXPECT_EQ(ToPhysicalDevice(one), one);
      EXPECT_EQ(ToVirtualDevice(one), one);
      EXPECT_FALSE(IsStandIn(one));
    }
    EXPECT_EQ(ToPhysicalDevice(2), CU_DEVICE_INVALID);
    EXPECT_EQ(ToVirtualDevice(3), -1);
  }
  EXPECT_EQ(VisibleDevices()[0].physical_ordinal, 1) << "where it is on the machine";
  SeeThree(0);
  EXPECT_FALSE(DriverHasOwnNumbers());
}

TEST(DeviceMapTest, AUsedDeviceOwnsItsPlaceAndUnusedOnesAreStandIns) {
  SeeThree(1);
  ASSERT_TRUE(PlaceDevices({{0, 0}, {1, 0}, {2, 0}}).ok());
  EXPECT_TRUE(IsStandIn(0));
  EXPECT_FALSE(IsStandIn(1));
  EXPECT_TRUE(IsStandIn(2));
  EXPECT_EQ(ToVirtualDevice(0), 1);
  EXPECT_EQ(ToPhysicalDevice(2), 0);
  EXPECT_FALSE(IsStandIn(-1));
  EXPECT_FALSE(IsStandIn(3));
  // Where there is room again, each is itself.
  ASSERT_TRUE(PlaceDevices({{0, 2}, {1, 1}, {2, 0}}).ok());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(IsStandIn(i));
}

TEST(DeviceMapTest, OfUnusedOnesTheFirstIsThere) {
  SeeThree(-1);
  ASSERT_TRUE(PlaceDevices({{0, 0}, {1, 0}, {2, 0}}).ok());
  EXPECT_FALSE(IsStandIn(0));
  EXPECT_TRUE(IsStandIn(1));
  EXPECT_TRUE(IsStandIn(2));
}

TEST(DeviceMapTest, TwoUsedOnesOnOneDeviceAreRefused) {
  SeeThree(0);
  MarkDeviceUsed(1);
  EXPECT_EQ(PlaceDevices({{0, 1}, {1, 1}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PlaceDevices({{3, 1}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ToPhysicalDevice(0), 0);
}

}  // namespace
}  // namespace stasis

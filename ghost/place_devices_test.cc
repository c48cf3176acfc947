#include "ghost/place_devices.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

// `used`: which of them are; at first each is where its number says.
PlaceRequest Seeing(const std::vector<bool>& used, int count) {
  PlaceRequest request;
  request.count = count;
  request.may_share = true;
  for (bool one : used) {
    TaskDevice device;
    device.virtual_ordinal = static_cast<int>(request.devices.size());
    device.used = one;
    request.now[device.virtual_ordinal] = device.virtual_ordinal;
    request.devices.push_back(device);
  }
  return request;
}

std::vector<int> Places(const PlaceRequest& request) {
  Result<Placements> placements = PlaceDevices(request);
  EXPECT_TRUE(placements.ok()) << placements.status().ToString();
  std::vector<int> places;
  if (!placements.ok()) return places;
  for (auto [ordinal, physical] : *placements) places.push_back(physical);
  return places;
}

using Ints = std::vector<int>;

TEST(PlaceDevicesTest, ANameForEachGoesByOrdinal) {
  PlaceRequest request = Seeing({false, true, true}, 3);
  request.gpus = {2, 0, 1};
  EXPECT_EQ(Places(request), (Ints{2, 0, 1}));
}

TEST(PlaceDevicesTest, FewerNamesGoToTheUsedOnesFirst) {
  PlaceRequest request = Seeing({false, false, true, true}, 4);
  request.gpus = {0};
  EXPECT_EQ(Places(request), (Ints{2, 1, 0, 3}));
  request.gpus = {1, 0};
  EXPECT_EQ(Places(request), (Ints{2, 3, 1, 0}));
  request.gpus = {1, 0, 3};
  EXPECT_EQ(Places(request), (Ints{3, 2, 1, 0}));
}

TEST(PlaceDevicesTest, WithoutNamesEachStays) {
  EXPECT_EQ(Places(Seeing({true, false, true}, 3)), (Ints{0, 1, 2}));
}

TEST(PlaceDevicesTest, WhereThereAreFewerUnusedOnesShare) {
  PlaceRequest request = Seeing({false, false, false, false, false, true, false, false}, 4);
  request.gpus = {1};
  EXPECT_EQ(Places(request), (Ints{0, 1, 2, 3, 1, 1, 1, 1}));
  // By itself it has no place to go to.
  request.gpus.clear();
  Status status = PlaceDevices(request).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("device 5"), std::string::npos) << status.ToString();
}

TEST(PlaceDevicesTest, UsedOnesNeverShare) {
  PlaceRequest request = Seeing({true, true, true}, 2);
  request.gpus = {1};
  EXPECT_EQ(PlaceDevices(request).status().code(), StatusCode::kInvalidArgument);
  request = Seeing({true, false}, 1);
  EXPECT_EQ(Places(request), (Ints{0, 0}));
  request.may_share = false;
  EXPECT_EQ(PlaceDevices(request).status().code(), StatusCode::kNotFound);
}

TEST(PlaceDevicesTest, OnesThatHaveSharedPartWhereThereIsRoom) {
  PlaceRequest request = Seeing({false, true}, 2);
  request.now = {{0, 0}, {1, 0}};
  request.gpus = {1, 0};
  EXPECT_EQ(Places(request), (Ints{1, 0}));
  request.gpus = {1};
  EXPECT_EQ(Places(request), (Ints{0, 1}));
}

TEST(PlaceDevicesTest, NamesThatMakeNoSense) {
  PlaceRequest request = Seeing({true, true}, 2);
  request.gpus = {0, 1, 2};
  EXPECT_EQ(PlaceDevices(request).status().code(), StatusCode::kInvalidArgument);
  request.gpus = {1, 1};
  EXPECT_EQ(PlaceDevices(request).status().code(), StatusCode::kInvalidArgument);
  request.gpus = {2};
  EXPECT_EQ(PlaceDevices(request).status().code(), StatusCode::kNotFound);
}

using Uuids = std::vector<std::string>;
using Moves = std::vector<DeviceMove>;

TEST(MapDevicesTest, EveryDeviceOfTheDriverHasAPlaceAndNoneIsGivenTwice) {
  const Uuids node = {"a", "b", "c", "d"};
  // The process sees the second device; the others are the driver's all the same.
  EXPECT_EQ(MapDevices({"b", "a", "c", "d"}, {"d"}, node),
            (Moves{{"b", "d"}, {"a", "a"}, {"c", "c"}, {"d", "b"}}));
  EXPECT_EQ(MapDevices({"b", "a", "c", "d"}, {"c"}, node),
            (Moves{{"b", "c"}, {"a", "a"}, {"c", "b"}, {"d", "d"}}));
  EXPECT_EQ(MapDevices({"a", "b", "c", "d"}, {"b", "a"}, node),
            (Moves{{"a", "b"}, {"b", "a"}, {"c", "c"}, {"d", "d"}}));
}

TEST(MapDevicesTest, NothingIsSaidWhenAllStay) {
  EXPECT_EQ(MapDevices({"b", "a"}, {"b"}, {"a", "b"}), Moves());
  EXPECT_EQ(MapDevices({}, {}, {"a"}), Moves());
  // One that the process does not see has been lost.
  EXPECT_EQ(MapDevices({"b", "a", "c"}, {"b"}, {"b", "c"}), Moves());
}

TEST(MapDevicesTest, OnAnotherMachineTheDriversOtherDevicesGoWhereThereIsRoom) {
  EXPECT_EQ(MapDevices({"a", "b"}, {"y"}, {"x", "y"}), (Moves{{"a", "y"}, {"b", "x"}}));
  // For the second there is none.
  EXPECT_EQ(MapDevices({"a", "b"}, {"x"}, {"x"}), (Moves{{"a", "x"}}));
  EXPECT_EQ(MapDevices({"a"}, {"y"}, {"x", "y", "z"}), (Moves{{"a", "y"}}));
}

TEST(CheckMovesDevicesTest, OlderDriversBringProcessesBackWhereTheyWere) {
  EXPECT_TRUE(CheckMovesDevices(13000).ok());
  EXPECT_TRUE(CheckMovesDevices(13010).ok());
  const Status refused = CheckMovesDevices(12080);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.message().find("CUDA 12.8"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace stasis

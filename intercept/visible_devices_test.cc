#include "intercept/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "intercept/task_placements.h"

namespace stasis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Uuid(char first) {
  return std::string(1, first) + std::string("\x11", 1) + std::string(14, '\x22');
}

const std::vector<std::string> kUuids = {Uuid('\x01'), Uuid('\xab'), Uuid('\x01'), Uuid('\xcd')};

TEST(SelectDevices, AllUnlessTold) {
  EXPECT_THAT(SelectDevices(kUuids, nullptr, nullptr), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SelectDevices({}, nullptr, nullptr), IsEmpty());
}

TEST(SelectDevices, FollowsTheVariableAsTheDriverDoes) {
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "2,0"), ElementsAre(2, 0));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, " 3 , 1 "), ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, ""), IsEmpty());
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "-1"), IsEmpty());
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "1,7,0"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "1,x,0"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "1,1,0"), ElementsAre(1));
}

TEST(SelectDevices, KnowsUuids) {
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "GPU-AB11"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "GPU-cd112222-2222-2222-2222-222222222222,GPU-ab"),
              ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "GPU-0111"), IsEmpty()) << "two devices begin like that";
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "GPU-"), IsEmpty());
  EXPECT_THAT(SelectDevices(kUuids, nullptr, "MIG-ab11"), IsEmpty());
}

TEST(SelectDevices, VariableCountsWithinWhatTheLauncherGives) {
  EXPECT_THAT(SelectDevices(kUuids, "3,1", nullptr), ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kUuids, "3,1", "1"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kUuids, "3,1", "2"), IsEmpty());
  EXPECT_THAT(SelectDevices(kUuids, "3,1", "GPU-cd"), ElementsAre(3));
  EXPECT_THAT(SelectDevices(kUuids, "3", "GPU-ab"), IsEmpty());
  EXPECT_THAT(SelectDevices(kUuids, "3,2", "GPU-01"), ElementsAre(2)) << "the other one is out of sight";
}

TEST(NamesDevicePart, WhereverItStandsInTheList) {
  for (const char* list : {"MIG-4d0f2b6a-1", "0, MIG-GPU-ab11/1/0", "MIG-,0"})
    EXPECT_TRUE(NamesDevicePart(list)) << list;
  for (const char* list : {"", "0,1", "GPU-ab11,", ",", "xMIG-1", " , "})
    EXPECT_FALSE(NamesDevicePart(list)) << list;
  EXPECT_FALSE(NamesDevicePart(nullptr));
}

TEST(CheckDevices, TheDriversOwnCheckpointTakesWholeDevicesOfTheProcessAlone) {
  DeviceIdentity whole, part, shared;
  whole.name = part.name = shared.name = "H100";
  part.uuid_v2.bytes[0] = 1;
  shared.shared_by_mps = true;
  EXPECT_TRUE(CheckDevices({whole, whole}, TaskStrategy::kDriverCheckpoint).ok());
  for (const auto& [device, what] : {std::pair(part, "MIG"), std::pair(shared, "MPS")}) {
    const Status refused = CheckDevices({whole, device}, TaskStrategy::kDriverCheckpoint);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_NE(refused.message().find(what), std::string::npos) << refused.message();
    EXPECT_TRUE(CheckDevices({whole, device}, TaskStrategy::kReconstruct).ok()) << what;
  }
}

TEST(HiddenVariable, IsAwayAndComesBack) {
  ASSERT_EQ(setenv("STASIS_TEST_VARIABLE", "value", 1), 0);
  const char* before = getenv("STASIS_TEST_VARIABLE");
  {
    const HiddenVariable hidden("STASIS_TEST_VARIABLE");
    EXPECT_EQ(getenv("STASIS_TEST_VARIABLE"), nullptr);
    const HiddenVariable again("STASIS_TEST_VARIABLE");
  }
  EXPECT_EQ(getenv("STASIS_TEST_VARIABLE"), before);
  unsetenv("STASIS_TEST_VARIABLE");
  const HiddenVariable nothing("STASIS_TEST_VARIABLE");
}

TEST(TaskPlacementsTest, DevicesAreFoundByTheirUuidsElseByTheirOrder) {
  std::vector<TaskDevice> devices(2);
  devices[0].uuid = "\x01\xab";
  devices[1].uuid = "\x02\xcd";
  devices[1].virtual_ordinal = 1;
  const auto text = [&](std::string_view file) {
    std::string out;
    for (const TaskAttach::Placement& one : PlacementsIn(file, devices))
      out += std::to_string(one.virtual_ordinal) + ">" + std::to_string(one.physical_ordinal) + " ";
    return out;
  };
  EXPECT_EQ(text("02cd 0\n01ab 1\n"), "0>1 1>0 ");
  EXPECT_EQ(text("02cd 3\n"), "1>3 ");
  EXPECT_EQ(text("0000 1\n1111 0\n"), "0>1 1>0 ");
  EXPECT_EQ(text("0000 1\n"), "");
  EXPECT_EQ(text("02cd -1\n01ab x"), "");
  EXPECT_EQ(text(""), "");
}

TEST(TaskPlacementsTest, DevicesThatWereNamedBeforehandAreForTheFirstOnes) {
  std::vector<TaskDevice> devices(3);
  for (int i = 0; i < 3; ++i) devices[static_cast<size_t>(i)].virtual_ordinal = i;
  devices[0].physical_ordinal = 4;
  devices[1].physical_ordinal = 2;
  devices[2].physical_ordinal = 0;
  const auto places = [&](std::string_view file) {
    std::vector<int> out;
    for (const TaskAttach::Placement& one : PlacementsIn(file, devices)) out.push_back(one.physical_ordinal);
    return out;
  };
  EXPECT_EQ(places("- 1\n"), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(places("- 2\n- 4\n"), (std::vector<int>{2, 4, 0}));
  EXPECT_EQ(places("- 0\n- 1\n- 2\n- 3\n"), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(places("- 4\n"), (std::vector<int>{4, 2, 0}));
}

}  // namespace
}  // namespace stasis

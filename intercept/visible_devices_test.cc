#include "intercept/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/placement_line.h"
#include "intercept/task_placements.h"

namespace stasis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Uuid(char first) {
  return std::string(1, first) + std::string("\x11", 1) + std::string(14, '\x22');
}

const std::vector<MachineDevice> kDevices = {{Uuid('\x01'), "0000:81:00.0"},
                                             {Uuid('\xab'), "0000:01:00.0"},
                                             {Uuid('\x01'), "0000:c1:00.0"},
                                             {Uuid('\xcd'), "0000:41:00.0"}};

std::vector<int> SelectDevices(const std::vector<MachineDevice>& devices, const char* gpus,
                               const char* visible) {
  return stasis::SelectDevices(devices, {gpus, visible, nullptr});
}

TEST(SelectDevices, AllUnlessTold) {
  EXPECT_THAT(SelectDevices(kDevices, nullptr, nullptr), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(SelectDevices(std::vector<MachineDevice>(), nullptr, nullptr), IsEmpty());
}

TEST(SelectDevices, FollowsTheVariableAsTheDriverDoes) {
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "2,0"), ElementsAre(2, 0));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, " 3 , 1 "), ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, ""), IsEmpty());
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "-1"), IsEmpty());
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "1,7,0"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "1,x,0"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "1,1,0"), ElementsAre(1));
}

TEST(SelectDevices, KnowsUuids) {
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "GPU-AB11"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "GPU-cd112222-2222-2222-2222-222222222222,GPU-ab"),
              ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "GPU-0111"), IsEmpty()) << "two devices begin like that";
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "GPU-"), IsEmpty());
  EXPECT_THAT(SelectDevices(kDevices, nullptr, "MIG-ab11"), IsEmpty());
}

TEST(SelectDevices, VariableCountsWithinWhatTheLauncherGives) {
  EXPECT_THAT(SelectDevices(kDevices, "3,1", nullptr), ElementsAre(3, 1));
  EXPECT_THAT(SelectDevices(kDevices, "3,1", "1"), ElementsAre(1));
  EXPECT_THAT(SelectDevices(kDevices, "3,1", "2"), IsEmpty());
  EXPECT_THAT(SelectDevices(kDevices, "3,1", "GPU-cd"), ElementsAre(3));
  EXPECT_THAT(SelectDevices(kDevices, "3", "GPU-ab"), IsEmpty());
  EXPECT_THAT(SelectDevices(kDevices, "3,2", "GPU-01"), ElementsAre(2)) << "the other one is out of sight";
}

TEST(SelectDevices, NumbersCountByTheOrderThatTheProgramAsksFor) {
  const auto select = [](const char* gpus, const char* visible, const char* order) {
    return stasis::SelectDevices(kDevices, {gpus, visible, order});
  };
  EXPECT_THAT(select(nullptr, nullptr, "PCI_BUS_ID"), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(select(nullptr, "0,2", "PCI_BUS_ID"), ElementsAre(1, 0));
  EXPECT_THAT(select(nullptr, "GPU-ab11,1", "PCI_BUS_ID"), ElementsAre(1, 3));
  EXPECT_THAT(select(nullptr, "0", "FASTEST_FIRST"), ElementsAre(0));
  EXPECT_THAT(select("2,0", "0", "PCI_BUS_ID"), ElementsAre(2)) << "those of the launcher are in its order";
}

// As the launcher writes the devices down.
std::string Machine() {
  std::string text;
  for (const MachineDevice& device : kDevices) {
    text += text.empty() ? "" : ",";
    for (const unsigned char byte : device.uuid)
      text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    text += "@" + device.pci;
  }
  return text;
}

TEST(DevicesToShow, AreThoseOfTheProgramInItsOrder) {
  const std::optional<ShownDevices> shown = DevicesToShow(Machine().c_str(), {"3,1", "1,0", nullptr}, "");
  ASSERT_TRUE(shown);
  EXPECT_EQ(shown->variable,
            "CUDA_VISIBLE_DEVICES=GPU-ab112222-2222-2222-2222-222222222222,GPU-cd112222-2222-2222-2222-"
            "222222222222");
  ASSERT_EQ(shown->machine.size(), 4u);
  EXPECT_EQ(shown->machine[3].uuid, Uuid('\xcd'));
  EXPECT_EQ(shown->machine[3].pci, "0000:41:00.0");
}

TEST(DevicesToShow, AreNoneWhereTheMachineIsNotKnown) {
  for (const std::string& machine : {std::string(), std::string("x"), Machine() + ",00", "00" + Machine(),
                                     std::string("@"), std::string(64, '0')})
    EXPECT_FALSE(DevicesToShow(machine.c_str(), {}, "")) << machine;
  EXPECT_FALSE(DevicesToShow(nullptr, {}, ""));
  EXPECT_FALSE(DevicesToShow(Machine().c_str(), {nullptr, "", nullptr}, "")) << "the program sees none";
}

TEST(DevicesToShow, AreNoneOnceADeviceHasAnotherPlace) {
  const std::string machine = Machine();
  const auto shows = [&](const char* visible, const std::string& placements) {
    return DevicesToShow(machine.c_str(), {nullptr, visible, nullptr}, placements).has_value();
  };
  const std::string second = Uuid('\xab'), fourth = Uuid('\xcd'), elsewhere = Uuid('\x77');
  EXPECT_TRUE(shows("1", PlacementLine(second, 1, second)));
  EXPECT_TRUE(shows("3,1", PlacementLine(second, 1, second) + PlacementLine(fourth, 3, fourth)));
  EXPECT_FALSE(shows("3,1", PlacementLine(second, 3, fourth) + PlacementLine(fourth, 1, second)));
  EXPECT_FALSE(shows("3,1", PlacementLine(second, 1, second) + PlacementLine(fourth, 3, elsewhere)));
  EXPECT_FALSE(shows("1", PlacementLine(second, 1, elsewhere))) << "the same number on another machine";
  EXPECT_FALSE(shows("1", PlacementLine(second, 0, second))) << "the machine counts otherwise by now";
  EXPECT_FALSE(shows("1", PlacementLine(second, 1, ""))) << "nothing says what is there";
  EXPECT_FALSE(shows("1", PlacementLine(second, 0, "")));
  EXPECT_FALSE(shows("1", "- 2\n")) << "named before anybody has looked";
  EXPECT_FALSE(shows("1", "- 1\n"));
  EXPECT_FALSE(shows("1", PlacementLine(elsewhere, 1, elsewhere))) << "come from another machine";
}

TEST(NamesDevicePart, WhereverItStandsInTheList) {
  for (const char* list : {"MIG-4d0f2b6a-1", "0, MIG-GPU-ab11/1/0", "MIG-,0"})
    EXPECT_TRUE(NamesDevicePart(list)) << list;
  for (const char* list : {"", "0,1", "GPU-ab11,", ",", "xMIG-1", " , "})
    EXPECT_FALSE(NamesDevicePart(list)) << list;
  EXPECT_FALSE(NamesDevicePart(nullptr));
}

std::vector<TaskDevice> Seen(std::initializer_list<bool> used) {
  std::vector<TaskDevice> devices;
  for (const bool one : used) devices.emplace_back().used = one;
  return devices;
}

TEST(CheckDevices, TheDriversOwnCheckpointTakesWholeDevicesOfTheProcessAlone) {
  DeviceIdentity whole, part, shared;
  whole.name = part.name = shared.name = "H100";
  part.uuid_v2.bytes[0] = 1;
  shared.shared_by_mps = true;
  EXPECT_TRUE(CheckDevices({whole, whole}, Seen({true, true}), TaskStrategy::kDriverCheckpoint).ok());
  for (const auto& [device, what] : {std::pair(part, "MIG"), std::pair(shared, "MPS")}) {
    const Status refused =
        CheckDevices({whole, device}, Seen({true, false}), TaskStrategy::kDriverCheckpoint);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_NE(refused.message().find(what), std::string::npos) << refused.message();
    EXPECT_TRUE(CheckDevices({whole, device}, Seen({true, true}), TaskStrategy::kReconstruct).ok()) << what;
  }
}

TEST(CheckDevices, OneThatOnlyOneProcessMayUseHasNoRoomForTheGhost) {
  DeviceIdentity shared, exclusive;
  exclusive.name = "H100";
  exclusive.exclusive = true;
  for (const TaskStrategy strategy : {TaskStrategy::kReconstruct, TaskStrategy::kDriverCheckpoint}) {
    const Status refused = CheckDevices({shared, exclusive}, Seen({false, true}), strategy);
    EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
    EXPECT_NE(refused.message().find("H100 is for one process"), std::string::npos) << refused.message();
    EXPECT_TRUE(CheckDevices({shared, exclusive}, Seen({true, false}), strategy).ok()) << "not used";
  }
}

TEST(HiddenVariable, AnotherMayBeThereInstead) {
  ASSERT_EQ(setenv("STASIS_TEST_VARIABLE", "value", 1), 0);
  {
    const HiddenVariable hidden("STASIS_TEST_VARIABLE", "STASIS_TEST_OTHER=else");
    EXPECT_EQ(getenv("STASIS_TEST_VARIABLE"), nullptr);
    EXPECT_STREQ(getenv("STASIS_TEST_OTHER"), "else");
  }
  EXPECT_STREQ(getenv("STASIS_TEST_VARIABLE"), "value");
  EXPECT_EQ(getenv("STASIS_TEST_OTHER"), nullptr);
  unsetenv("STASIS_TEST_VARIABLE");
}

TEST(HiddenVariable, ComesBackWhereTheEnvironmentIsByThen) {
  ASSERT_EQ(setenv("STASIS_TEST_FIRST", "one", 1), 0);
  ASSERT_EQ(setenv("STASIS_TEST_SECOND", "two", 1), 0);
  std::vector<char*> copy;
  char** const before = environ;
  {
    const HiddenVariable first("STASIS_TEST_FIRST");
    const HiddenVariable second("STASIS_TEST_SECOND", "STASIS_TEST_OTHER=else");
    for (char** entry = environ; *entry != nullptr; ++entry) copy.push_back(*entry);
    copy.push_back(nullptr);
    environ = copy.data();
    EXPECT_EQ(getenv("STASIS_TEST_FIRST"), nullptr);
    EXPECT_STREQ(getenv("STASIS_TEST_OTHER"), "else");
  }
  EXPECT_STREQ(getenv("STASIS_TEST_FIRST"), "one");
  EXPECT_STREQ(getenv("STASIS_TEST_SECOND"), "two");
  EXPECT_EQ(getenv("STASIS_TEST_OTHER"), nullptr);
  environ = before;
  unsetenv("STASIS_TEST_FIRST");
  unsetenv("STASIS_TEST_SECOND");
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
  EXPECT_EQ(text(PlacementLine("\x02\xcd", 0, "\x01\xab") + PlacementLine("\x01\xab", 1, "\x02\xcd")),
            "0>1 1>0 ");
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

#include "coordinator/node/driver_probe.h"

#include <gtest/gtest.h>

#include <chrono>

#include "coordinator/node/device_choice.h"
#include "coordinator/node/testing.h"

namespace stasis {
namespace {

Result<DriverInfo> Probe(const std::vector<std::string>& paths) {
  return ProbeDrivers(STASIS_PATH, paths, {}, Deadline::After(std::chrono::seconds(60)));
}

TEST(ProbeDrivers, NoLibraryAtAll) {
  Result<DriverInfo> info = Probe({"/nonexistent/libcuda.so.1"});
  EXPECT_EQ(info.status().code(), StatusCode::kNotFound);
  EXPECT_NE(info.status().message().find("no libcuda.so.1 found"), std::string_view::npos);
}

TEST(ProbeDrivers, WhatIsNoDriverIsNamed) {
  TempFolder folder;
  WriteText(folder.File("libcuda.so.1"), "not a library");
  Result<DriverInfo> info = Probe({"/nonexistent/libcuda.so.1", folder.File("libcuda.so.1"), "libc.so.6"});
  EXPECT_EQ(info.status().code(), StatusCode::kNotFound);
  EXPECT_NE(info.status().message().find(folder.File("libcuda.so.1")), std::string_view::npos);
  EXPECT_NE(info.status().message().find("libc.so.6: not a CUDA driver"), std::string_view::npos);
}

TEST(Devices, AreCounted) {
  DriverInfo driver{
      "/x",
      12080,
      {{"H100", 80ull << 30, "", 90}, {"H100", 80ull << 30, "", 90}, {"T4", 16ull << 30, "", 75}}};
  EXPECT_EQ(DevicesText(driver), "2 x H100 (80.0 GiB), 1 x T4 (16.0 GiB)");
  EXPECT_EQ(DriverVersionText(driver.version), "12.8");
  EXPECT_TRUE(CheckGpus({2, 0}, driver).ok());
  EXPECT_EQ(CheckGpus({3}, driver).code(), StatusCode::kInvalidArgument);
}

TEST(Devices, ThatWereCountedByPciIdsGetTheDriversNumbers) {
  DriverInfo driver;
  driver.devices.resize(3);
  const std::vector<int> gpus = {0, 2, 1, 3};
  EXPECT_EQ(NumbersOfDriver(gpus, driver), gpus) << "no ids are known";
  driver.devices[0].pci = "0000:81:00.0";
  driver.devices[1].pci = "0000:c1:00.0";
  EXPECT_EQ(NumbersOfDriver(gpus, driver), gpus) << "one is not known";
  driver.devices[2].pci = "0000:01:00.0";
  EXPECT_EQ(NumbersOfDriver(gpus, driver), std::vector<int>({2, 1, 0, 3}));
  EXPECT_TRUE(CountsByPci({"A=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}));
  EXPECT_FALSE(CountsByPci({"CUDA_DEVICE_ORDER=FASTEST_FIRST"}));
  EXPECT_FALSE(CountsByPci({}));
}

}  // namespace
}  // namespace stasis

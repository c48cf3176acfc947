#include "vmm/real_driver.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace stasis {
namespace {

// The library of a driver by the name it is looked for, a link to a file that is named as NVIDIA names its
// own or otherwise.
class RealDriver : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Install(const std::string& name) {
    const std::filesystem::path link = std::filesystem::path(folder_) / "libcuda.so.1";
    std::filesystem::copy_file(LIBCUDA_PATH, link.parent_path() / name);
    std::filesystem::remove(link);
    std::filesystem::create_symlink(name, link);
    return link;
  }
  bool InMemory(const std::string& name) const {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find(folder_ + "/" + name) != std::string::npos) return true;
    return false;
  }
  std::string folder_ = "/tmp/real-driver-XXXXXX";
};

TEST_F(RealDriver, NvidiasStaysInMemoryWhenItIsClosed) {
  const std::string driver = Install("libcuda.so.580.65.06");
  EXPECT_TRUE(IsNvidiaDriver(driver));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(OpenDriver(driver).ok());
    EXPECT_NE(DriverAddress(Fn::cuInit), nullptr);
    CloseDriver();
    EXPECT_EQ(DriverAddress(Fn::cuInit), nullptr);
    EXPECT_FALSE(DriverIsOpen());
    EXPECT_TRUE(InMemory("libcuda.so.580.65.06"));
  }
}

TEST_F(RealDriver, AnotherGoesWhenItIsClosed) {
  const std::string driver = Install("libother.so");
  EXPECT_FALSE(IsNvidiaDriver(driver));
  ASSERT_TRUE(OpenDriver(driver).ok());
  EXPECT_TRUE(InMemory("libother.so"));
  CloseDriver();
  EXPECT_FALSE(InMemory("libother.so"));
}

TEST_F(RealDriver, WhatIsNotThereIsNotNvidias) { EXPECT_FALSE(IsNvidiaDriver(folder_ + "/libcuda.so.1")); }

}  // namespace
}  // namespace stasis

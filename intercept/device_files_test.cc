#include "intercept/device_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace stasis {
namespace {

constexpr size_t kPage = 4096;

std::string Target(int fd) {
  char target[256] = {};
  return readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target - 1) < 0 ? ""
                                                                                                  : target;
}

// A file in the place of a device's, mapped and open.
class DeviceFiles : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    device_ = Open("nvidia0");
    other_ = Open("other");
  }
  void TearDown() override {
    for (const int fd : {device_, other_})
      if (fd >= 0) close(fd);
    for (const char* name : {"/nvidia0", "/other"}) unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  int Open(const char* name) {
    const int fd = open((folder_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(ftruncate(fd, 8 * kPage), 0);
    EXPECT_EQ(pwrite(fd, "device", 6, 0), 6);
    return fd;
  }
  const char* Map(int fd, int access, size_t size = kPage) {
    void* at = mmap(nullptr, size, access, MAP_SHARED, fd, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<const char*>(at);
  }
  bool Mapped(const char* name) const {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find(folder_ + "/" + name) != std::string::npos) return true;
    return false;
  }
  // Runs `check` in a forked child that has dropped them; its exit status is the number of the line that
  // failed.
  template <typename Check>
  void InChild(const Check& check) {
    const pid_t child = fork();
    if (child == 0) {
      DropDeviceFiles((folder_ + "/nvidia").c_str());
      _exit(check());
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  std::string folder_ = "/tmp/device-files-XXXXXX";
  int device_ = -1, other_ = -1;
};

TEST_F(DeviceFiles, AreGoneFromTheChildAndStayWithTheParent) {
  // Beside each other, apart, and with every kind of access.
  std::vector<const char*> mappings = {Map(device_, PROT_READ | PROT_WRITE),
                                       Map(device_, PROT_READ, 3 * kPage), Map(device_, PROT_NONE)};
  const char* other = Map(other_, PROT_READ);
  const int again = dup(device_);
  InChild([&] {
    if (Mapped("nvidia0") || !Mapped("other")) return 1;
    if (mappings[0][0] != '\0' || mappings[1][3 * kPage - 1] != '\0') return 2;
    const_cast<char*>(mappings[0])[5] = 'x';  // and it may be written as before
    if (Target(device_) != "/dev/null" || Target(again) != "/dev/null") return 3;
    if (Target(other_) != folder_ + "/other" || other[0] != 'd') return 4;
    return (fcntl(device_, F_GETFD) & FD_CLOEXEC) != 0 ? 0 : 5;
  });
  EXPECT_EQ(mappings[0][5], 'e') << "the child's is its own";
  EXPECT_EQ(Target(device_), folder_ + "/nvidia0");
  EXPECT_TRUE(Mapped("nvidia0"));
  close(again);
}

TEST_F(DeviceFiles, AreFoundBehindManyOtherMappingsAndDescriptors) {
  std::vector<int> descriptors;
  for (int i = 0; i < 300; ++i) {
    descriptors.push_back(dup(i % 2 == 0 ? device_ : other_));
    Map(i % 2 == 0 ? other_ : device_, i % 3 == 0 ? PROT_READ : PROT_READ | PROT_WRITE);
  }
  InChild([&] {
    if (Mapped("nvidia0")) return 1;
    for (size_t i = 0; i < descriptors.size(); ++i)
      if ((Target(descriptors[i]) == "/dev/null") != (i % 2 == 0)) return 2;
    return 0;
  });
  for (const int fd : descriptors) close(fd);
}

TEST_F(DeviceFiles, AreHeldWhileOneIsOpenOrMapped) {
  const std::string prefix = folder_ + "/nvidia";
  EXPECT_TRUE(HoldsDeviceFiles(prefix.c_str()));
  const char* mapping = Map(device_, PROT_READ);
  close(device_);
  EXPECT_TRUE(HoldsDeviceFiles(prefix.c_str()));
  ASSERT_EQ(munmap(const_cast<char*>(mapping), kPage), 0);
  EXPECT_FALSE(HoldsDeviceFiles(prefix.c_str()));
  EXPECT_TRUE(HoldsDeviceFiles((folder_ + "/other").c_str()));
  device_ = -1;
}

TEST_F(DeviceFiles, AChildWithoutAnyIsAsItWas) {
  InChild([&] { return Target(other_) == folder_ + "/other" ? 0 : 1; });
}

}  // namespace
}  // namespace stasis

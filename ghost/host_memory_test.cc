#include "ghost/host_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/testing.h"

namespace stasis {
namespace {

constexpr uint64_t kGiB = 1 << 30;

class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    Write("self/cgroup", "5:memory:/jobs/one\n4:freezer:/other\n0::/new/two\n");
    Write("self/mounts", "proc /proc proc rw 0 0\ncgroup " + folder_.path() +
                             "/v1 cgroup rw,nosuid,memory 0 0\ncgroup2 " + folder_.path() +
                             "/v2 cgroup2 rw 0 0\n");
    Write("meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path(folder_ / name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void Limit1(const std::string& group, uint64_t limit, uint64_t usage, uint64_t cache = 0) {
    Write("v1" + group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    Write("v1" + group + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    Write("v1" + group + "/memory.stat", "cache 1\ntotal_inactive_file " + std::to_string(cache) + "\n");
  }
  void Limit2(const std::string& group, const std::string& limit, uint64_t usage, uint64_t cache = 0) {
    Write("v2" + group + "/memory.max", limit + "\n");
    Write("v2" + group + "/memory.current", std::to_string(usage) + "\n");
    Write("v2" + group + "/memory.stat", "anon 1\ninactive_file " + std::to_string(cache) + "\n");
  }
  HostRoom Room() { return FreeHostRoom(folder_.path()); }

  TempFolder folder_;
};

TEST_F(HostMemoryTest, WithoutLimitsTheMachineHasTheSay) {
  EXPECT_EQ(Room().bytes, 8 * kGiB);
  EXPECT_EQ(Room().limited_by, "");
  Limit1("/jobs/one", ~uint64_t{0} >> 1, kGiB);
  Limit2("/new/two", "max", kGiB);
  EXPECT_EQ(Room().bytes, 8 * kGiB);
}

TEST_F(HostMemoryTest, TheTightestGroupLimits) {
  Limit1("/jobs/one", 4 * kGiB, kGiB);
  EXPECT_EQ(Room().bytes, 3 * kGiB);
  Limit1("/jobs", 5 * kGiB, 3 * kGiB);
  EXPECT_EQ(Room().bytes, 2 * kGiB);
  EXPECT_EQ(Room().limited_by, folder_ / "v1/jobs");
  Limit2("/new/two", std::to_string(2 * kGiB), kGiB);
  EXPECT_EQ(Room().bytes, kGiB);
  Limit2("", std::to_string(kGiB), 2 * kGiB);
  EXPECT_EQ(Room().bytes, 0u);
  EXPECT_EQ(Room().limited_by, folder_ / "v2");
}

TEST_F(HostMemoryTest, FilesThatAreOnlyKeptAreNoUse) {
  Limit1("/jobs/one", 4 * kGiB, 4 * kGiB, kGiB);
  EXPECT_EQ(Room().bytes, kGiB);
  Limit2("/new/two", std::to_string(4 * kGiB), 4 * kGiB, 8 * kGiB);
  EXPECT_EQ(Room().bytes, kGiB);
}

TEST_F(HostMemoryTest, ARefusalHasTheFigures) {
  Limit1("/jobs/one", 4 * kGiB, kGiB);
  EXPECT_TRUE(CheckHostRoom(3 * kGiB, Room()).ok());
  const Status status = CheckHostRoom(5 * kGiB, Room());
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(),
            "the device memory needs 5.0 GiB of host memory, and the limit of control group " +
                (folder_ / "v1/jobs/one") + " leaves 3.0 GiB");
}

TEST_F(HostMemoryTest, NonsenseLimitsNothing) {
  Write("self/cgroup", "x\n5:memory\n:::\n5:memory:\n0::/../..\n");
  Write("v1/memory.limit_in_bytes", "many\n");
  EXPECT_EQ(Room().bytes, 8 * kGiB);
  Write("meminfo", "");
  EXPECT_EQ(Room().bytes, 0u);
}

TEST(HostMemoryHereTest, ThisMachineHasSome) { EXPECT_GT(FreeHostRoom().bytes, 0u); }

}  // namespace
}  // namespace stasis

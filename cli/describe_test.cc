#include "cli/describe.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(DescribeResult, AMoveToAnotherNodeNamesIt) {
  const Json result = {
      {"moved_to", "node-2:7470"}, {"standstill_ms", 120}, {"sent_bytes", 1 << 20}, {"gpus", {0, 1}}};
  EXPECT_EQ(DescribeResult("migrate", "train", result),
            "train is on node-2:7470 now; it stood still for 120 ms, 1.0 MiB sent");
}

TEST(DescribeResult, AMoveOnThisNodeNamesTheDevices) {
  const Json result = {{"gpus", {1, 2}}, {"standstill_ms", 40}, {"device_bytes", 2 << 20}};
  EXPECT_EQ(DescribeResult("migrate", "train", result),
            "train is on GPU 1,2 now; it stood still for 40 ms, 2.0 MiB moved");
}

}  // namespace
}  // namespace stasis

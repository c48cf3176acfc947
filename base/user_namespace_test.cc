#include "base/user_namespace.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(UserNamespaceTest, TheFirstOneIsKnownByItsMap) {
  EXPECT_TRUE(IsWholeIdMap("         0          0 4294967295\n"));
  EXPECT_FALSE(IsWholeIdMap("         0       1000          1\n"));
  EXPECT_FALSE(IsWholeIdMap("         0     100000      65536\n"));
  EXPECT_FALSE(IsWholeIdMap("      1000       1000          1\n"));
  EXPECT_FALSE(IsWholeIdMap(""));
}

}  // namespace
}  // namespace stasis

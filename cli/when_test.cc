#include "cli/when.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(When, IsRelativeOrADate) {
  EXPECT_EQ(*ParseWhen("now", 5000), 5000);
  EXPECT_EQ(*ParseWhen("+90m", 5000), 5000 + 90 * 60000);
  EXPECT_EQ(*ParseWhen("1970-01-02T00:00Z", 0), 86400000);
  EXPECT_EQ(*ParseWhen("2026-12-24 18:00:30Z", 0), 1798135230000);
  EXPECT_EQ(*ParseWhen("2026-12-24T18:00Z", 0), 1798135200000);
}

TEST(When, WithoutAZoneItIsHereAndReadsBack) {
  Result<int64_t> here = ParseWhen("2026-12-24 18:00:30", 0);
  ASSERT_TRUE(here.ok());
  EXPECT_EQ(WhenText(*here), "2026-12-24 18:00:30");
}

TEST(When, AnythingElseIsRefused) {
  for (const char* bad : {"", "soon", "+", "+x", "-5m", "2026-12-24", "2026-13-01 00:00", "2026-02-30 10:00Z",
                          "2026-12-24 18:00+01", "2026-12-24 18:00 ", "18:00", "1960-01-01 00:00Z"}) {
    EXPECT_EQ(ParseWhen(bad, 0).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace stasis

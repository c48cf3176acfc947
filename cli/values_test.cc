#include "coordinator/node/values.h"

#include <gtest/gtest.h>

#include "base/field_checks.h"
#include "cli/exit_codes.h"
#include "cli/report.h"

namespace stasis {
namespace {

TEST(Values, GpuLists) {
  EXPECT_EQ(*ParseGpuList("0"), std::vector<int>({0}));
  EXPECT_EQ(*ParseGpuList("2,0,1023"), std::vector<int>({2, 0, 1023}));
  for (const char* bad :
       {"", ",", "0,", ",0", "0,0", "-1", "1024", "a", "0 1", "1.5", "0x1", "99999999999999"}) {
    EXPECT_EQ(ParseGpuList(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_EQ(GpuListText({2, 0}), "2,0");
  EXPECT_EQ(GpuListText({}), "");
}

TEST(Values, Durations) {
  using std::chrono::milliseconds;
  EXPECT_EQ(*ParseDuration("30s"), milliseconds(30000));
  EXPECT_EQ(*ParseDuration("30"), milliseconds(30000));
  EXPECT_EQ(*ParseDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("2m"), milliseconds(120000));
  EXPECT_EQ(*ParseDuration("24h"), milliseconds(86400000));
  EXPECT_EQ(*ParseDuration("1d"), milliseconds(86400000));
  EXPECT_EQ(*ParseLongDuration("366d"), milliseconds(366 * 86400000LL));
  EXPECT_FALSE(ParseLongDuration("367d").ok());
  for (const char* bad :
       {"", "s", "0", "0s", "-1s", "25h", "1e300s", "nan", "inf", "2d", "1 s", "1s1s", "0.1ms"}) {
    EXPECT_EQ(ParseDuration(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(Values, EnvironmentEntries) {
  EXPECT_TRUE(CheckEnvironmentEntry("A=").ok());
  EXPECT_TRUE(CheckEnvironmentEntry("A=b=c").ok());
  EXPECT_FALSE(CheckEnvironmentEntry("A").ok());
  EXPECT_FALSE(CheckEnvironmentEntry("=b").ok());
  EXPECT_FALSE(CheckEnvironmentEntry("").ok());
}

TEST(ExitCodes, EveryStatusHasOneAndNamesRoundTrip) {
  for (int value = 0; value <= static_cast<int>(StatusCode::kInternal); value++) {
    auto code = static_cast<StatusCode>(value);
    EXPECT_EQ(StatusCodeByName(StatusCodeName(code)), code);
    EXPECT_EQ(ExitCodeOf(code) == kExitOk, code == StatusCode::kOk) << StatusCodeName(code);
    EXPECT_LT(ExitCodeOf(code), kExitCheckpointed);
  }
  EXPECT_EQ(StatusCodeByName("NO_SUCH_CODE"), StatusCode::kInternal);
}

TEST(ExitCodes, TheDocumentedTable) {
  EXPECT_EQ(ExitCodeOf(StatusCode::kDriver), 1);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kNotFound), 3);
  EXPECT_EQ(ExitCodeOf(StatusCode::kFailedPrecondition), 4);
  EXPECT_EQ(ExitCodeOf(StatusCode::kAlreadyExists), 4);
  EXPECT_EQ(ExitCodeOf(StatusCode::kTimeout), 5);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUnsupported), 6);
  EXPECT_EQ(ExitCodeOf(StatusCode::kPermissionDenied), 7);
  EXPECT_EQ(ExitCodeOf(StatusCode::kResourceExhausted), 8);
  EXPECT_EQ(ExitCodeOf(StatusCode::kCancelled), 9);
  EXPECT_EQ(ExitCodeOf(StatusCode::kPeerDied), 10);
  EXPECT_EQ(ExitCodeOf(StatusCode::kCorrupt), 11);
}

TEST(Texts, Sizes) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1024), "1.0 KiB");
  EXPECT_EQ(SizeText((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(SizeText(1536ull << 20), "1.5 GiB");
  EXPECT_EQ(SizeText(~0ull), "16777216.0 TiB");
}

TEST(Texts, Milliseconds) {
  EXPECT_EQ(MillisecondsText(0.25), "0.2 ms");
  EXPECT_EQ(MillisecondsText(340), "340 ms");
  EXPECT_EQ(MillisecondsText(1250), "1.25 s");
}

TEST(Texts, Bars) {
  EXPECT_EQ(BarText(0, 100, 4), "[    ]");
  EXPECT_EQ(BarText(50, 100, 4), "[##  ]");
  EXPECT_EQ(BarText(100, 100, 4), "[####]");
  EXPECT_EQ(BarText(200, 100, 4), "[####]");
  EXPECT_EQ(BarText(0, 0, 4), "[    ]");
}

}  // namespace
}  // namespace stasis

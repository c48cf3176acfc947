#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace stasis {
namespace {

TEST(StatusTest, OkHasNoMessage) {
  Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.ToString(), "OK");
  EXPECT_TRUE(status.WithContext("anything").ok());
}

TEST(StatusTest, ContextGrowsInFront) {
  Status status = Errorf(StatusCode::kCorrupt, "chunk %d", 7);
  EXPECT_EQ(status.WithContext("map").WithContext("restore").ToString(), "CORRUPT: restore: map: chunk 7");
  EXPECT_EQ(status.ToString(), "CORRUPT: chunk 7");
}

TEST(StatusTest, CopiesAreIndependent) {
  Status first(StatusCode::kTimeout, "late");
  Status second = first;
  second = std::move(second).WithContext("x");
  EXPECT_EQ(first.message(), "late");
  EXPECT_EQ(second.message(), "x: late");
}

TEST(StatusTest, ErrnoKeepsNumberAndKind) {
  Status status = ErrnoStatus(ENOENT, "open /x");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("open /x: "), std::string_view::npos);
  EXPECT_NE(status.message().find("(2)"), std::string_view::npos);
  EXPECT_EQ(ErrnoStatus(EPIPE, "").code(), StatusCode::kPeerDied);
  EXPECT_EQ(ErrnoStatus(EMFILE, "").code(), StatusCode::kResourceExhausted);
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Status(StatusCode::kInvalidArgument, "odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(int half, Half(value));
  return Half(half);
}

Status Check(int value) {
  RETURN_IF_ERROR(Quarter(value).status());
  return Status();
}

TEST(ResultTest, ValueOrStatusThroughTheMacros) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(Check(4).ok());
  EXPECT_EQ(Check(5).code(), StatusCode::kInvalidArgument);
}

TEST(ResultTest, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, ValueOfAnErrorAborts) {
  Result<int> result = Half(1);
  EXPECT_DEATH((void)result.value(), "check failed");
}

}  // namespace
}  // namespace stasis

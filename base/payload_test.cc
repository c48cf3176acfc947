#include "base/payload.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

TEST(PayloadTest, ReadsWhatWasWritten) {
  PayloadWriter writer;
  writer.U8(0xab);
  writer.U16(0xabcd);
  writer.U32(0xdeadbeef);
  writer.U64(0x0123456789abcdef);
  writer.I32(-5);
  writer.I64(INT64_MIN);
  writer.F64(0.1);
  writer.String("text");
  writer.String("");
  std::vector<std::byte> blob{std::byte{1}, std::byte{0}};
  writer.Bytes(blob);
  std::vector<std::byte> payload = writer.Take();
  PayloadReader reader(payload);
  EXPECT_EQ(reader.U8(), 0xab);
  EXPECT_EQ(reader.U16(), 0xabcd);
  EXPECT_EQ(reader.U32(), 0xdeadbeef);
  EXPECT_EQ(reader.U64(), 0x0123456789abcdefu);
  EXPECT_EQ(reader.I32(), -5);
  EXPECT_EQ(reader.I64(), INT64_MIN);
  EXPECT_EQ(reader.F64(), 0.1);
  EXPECT_EQ(reader.String(4), "text");
  EXPECT_EQ(reader.String(0), "");
  EXPECT_EQ(reader.Bytes(2), blob);
  EXPECT_TRUE(reader.Finish().ok());
}

TEST(PayloadTest, EveryTruncationFailsAndStaysFailed) {
  PayloadWriter writer;
  writer.U32(7);
  writer.String("abc");
  writer.U64(1);
  std::vector<std::byte> payload = writer.Take();
  for (size_t length = 0; length < payload.size(); length++) {
    PayloadReader reader(std::span<const std::byte>(payload).first(length));
    (void)reader.U32();
    (void)reader.String(10);
    (void)reader.U64();
    EXPECT_FALSE(reader.ok()) << length;
    EXPECT_EQ(reader.U8(), 0) << length;
    EXPECT_EQ(reader.Finish().code(), StatusCode::kCorrupt) << length;
  }
}

TEST(PayloadTest, LeftoversAreCorrupt) {
  std::vector<std::byte> payload(3);
  PayloadReader reader(payload);
  (void)reader.U16();
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.Finish().code(), StatusCode::kCorrupt);
}

TEST(PayloadTest, LongStringsAndImpossibleCountsFail) {
  PayloadWriter writer;
  writer.String("12345");
  std::vector<std::byte> payload = writer.Take();
  PayloadReader too_long(payload);
  EXPECT_EQ(too_long.String(4), "");
  EXPECT_FALSE(too_long.ok());

  PayloadWriter counts;
  counts.U32(3);
  counts.U64(0);
  counts.U64(0);
  payload = counts.Take();
  PayloadReader fits(payload);
  EXPECT_EQ(fits.Count(5), 3u);
  PayloadReader does_not(payload);
  EXPECT_EQ(does_not.Count(8), 0u);
  EXPECT_FALSE(does_not.ok());
}

}  // namespace
}  // namespace stasis

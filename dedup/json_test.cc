#include "dedup/json.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

std::string Nested(size_t levels, char open, char close) {
  return "{\"a\":" + std::string(levels - 1, open) + std::string(levels - 1, close) + "}";
}

TEST(JsonTest, DepthIsBounded) {
  EXPECT_TRUE(ParseJsonObject(Nested(100, '[', ']')).ok());
  EXPECT_EQ(ParseJsonObject(Nested(101, '[', ']')).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(ParseJsonObject(std::string(10 << 20, '[')).status().code(), StatusCode::kCorrupt);
  EXPECT_TRUE(ParseJsonObject("{\"a\":[" + std::string(300, ' ') + "[],[],{}]}").ok());
}

TEST(JsonTest, BracketsInStringsAreNoDepth) {
  std::string brackets(300, '[');
  EXPECT_TRUE(ParseJsonObject("{\"" + brackets + "\":\"" + brackets + "\"}").ok());
  EXPECT_TRUE(ParseJsonObject("{\"a\":\"\\\"" + brackets + "\\\\\"}").ok());
  // The string ends before the brackets.
  EXPECT_EQ(ParseJsonObject("{\"a\":\"\\\\\",\"b\":" + brackets).status().code(), StatusCode::kCorrupt);
}

TEST(JsonTest, WhatIsNoObjectIsRefused) {
  for (std::string text : {"", "[]", "1", "null", "{", "{} {}", "{\"a\":1e999}", "{\"a\":\"\xff\"}"}) {
    EXPECT_EQ(ParseJsonObject(text).status().code(), StatusCode::kCorrupt) << text;
  }
}

}  // namespace
}  // namespace stasis

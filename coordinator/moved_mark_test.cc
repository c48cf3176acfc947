#include "coordinator/moved_mark.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/no_descriptors.h"
#include "base/testing.h"

namespace stasis {
namespace {

using testing::HasSubstr;

TEST(MovedMark, KeepsATaskFromRunning) {
  TempFolder folder;
  std::string remedy;
  ASSERT_OK(RefuseMoved("train", folder.path(), &remedy));
  ASSERT_OK(MarkMoved(folder.path(), "node-7"));
  EXPECT_EQ(MovedTo(folder.path()), "node-7");
  EXPECT_EQ(RefuseMoved("train", folder.path(), &remedy).code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(remedy, HasSubstr("moved.json"));
  EXPECT_THAT(remedy, HasSubstr("stasis restore --take-back"));
  std::string unread;
  {
    NoDescriptors none;
    unread = MovedTo(folder.path());
  }
  EXPECT_NE(unread, "") << "one that cannot be read is there all the same";
  for (const char* odd : {"", "{", "[]", "{}", R"({"node": ""})", R"({"node": 7})"}) {
    ASSERT_OK(WriteFileAtomically(folder.path() + "/moved.json", odd));
    EXPECT_EQ(MovedTo(folder.path()), "(unknown)") << odd;
    EXPECT_EQ(RefuseMoved("train", folder.path(), &remedy).code(), StatusCode::kFailedPrecondition);
  }
  ASSERT_OK(UnmarkMoved(folder.path()));
  ASSERT_OK(UnmarkMoved(folder.path()));
  EXPECT_EQ(MovedTo(folder.path()), "");
}

}  // namespace
}  // namespace stasis

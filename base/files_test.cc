// Files and folders where somebody else may have put links and files of his own.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing.h"

namespace stasis {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat info;
  EXPECT_EQ(lstat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class FilesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(MakeFolders(precious_));
    ASSERT_OK(WriteFileAtomically(precious_ + "/file", "kept"));
  }
  void ExpectKept() { EXPECT_EQ(*ReadFile(precious_ + "/file"), "kept"); }

  TempFolder folder_;
  const std::string precious_ = folder_ / "precious";
};

TEST_F(FilesTest, WhatIsMadeIsTheOwnersAlone) {
  const mode_t before = umask(0);
  ASSERT_OK(MakeFolders(folder_ / "a/b/c"));
  ASSERT_OK(WriteFileAtomically(folder_ / "a/file", "x"));
  umask(before);
  for (const char* made : {"a", "a/b", "a/b/c"}) EXPECT_EQ(ModeOf(folder_ / made), 0700U) << made;
  EXPECT_EQ(ModeOf(folder_ / "a/file"), 0600U);
}

TEST_F(FilesTest, ALinkWhereAFileIsReplacedIsReplacedItself) {
  const std::string path = folder_ / "status.json";
  ASSERT_EQ(symlink((precious_ + "/file").c_str(), path.c_str()), 0);
  ASSERT_OK(WriteFileAtomically(path, "new"));
  ExpectKept();
  EXPECT_EQ(*ReadFile(path), "new");
}

TEST_F(FilesTest, ALinkWhereTheNewFileIsWrittenIsNotFollowed) {
  const std::string path = folder_ / "status.json";
  ASSERT_EQ(symlink((precious_ + "/file").c_str(), (path + ".new").c_str()), 0);
  EXPECT_FALSE(WriteFileAtomically(path, "new").ok());
  ExpectKept();
}

TEST_F(FilesTest, RemovingATreeLeavesWhatItsLinksLeadTo) {
  const std::string tree = folder_ / "tree";
  ASSERT_OK(MakeFolders(tree + "/sub"));
  ASSERT_EQ(symlink(precious_.c_str(), (tree + "/sub/link").c_str()), 0);
  ASSERT_OK(RemoveTree(tree));
  EXPECT_FALSE(Exists(tree));
  ExpectKept();
  ASSERT_EQ(symlink(precious_.c_str(), tree.c_str()), 0);
  ASSERT_OK(RemoveTree(tree));
  EXPECT_FALSE(Exists(tree));
  ExpectKept();
}

TEST_F(FilesTest, ACopyTakesNoPlaceOfAnotherFile) {
  ASSERT_OK(WriteFileAtomically(folder_ / "from", "other"));
  EXPECT_FALSE(CopyFile(folder_ / "from", precious_ + "/file", 5).ok());
  ASSERT_EQ(symlink((precious_ + "/file").c_str(), (folder_ / "to").c_str()), 0);
  EXPECT_FALSE(CopyFile(folder_ / "from", folder_ / "to", 5).ok());
  ExpectKept();
}

TEST_F(FilesTest, NamesThatLeadElsewhereAreNone) {
  for (const char* name : {"", ".", "..", "a/b", "/", "a\nb", "a\x7f"})
    EXPECT_FALSE(IsPlainName(name)) << name;
  EXPECT_FALSE(IsPlainName(std::string(256, 'a')));
  EXPECT_FALSE(IsPlainName(std::string("a\0b", 3)));
  EXPECT_TRUE(IsPlainName("...") && IsPlainName("a b") && IsPlainName(std::string(255, 'a')));
}

}  // namespace
}  // namespace stasis

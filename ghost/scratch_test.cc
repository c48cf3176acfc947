#include "ghost/scratch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/testing.h"

namespace stasis {
namespace {

TEST(Scratch, IsEmptyEachTime) {
  TempFolder folder;
  const std::string path = folder / "task/dump";
  for (bool in_memory : {false, true, false}) {
    ASSERT_OK(MakeScratch(path, in_memory));
    EXPECT_TRUE(ListFolder(path)->empty());
    ASSERT_OK(WriteFileAtomically(path + "/pages.img", "in the clear"));
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700U);
  }
  ASSERT_OK(RemoveScratch(path));
  EXPECT_FALSE(Exists(path));
  ASSERT_OK(RemoveScratch(path));
}

TEST(Scratch, InMemoryNothingIsOnTheDiskAndNothingStays) {
  TempFolder folder;
  const std::string path = folder / "task/dump";
  ASSERT_OK(MakeScratch(path, true));
  const std::string memory = *ReadLink(path);
  EXPECT_TRUE(memory.starts_with("/dev/shm/")) << memory;
  ASSERT_OK(WriteFileAtomically(path + "/pages.img", "in the clear"));
  EXPECT_TRUE(Exists(memory + "/pages.img"));
  ASSERT_OK(RemoveScratch(path));
  EXPECT_FALSE(Exists(memory));
  EXPECT_FALSE(Exists(path));
}

// Who can write the folder of the task must not choose what is removed.
TEST(Scratch, AForeignLinkIsNotFollowed) {
  TempFolder folder;
  const std::string precious = folder / "precious", path = folder / "dump";
  ASSERT_OK(MakeFolders(precious));
  ASSERT_OK(WriteFileAtomically(precious + "/file", "x"));
  for (const std::string& target : {precious, "/dev/shm/stasis-scratch-x/../../.." + precious}) {
    ASSERT_EQ(symlink(target.c_str(), path.c_str()), 0);
    ASSERT_OK(RemoveScratch(path));
    EXPECT_FALSE(Exists(path));
    EXPECT_TRUE(Exists(precious + "/file"));
  }
}

}  // namespace
}  // namespace stasis

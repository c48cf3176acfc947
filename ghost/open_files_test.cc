#include "ghost/open_files.h"

#include "ghost/testing.h"

namespace stasis {
namespace {

TEST(OpenFilesTest, ALongerFileIsCutAndItsTailKept) {
  TempFolder folder;
  std::string log = folder / "output.log";
  WriteText(log, "before|after");
  std::vector<SetAside> done;
  std::string remedy;
  ASSERT_OK(PrepareFiles({{log, 6, true}}, log, "", "000003", &done, &remedy));
  EXPECT_EQ(ReadText(log), "before");
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(ReadText(log + ".after-000003"), "|after");
  EXPECT_NE(Note(done[0]).find(log + ".after-000003"), std::string::npos);
  ASSERT_OK(UndoPrepareFiles(done));
  EXPECT_EQ(ReadText(log), "before|after");
  EXPECT_FALSE(Exists(log + ".after-000003"));
}

TEST(OpenFilesTest, AnEarlierTailIsNeverOverwritten) {
  TempFolder folder;
  std::string log = folder / "output.log";
  for (const char* tail : {"one", "two", "three"}) {
    WriteText(log, std::string("same") + tail);
    std::vector<SetAside> done;
    std::string remedy;
    ASSERT_OK(PrepareFiles({{log, 4, true}}, log, "", "000001", &done, &remedy));
  }
  EXPECT_EQ(ReadText(log + ".after-000001"), "one");
  EXPECT_EQ(ReadText(log + ".after-000001.2"), "two");
  EXPECT_EQ(ReadText(log + ".after-000001.3"), "three");
}

TEST(OpenFilesTest, NothingIsTouchedWhenOneFileCannotBePutBack) {
  TempFolder folder;
  WriteText(folder / "long", "12345678");
  struct {
    ManifestFile file;
    const char* content;
  } bad[] = {{{folder / "short", 5, true}, "1234"},
             {{folder / "data", 3, false}, "1234"},
             {{folder / "gone", 3, true}, nullptr}};
  for (const auto& each : bad) {
    if (each.content) WriteText(each.file.path, each.content);
    std::vector<SetAside> done;
    std::string remedy;
    Status status = PrepareFiles({{folder / "long", 4, true}, each.file}, "", "", "000001", &done, &remedy);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find(each.file.path), std::string_view::npos);
    EXPECT_FALSE(remedy.empty());
    EXPECT_EQ(ReadText(folder / "long"), "12345678");
    EXPECT_TRUE(done.empty());
  }
}

TEST(OpenFilesTest, OurOwnLogComesFromTheImage) {
  TempFolder folder;
  std::string log = folder / "output.log";
  WriteText(folder / "copy", "line\nmore");
  std::vector<SetAside> done;
  std::string remedy;
  ASSERT_OK(PrepareFiles({{log, 5, true}}, log, folder / "copy", "000001", &done, &remedy));
  EXPECT_EQ(ReadText(log), "line\n");
  // A log that was cut is kept beside the one that is made anew.
  WriteText(log, "li");
  ASSERT_OK(PrepareFiles({{log, 5, true}}, log, folder / "copy", "000001", &done, &remedy));
  EXPECT_EQ(ReadText(log), "line\n");
  EXPECT_EQ(ReadText(log + ".after-000001"), "li");
}

}  // namespace
}  // namespace stasis

#include "coordinator/agent/earlier_stay.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/testing.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

class EarlierStayTest : public testing::Test {
 protected:
  EarlierStayTest() : folders_{folder_ / "state", folder_ / "run"}, paths_(folders_, "train") {}

  void Write(const std::string& path, const std::string& text) {
    ASSERT_OK(MakeFolders(path.substr(0, path.rfind('/'))));
    ASSERT_OK(WriteFileAtomically(path, text));
  }
  static std::string Read(const std::string& path) {
    Result<std::string> text = ReadFile(path, 1 << 20);
    return text.ok() ? *text : "";
  }
  // As a task that has left for another node has them.
  void Leave() {
    Write(paths_.File("task.json"), "earlier task");
    Write(paths_.File("output.log"), "earlier output");
    ASSERT_OK(MarkMoved(paths_.folder, "other"));
  }
  void Come() {
    Write(paths_.File("task.json"), "task");
    Write(paths_.File("process.json"), "process");
  }
  void ExpectEarlier() {
    EXPECT_EQ(Read(paths_.File("task.json")), "earlier task");
    EXPECT_EQ(Read(paths_.File("output.log")), "earlier output");
    EXPECT_EQ(MovedTo(paths_.folder), "other");
    EXPECT_EQ(ListFolder(paths_.folder)->size(), 3u);
  }

  TempFolder folder_;
  Folders folders_;
  TaskPaths paths_;
};

TEST_F(EarlierStayTest, IsPutBackWhenTheTaskDoesNotCome) {
  Leave();
  ASSERT_OK(SetEarlierTaskAside(paths_));
  EXPECT_FALSE(Exists(paths_.File("task.json")));
  EXPECT_EQ(MovedTo(paths_.folder), "");
  Come();
  ASSERT_OK(PutEarlierTaskBack(paths_));
  ExpectEarlier();
}

TEST_F(EarlierStayTest, StaysWhereItWasNotSetAside) {
  Leave();
  ASSERT_OK(PutEarlierTaskBack(paths_));
  ExpectEarlier();
}

TEST_F(EarlierStayTest, IsForgottenWhenItHasCome) {
  Leave();
  ASSERT_OK(SetEarlierTaskAside(paths_));
  Come();
  ForgetEarlierTask(paths_);
  EXPECT_EQ(*ListFolder(paths_.folder), (std::vector<std::string>{"process.json", "task.json"}));
  ASSERT_OK(PutEarlierTaskBack(paths_));
  EXPECT_FALSE(Exists(paths_.folder));
}

TEST_F(EarlierStayTest, WhereThereWasNoneNothingIsLeft) {
  ASSERT_OK(SetEarlierTaskAside(paths_));
  Come();
  ASSERT_OK(PutEarlierTaskBack(paths_));
  EXPECT_FALSE(Exists(paths_.folder));
}

TEST_F(EarlierStayTest, ARecordWithoutAMarkIsOfNoUse) {
  Write(paths_.File("task.json"), "ended");
  ASSERT_OK(SetEarlierTaskAside(paths_));
  EXPECT_FALSE(Exists(paths_.folder));
}

// Each way it can be left by a kill between two renames; the mark is the last that goes and the first that
// comes back.
TEST_F(EarlierStayTest, AnInterruptedOneIsTakenUp) {
  const std::string aside = paths_.folder + "/earlier";
  for (const std::vector<std::string>& moved :
       {std::vector<std::string>{}, {"output.log"}, {"task.json"}, {"output.log", "task.json"}}) {
    for (const bool again : {false, true}) {
      Leave();
      ASSERT_OK(MakeFolders(aside));
      for (const std::string& name : moved)
        ASSERT_EQ(rename(paths_.File(name).c_str(), (aside + "/" + name).c_str()), 0);
      if (again) {
        ASSERT_OK(SetEarlierTaskAside(paths_));
        Come();
      }
      ASSERT_OK(PutEarlierTaskBack(paths_));
      ExpectEarlier();
    }
  }
}

TEST_F(EarlierStayTest, TheRecordOfAJob) {
  const std::string record = JobFolder(folders_, "train") + "/job.json";
  const std::string image = JobFolder(folders_, "train") + "/images/000001.json";
  Write(record, "earlier");
  Write(image, "image");
  Leave();
  ASSERT_OK(SetEarlierJobAside(folders_, "train", paths_));
  EXPECT_FALSE(Exists(record));
  Write(record, "job");
  ASSERT_OK(PutEarlierJobBack(folders_, "train"));
  EXPECT_EQ(Read(record), "earlier");
  EXPECT_EQ(Read(image), "image");

  ASSERT_OK(SetEarlierJobAside(folders_, "train", paths_));
  Write(record, "job");
  ForgetEarlierJob(folders_, "train");
  EXPECT_EQ(Read(record), "job");
  ASSERT_OK(RemoveTree(JobFolder(folders_, "train") + "/images"));
  ASSERT_OK(PutEarlierJobBack(folders_, "train"));
  EXPECT_FALSE(Exists(JobFolder(folders_, "train")));
}

}  // namespace
}  // namespace stasis

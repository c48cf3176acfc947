#include "coordinator/job_record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "coordinator/job_json.h"

namespace stasis {
namespace {

class JobRecordTest : public testing::Test {
 protected:
  JobRecordTest() {
    std::string pattern = testing::TempDir() + "stasis-job-XXXXXX";
    state_ = mkdtemp(pattern.data());
    record_.name = "train";
    record_.argv = {"./train", "--epochs", "3"};
    record_.created = 1700000000;
    record_.master_port = 29500;
    record_.nodes.resize(2);
    record_.nodes[0].name = "a";
    record_.nodes[0].ranks = 3;
    record_.nodes[0].gpus = {2, 1, 0};
    record_.nodes[1].name = "b";
    record_.nodes[1].address = "10.0.0.2";
    record_.nodes[1].through = {"nsenter", "-t", "812", "-n", "--"};
    record_.nodes[1].ranks = 1;
  }
  ~JobRecordTest() override { std::filesystem::remove_all(state_); }

  void Overwrite(const std::string& file, const std::string& text) {
    std::ofstream(state_ + "/jobs/train/" + file, std::ios::trunc) << text;
  }

  std::string state_;
  JobRecord record_;
};

TEST_F(JobRecordTest, ComesBackAsItWasWritten) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  Result<JobRecord> read = ReadJobRecord(state_, "train");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(JobRecordText(*read), JobRecordText(record_));
  EXPECT_EQ(read->argv, record_.argv);
  EXPECT_EQ(read->nodes[1].through, record_.nodes[1].through);
  EXPECT_EQ(ListJobs(state_), std::vector<std::string>{"train"});
}

TEST_F(JobRecordTest, RanksLieOnTheirNodes) {
  EXPECT_EQ(record_.ranks(), 4);
  EXPECT_EQ(record_.TaskOf(3), "train.3");
  EXPECT_EQ(record_.NodeOf(2).name, "a");
  EXPECT_EQ(record_.NodeOf(3).name, "b");
  EXPECT_EQ(record_.LocalRankOf(2), 2);
  EXPECT_EQ(record_.LocalRankOf(3), 0);
}

TEST_F(JobRecordTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(ReadJobRecord(state_, "train").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadJobRecord(state_, "../train").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ListJobImages(state_, "train").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(ListJobs(state_).empty());
}

TEST_F(JobRecordTest, DamageIsCorrupt) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  std::string good = JobRecordText(record_);
  for (auto [from, to] :
       {std::pair("\"train\"", "\"other\""), std::pair("\"ranks\": 3", "\"ranks\": 0"),
        std::pair("\"ranks\": 3", "\"ranks\": 4"), std::pair("\"ranks\": 3", "\"ranks\": 5000"),
        std::pair("29500", "70000"), std::pair("\"b\"", "\"a\""), std::pair("\"argv\"", "\"args\""),
        std::pair("{", "")}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string_view(from).size(), to);
    Overwrite("job.json", bad);
    EXPECT_EQ(ReadJobRecord(state_, "train").status().code(), StatusCode::kCorrupt) << bad;
  }
  std::string newer = good;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  Overwrite("job.json", newer);
  EXPECT_EQ(ReadJobRecord(state_, "train").status().code(), StatusCode::kUnsupported);
}

TEST_F(JobRecordTest, ImagesAscend) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  JobImage second{"000002", 20, {"000002", "000002", "000002", "000003"}};
  JobImage first{"000001", 10, {"000001", "000001", "000001", "000001"}};
  ASSERT_TRUE(WriteJobImage(state_, "train", second).ok());
  ASSERT_TRUE(WriteJobImage(state_, "train", first).ok());
  Result<std::vector<JobImage>> images = ListJobImages(state_, "train");
  ASSERT_TRUE(images.ok()) << images.status().ToString();
  ASSERT_EQ(images->size(), 2u);
  EXPECT_EQ((*images)[0].id, "000001");
  EXPECT_EQ((*images)[1].images, second.images);
  EXPECT_TRUE(RemoveJobImage(state_, "train", "000001").ok());
  EXPECT_EQ(RemoveJobImage(state_, "train", "000001").code(), StatusCode::kNotFound);
  EXPECT_EQ(ListJobImages(state_, "train")->size(), 1u);
}

// Its name was read a moment before somebody removed it, as a link that leads nowhere shows.
TEST_F(JobRecordTest, AnImageThatIsRemovedMeanwhileIsLeftOut) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  ASSERT_TRUE(WriteJobImage(state_, "train", {"000001", 10, {"000001", "000001", "000001", "000001"}}).ok());
  std::filesystem::create_symlink(state_ + "/nowhere", state_ + "/jobs/train/images/000002.json");
  Result<std::vector<JobImage>> images = ListJobImages(state_, "train");
  ASSERT_TRUE(images.ok()) << images.status().ToString();
  EXPECT_EQ(images->size(), 1u);
  EXPECT_EQ(ReadJobImage(state_, "train", "000002").status().code(), StatusCode::kNotFound);
}

TEST_F(JobRecordTest, ADamagedImageIsNamedAndDoesNotHideTheOthers) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  for (const char* id : {"000001", "000002"})
    ASSERT_TRUE(WriteJobImage(state_, "train", {id, 10, {"000001", "000001", "000001", "000001"}}).ok());
  Overwrite("images/000002.json", "{\"version\": 1, \"id\"");
  EXPECT_EQ(*ListJobImageIds(state_, "train"), (std::vector<std::string>{"000001", "000002"}));
  EXPECT_TRUE(ReadJobImage(state_, "train", "000001").ok());
  const Status damaged = ReadJobImage(state_, "train", "000002").status();
  EXPECT_EQ(damaged.code(), StatusCode::kCorrupt);
  EXPECT_NE(damaged.message().find("000002.json"), std::string::npos) << damaged.ToString();
  EXPECT_EQ(ListJobImages(state_, "train").status().code(), StatusCode::kCorrupt);
}

TEST_F(JobRecordTest, AnImageOfOtherRanksIsCorrupt) {
  ASSERT_TRUE(WriteJobRecord(state_, record_).ok());
  ASSERT_TRUE(WriteJobImage(state_, "train", {"000001", 10, {"000001"}}).ok());
  EXPECT_EQ(ListJobImages(state_, "train").status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(WriteJobImage(state_, "train", {"1", 10, {"000001"}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteJobImage(state_, "train", {"000001", 10, {"../1"}}).code(), StatusCode::kInvalidArgument);
}

TEST_F(JobRecordTest, NodesOfTheUser) {
  std::string path = state_ + "/nodes.json";
  std::ofstream(path) << R"([{"name": "n0", "ranks": 2, "gpus": [1, 0]},
                             {"name": "n1", "ranks": 2, "through": ["ip", "netns", "exec", "n1"]}])";
  Result<std::vector<JobNode>> nodes = ReadNodes(path);
  ASSERT_TRUE(nodes.ok()) << nodes.status().ToString();
  EXPECT_EQ((*nodes)[0].gpus, (std::vector<int>{1, 0}));
  EXPECT_EQ((*nodes)[0].address, "127.0.0.1");
  EXPECT_EQ((*nodes)[1].through.size(), 4u);
}

TEST_F(JobRecordTest, BadNodesAreNamed) {
  auto message = [](const char* text) {
    Result<std::vector<JobNode>> nodes = ParseNodes(text);
    EXPECT_EQ(nodes.status().code(), StatusCode::kInvalidArgument) << text;
    return std::string(nodes.status().message());
  };
  EXPECT_NE(message("{}").find("list"), std::string::npos);
  EXPECT_NE(message("[]").find("no node"), std::string::npos);
  EXPECT_NE(message(R"([{"name": "a", "ranks": 2, "gpu": [0]}])").find("'gpu'"), std::string::npos);
  EXPECT_NE(message(R"([{"name": "a", "ranks": 2, "gpus": [0]}])").find("'a'"), std::string::npos);
  EXPECT_NE(message(R"([{"name": "a", "ranks": 1}, {"name": "a", "ranks": 1}])").find("twice"),
            std::string::npos);
  message(R"([{"name": "a/b", "ranks": 1}])");
  message(R"([{"name": "a", "ranks": 1, "through": [""]}])");
  message(R"([3])");
}

}  // namespace
}  // namespace stasis

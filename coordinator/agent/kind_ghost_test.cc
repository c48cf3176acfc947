#include "coordinator/agent/kind_ghost.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "coordinator/agent/kinds.h"
#include "coordinator/agent/operation_testing.h"
#include "coordinator/job_record.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/testing.h"
#include "coordinator/testing.h"

namespace stasis {
namespace {

// Ranks whose coordinator was killed, as they have come to rest; what the next agent makes of them.
class JobRecoveryTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  JobRecoveryTest() {
    Site site;
    site.folders = {folder_.File("state"), folder_.File("run")};
    site.files.ghost = folder_.File("no-ghost");
    state_ = site.folders.state;
    record_.name = "job";
    record_.argv = {"./train"};
    record_.nodes.resize(1);
    record_.nodes[0].name = "here";
    record_.nodes[0].ranks = kRanks;
    EXPECT_TRUE(WriteJobRecord(state_, record_).ok());
    for (int rank = 0; rank < kRanks; ++rank)
      ranks_.push_back(std::make_unique<FakeRank>(state_, site.folders.run, record_.TaskOf(rank)));
    KindOptions options;
    options.site = site;
    options.set_moved_to = [this](const std::string& job, const std::string& node) {
      moved_to_.push_back(job + ">" + node);
    };
    kinds_ = MakeKinds(std::move(options));
  }

  void Stand(std::initializer_list<const char*> phases) {
    size_t rank = 0;
    for (const char* phase : phases) ranks_[rank++]->set_phase(phase);
  }
  void ExpectAll(const std::string& phase) {
    for (auto& rank : ranks_) EXPECT_EQ(rank->phase(), phase);
  }
  std::vector<std::string> VerbsOf(int rank) {
    std::vector<std::string> verbs;
    for (const Json& request : ranks_[static_cast<size_t>(rank)]->requests())
      verbs.push_back(request["verb"]);
    return verbs;
  }
  void WriteImage(const std::string& id) {
    EXPECT_TRUE(WriteJobImage(state_, "job", {id, 1, {kRanks, "000001"}}).ok());
  }
  template <typename Message>
  Json Recover(const std::string& verb, Message request, const Json& before) {
    request.set_job("job");
    FakeContext context("job", request.SerializeAsString());
    EXPECT_TRUE(context.Remember(before).ok());
    return kinds_.at(verb)->Recover(context);
  }
  const Json running_ = {{"image", ""}, {"paused", false}}, paused_ = {{"image", ""}, {"paused", true}};

  TempFolder folder_;
  std::string state_;
  JobRecord record_;
  std::vector<std::unique_ptr<FakeRank>> ranks_;
  std::vector<std::string> moved_to_;  // "job>node" of each call
  Operations::Kinds kinds_;
};

TEST_F(JobRecoveryTest, APauseThatCameToItsEndIsOne) {
  Stand({"held", "held", "held"});
  Json result = Recover("pause", v1::PauseRequest(), running_);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  ExpectAll("held");
}

TEST_F(JobRecoveryTest, APauseThatDidNotIsRolledBack) {
  Stand({"running", "running", "running"});
  Json result = Recover("pause", v1::PauseRequest(), running_);
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["left"], "rolled-back");
  EXPECT_EQ(VerbsOf(0), std::vector<std::string>());
}

TEST_F(JobRecoveryTest, RanksInDoubtAreLetGo) {
  Stand({"running", "drained", "drained"});
  Json result = Recover("checkpoint", v1::CheckpointRequest(), running_);
  EXPECT_EQ(result["left"], "rolled-back") << result.dump(2);
  ExpectAll("running");
  EXPECT_EQ(ranks_[1]->requests()[0]["in_doubt"], "go-on");
}

TEST_F(JobRecoveryTest, RanksThatWentOnToPausedRunAgain) {
  Stand({"held", "held", "drained"});
  Json result = Recover("checkpoint", v1::CheckpointRequest(), running_);
  EXPECT_EQ(result["left"], "rolled-back") << result.dump(2);
  ExpectAll("running");
}

TEST_F(JobRecoveryTest, ACheckpointWhoseImageIsThereHasSucceeded) {
  WriteImage("000001");
  Stand({"running", "running", "running"});
  Json result = Recover("checkpoint", v1::CheckpointRequest(), running_);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["image"], "000001");
  Json before = running_;
  before["image"] = "000001";
  EXPECT_EQ(Recover("checkpoint", v1::CheckpointRequest(), before)["ok"], false);
}

TEST_F(JobRecoveryTest, ACheckpointOfAPausedJobLeavesItPaused) {
  Stand({"held", "held", "held"});
  Json result = Recover("checkpoint", v1::CheckpointRequest(), paused_);
  EXPECT_EQ(result["left"], "rolled-back");
  ExpectAll("held");
}

TEST_F(JobRecoveryTest, WhatWasToStopStopsOnceItsImageIsThere) {
  WriteImage("000001");
  Stand({"absent", "held", "held"});
  v1::CheckpointRequest request;
  request.set_stop(true);
  Json result = Recover("checkpoint", request, running_);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(result["image"], "000001");
  EXPECT_EQ(result["stopped"], true);
  EXPECT_EQ(VerbsOf(0), std::vector<std::string>());
  EXPECT_EQ(VerbsOf(1), std::vector<std::string>{"cancel"});
}

TEST_F(JobRecoveryTest, AResumeIsCarriedOn) {
  Stand({"running", "held", "held"});
  Json result = Recover("resume", v1::ResumeRequest(), paused_);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  ExpectAll("running");
  EXPECT_EQ(Recover("resume", v1::ResumeRequest(), paused_)["ok"], true);
}

TEST_F(JobRecoveryTest, ARankThatHasEndedIsToldOf) {
  Stand({"absent", "held", "held"});
  Json result = Recover("pause", v1::PauseRequest(), running_);
  EXPECT_EQ(result["ok"], false);
  EXPECT_EQ(result["left"], "lost") << result.dump(2);
}

TEST_F(JobRecoveryTest, ACancelIsCarriedOn) {
  Stand({"absent", "running", "running"});
  Json result = Recover("cancel", v1::CancelRequest(), running_);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(VerbsOf(1), std::vector<std::string>{"cancel"});
}

TEST_F(JobRecoveryTest, WhatHadNotBegunIsCarriedOut) {
  Json result = Recover("pause", v1::PauseRequest(), Json::object());
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  ExpectAll("held");
}

// A job that has been handed over, and whose image is here.
class TakeBackTest : public JobRecoveryTest {
 protected:
  TakeBackTest() {
    Stand({"absent", "absent", "absent"});
    WriteImage("000001");
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(MakeFolders(FolderOf(rank)).ok());
      EXPECT_TRUE(MarkMoved(FolderOf(rank), "other").ok());
    }
    request_.set_job("job");
    request_.set_take_back(true);
  }
  std::string FolderOf(int rank) const { return state_ + "/tasks/" + record_.TaskOf(rank); }
  void ExpectMarks(const std::string& node) {
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(MovedTo(FolderOf(rank)), node);
  }

  v1::RestoreRequest request_;
};

TEST_F(TakeBackTest, OnlyWhereThatIsMeant) {
  request_.set_take_back(false);
  FakeContext refused("job", request_.SerializeAsString());
  Json result = kinds_.at("restore")->Carry(refused);
  EXPECT_EQ(result["code"], "FAILED_PRECONDITION") << result.dump(2);
  EXPECT_TRUE(moved_to_.empty());
  request_.set_take_back(true);
  FakeContext meant("job", request_.SerializeAsString());
  result = kinds_.at("restore")->Carry(meant);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  EXPECT_EQ(moved_to_, std::vector<std::string>{"job>"});
  ExpectMarks("");
}

TEST_F(TakeBackTest, WhoDecidesWhatBecomesOfAJob) {
  EXPECT_TRUE(kinds_.at("restore")->decides(request_.SerializeAsString()));
  request_.set_take_back(false);
  EXPECT_FALSE(kinds_.at("restore")->decides(request_.SerializeAsString()));
  EXPECT_FALSE(kinds_.at("restore")->decides("\xff\xff"));
  EXPECT_TRUE(kinds_.at("cancel")->decides(v1::CancelRequest().SerializeAsString()));
  for (const char* verb : {"pause", "resume", "checkpoint", "migrate", "remove", "run"})
    EXPECT_FALSE(kinds_.at(verb)->decides("")) << verb;
}

// Who has taken it back has it: a node that it had come from does not get it ended any more.
TEST_F(TakeBackTest, WhatHadComeIsThisNodesOwn) {
  ASSERT_TRUE(MarkCame(FolderOf(0), "token").ok());
  FakeContext context("job", request_.SerializeAsString());
  EXPECT_EQ(kinds_.at("restore")->Carry(context)["ok"], true);
  EXPECT_EQ(*CameBy(FolderOf(0)), "");
}

// What could not be brought back may still run where it is: nothing else may bring it back here.
TEST_F(TakeBackTest, WhatCannotBeBroughtBackIsHandedOverAsBefore) {
  for (auto& rank : ranks_) rank->SetFault({FakeFault::kFail, "join", StatusCode::kDriver, 100});
  request_.set_image("000009");
  FakeContext context("job", request_.SerializeAsString());
  const Json result = kinds_.at("restore")->Carry(context);
  EXPECT_EQ(result["ok"], false) << result.dump(2);
  EXPECT_EQ(moved_to_, (std::vector<std::string>{"job>", "job>other"}));
  ExpectMarks("other");
}

// By an agent that was killed before the marks were away, or when they were put back.
TEST_F(TakeBackTest, ItIsCarriedOn) {
  ASSERT_TRUE(UnmarkMoved(FolderOf(0)).ok());
  Json before = running_;
  before["image"] = "000001";
  before["moved"] = {
      {record_.TaskOf(0), "other"}, {record_.TaskOf(1), "other"}, {record_.TaskOf(2), "other"}};
  const Json result = Recover("restore", request_, before);
  EXPECT_EQ(result["ok"], true) << result.dump(2);
  ExpectMarks("");
}

// Of a task alone; there is no ghost, so that it cannot be brought back.
TEST_F(TakeBackTest, AlsoOfATaskWhoseAgentWasKilled) {
  const TaskPaths paths({folder_.File("state"), folder_.File("run")}, "alone");
  ASSERT_TRUE(MakeFolders(paths.folder).ok());
  ASSERT_TRUE(WriteJson(paths.File("task.json"), {{"version", 1}, {"name", "alone"}}).ok());
  ASSERT_TRUE(WriteJson(paths.File("status.json"), {{"state", "ended"}, {"ended_by", "import"}}).ok());
  ASSERT_TRUE(MarkMoved(paths.folder, "other").ok());
  request_.set_job("alone");
  for (const Json& before : {Json::object(), Json{{"moved", {{"alone", "other"}}}}}) {
    moved_to_.clear();
    FakeContext context("alone", request_.SerializeAsString());
    ASSERT_TRUE(context.Remember(before).ok());
    const Json result = kinds_.at("restore")->Recover(context);
    EXPECT_EQ(result["ok"], false);
    EXPECT_EQ(result.dump().find("handed over"), std::string::npos) << result.dump(2);
    EXPECT_EQ(moved_to_, (std::vector<std::string>{"alone>", "alone>other"}));
    EXPECT_EQ(MovedTo(paths.folder), "other");
  }
}

TEST_F(JobRecoveryTest, MigrationsToOtherNodesNeedWhatCarriesThemOut) {
  v1::MigrateRequest request;
  request.set_node("node:7443");
  Json result = Recover("migrate", request, running_);
  EXPECT_EQ(result["code"], "UNSUPPORTED");
}

TEST_F(JobRecoveryTest, ARequestThatCannotBeReadIsRefused) {
  for (const auto& [verb, kind] : kinds_) {
    FakeContext context("job", "\xff\xff");
    EXPECT_EQ(kind->Carry(context)["ok"], false) << verb;
  }
  FakeContext context("../job", v1::PauseRequest().SerializeAsString());
  EXPECT_EQ(kinds_.at("pause")->Carry(context)["code"], "INVALID_ARGUMENT");
  FakeContext none("nobody", v1::PauseRequest().SerializeAsString());
  EXPECT_EQ(kinds_.at("pause")->Carry(none)["code"], "NOT_FOUND");
}

}  // namespace
}  // namespace stasis

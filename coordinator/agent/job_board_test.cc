#include "coordinator/agent/job_board.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

namespace stasis {
namespace {

v1::Job Job(const std::string& name, v1::Condition condition = v1::CONDITION_RUNNING) {
  v1::Job job;
  job.set_name(name);
  job.set_condition(condition);
  job.set_live(condition == v1::CONDITION_RUNNING);
  job.set_text("as read");
  return job;
}

class JobBoardTest : public testing::Test {
 protected:
  std::unique_ptr<Registry::Subscription> Listen() {
    return board_.Subscribe([this](const JobPicture& job) { told_.push_back(job); });
  }

  int queued_ = 0;
  JobBoard board_{100, [this] { queued_++; }};
  std::vector<JobPicture> told_;
};

TEST_F(JobBoardTest, TellsChangesInOrderAndOnce) {
  auto subscription = Listen();
  board_.Put(Job("b"));
  board_.Put(Job("a"));
  board_.Put(Job("a"));
  EXPECT_EQ(queued_, 2) << "nothing of it has changed";
  EXPECT_TRUE(told_.empty()) << "not before Deliver()";
  board_.Deliver();
  board_.Deliver();
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[0]->name(), "b");
  EXPECT_EQ(told_[0]->revision(), 101u);
  EXPECT_EQ(told_[1]->revision(), 102u);
  EXPECT_EQ(board_.revision(), 102u);
  ASSERT_EQ(board_.List().size(), 2u);
  EXPECT_EQ(board_.List()[0]->name(), "a") << "by name";
  EXPECT_EQ(board_.Find("b")->revision(), 101u);
  EXPECT_EQ(board_.Find("c"), nullptr);
}

TEST_F(JobBoardTest, APictureThatSomebodyHoldsStaysAsItIs) {
  board_.Put(Job("a"));
  JobPicture before = board_.Find("a");
  board_.Put(Job("a", v1::CONDITION_PAUSED));
  EXPECT_EQ(before->condition(), v1::CONDITION_RUNNING);
  EXPECT_EQ(board_.Find("a")->condition(), v1::CONDITION_PAUSED);
}

TEST_F(JobBoardTest, TellsThatAJobIsGone) {
  auto subscription = Listen();
  board_.Put(Job("a"));
  board_.SetMovedTo("a", "node-2");
  board_.Remove("a");
  board_.Remove("never");
  board_.Deliver();
  ASSERT_EQ(told_.size(), 3u);
  EXPECT_TRUE(told_.back()->gone());
  EXPECT_EQ(told_.back()->revision(), 103u);
  EXPECT_EQ(board_.Find("a"), nullptr);
  board_.Put(Job("a"));
  EXPECT_EQ(board_.Find("a")->moved_to(), "") << "another job of that name";
  EXPECT_FALSE(board_.Find("a")->gone());
}

TEST_F(JobBoardTest, AddsTheOperationAlsoToAJobThatComesLater) {
  board_.SetOperation("a", "op-1");
  EXPECT_EQ(board_.Find("a"), nullptr);
  board_.Put(Job("a"));
  EXPECT_EQ(board_.Find("a")->operation(), "op-1");
  board_.Put(Job("a", v1::CONDITION_PAUSED));
  EXPECT_EQ(board_.Find("a")->operation(), "op-1");
  board_.SetOperation("a", "");
  EXPECT_EQ(board_.Find("a")->operation(), "");
  EXPECT_EQ(board_.revision(), 103u);
}

TEST_F(JobBoardTest, AJobThatWasMovedAndHasEndedHereIsMigrated) {
  board_.Put(Job("a"));
  board_.SetMovedTo("a", "node-2");
  EXPECT_EQ(board_.Find("a")->condition(), v1::CONDITION_RUNNING) << "it lives here still";
  board_.Put(Job("a", v1::CONDITION_KILLED));
  EXPECT_EQ(board_.Find("a")->condition(), v1::CONDITION_MIGRATED);
  EXPECT_EQ(board_.Find("a")->text(), "migrated to node-2");
  board_.SetMovedTo("a", "");
  EXPECT_EQ(board_.Find("a")->condition(), v1::CONDITION_KILLED);
  EXPECT_EQ(board_.Find("a")->text(), "as read");
}

TEST_F(JobBoardTest, ASubscriptionEndsAlsoFromItsOwnCallback) {
  auto first = Listen();
  std::unique_ptr<Registry::Subscription> second;
  int calls = 0;
  second = board_.Subscribe([&](const JobPicture&) {
    calls++;
    second.reset();
  });
  board_.Put(Job("a"));
  board_.Put(Job("b"));
  board_.Deliver();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(told_.size(), 2u);
  first.reset();
  board_.Put(Job("c"));
  board_.Deliver();
  EXPECT_EQ(told_.size(), 2u);
}

TEST_F(JobBoardTest, KeepsWhyAJobCannotBeReadUntilItCan) {
  board_.Put(Job("a"));
  board_.PutNote("a", "task.json is broken");
  EXPECT_EQ(board_.Notes(), std::vector<std::string>{"task.json is broken"});
  EXPECT_NE(board_.Find("a"), nullptr) << "as it was known last";
  board_.Put(Job("a"));
  EXPECT_TRUE(board_.Notes().empty());
}

}  // namespace
}  // namespace stasis

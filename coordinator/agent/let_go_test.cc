// What a target does with what its source has taken back, without a network and without ghosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "base/files.h"
#include "base/process.h"
#include "base/testing.h"
#include "coordinator/agent/incoming.h"
#include "coordinator/agent/migration_testing.h"
#include "coordinator/agent/outcome_memory.h"
#include "coordinator/agent/schema.h"
#include "coordinator/agent/testing.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

using testing::HasSubstr;

constexpr char kToken[] = "00112233445566778899aabbccddeeff";
constexpr char kAnother[] = "ffeeddccbbaa99887766554433221100";

// A job that has come by kToken and lives here, as this process does.
class LetGoTest : public testing::Test {
 protected:
  void SetUp() override {
    site_.folders = {folder_ / "state", folder_ / "run"};
    site_.files.ghost = "/nonexistent/stasis-ghost";
    ASSERT_OK(MakeFolders(folder()));
    Result<std::unique_ptr<Database>> database = Database::Open(folder_ / "state/agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    database_ = *std::move(database);
    ASSERT_OK(WriteJson(paths_.File("task.json"), {{"version", 1}, {"name", "train"}, {"created", 17}}));
    ASSERT_OK(WriteJson(paths_.File("status.json"), {{"state", "absent"}, {"last_operation", kToken}}));
    ASSERT_OK(MarkCame(folder(), kToken));
    Live();
    WriteRow(Taker::Record::kRuns);
    registry_.Put("train", v1::CONDITION_RUNNING);
    Begin();
  }
  // As an agent that is started.
  void Begin(Duration let_go = std::chrono::hours(1)) {
    incoming_.reset();
    const SetSchedule no_schedule = [](const std::string&, const v1::Schedule&) { return Status(); };
    const EndJob end = [this](const std::string& job) { return End(job); };
    Result<std::unique_ptr<Incoming>> incoming = Incoming::Start(
        site_, *database_, registry_, no_schedule, end, Clock::Real(), std::chrono::hours(1), let_go);
    ASSERT_OK(incoming.status());
    incoming_ = *std::move(incoming);
    peer_ = std::make_unique<DirectPeer>(*incoming_);
  }
  Status End(const std::string& job) {
    {
      std::lock_guard lock(mutex_);
      ends_.push_back(job);
      changed_.notify_all();
    }
    return on_end_ ? on_end_() : Die();
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ends_.empty(); });
  }
  size_t ends() {
    std::lock_guard lock(mutex_);
    return ends_.size();
  }
  void Live() {
    Result<ProcessIdentity> self = IdentifyProcess(getpid());
    ASSERT_OK(self.status());
    ASSERT_OK(WriteJson(
        paths_.File("process.json"),
        {{"init_pid", self->pid}, {"init_start_time", self->start_time}, {"boot_id", self->boot_id}}));
  }
  Status Die() {
    std::filesystem::remove(paths_.File("process.json"));
    return Status();
  }
  void WriteRow(Taker::Record record) {
    HandOverRow row;
    row.token = kToken;
    row.job = "train";
    row.tasks = {"train"};
    row.record = record;
    ASSERT_OK(HandOverTable(*database_).Write(row));
  }
  std::string folder() const { return paths_.folder; }
  Result<v1::Outcome> LetGo(const std::string& token = kToken, const std::string& from = "there") {
    v1::LetGoRequest request;
    request.set_token(token);
    request.set_from_node(from);
    return peer_->LetGo(request);
  }
  v1::OutcomeKind Ask(const std::string& token = kToken) {
    Result<v1::Outcome> outcome = peer_->AskOutcome(token, Duration::zero());
    return outcome.ok() ? outcome->kind() : v1::OUTCOME_KIND_UNSPECIFIED;
  }
  void ExpectLetGo() {
    Result<v1::Outcome> outcome = LetGo();
    ASSERT_OK(outcome.status());
    EXPECT_EQ(outcome->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
    EXPECT_EQ(Ask(), v1::OUTCOME_KIND_NOT_TAKEN);
  }
  void ExpectRefused(const std::string& why) {
    const Status told = LetGo().status();
    EXPECT_EQ(told.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(told.ToString(), HasSubstr(why));
    EXPECT_EQ(Ask(), v1::OUTCOME_KIND_RUNS);
  }

  TempFolder folder_;
  const TaskPaths paths_{{folder_ / "state", folder_ / "run"}, "train"};
  Site site_;
  FakeRegistry registry_;
  std::function<Status()> on_end_;  // instead of Die()
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> ends_;  // jobs that were to end
  std::unique_ptr<Database> database_;
  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<DirectPeer> peer_;
};

TEST_F(LetGoTest, WhatItsSourceHasTakenBackEnds) {
  EXPECT_EQ(Ask(), v1::OUTCOME_KIND_RUNS);
  EXPECT_EQ(incoming_->JobOnRecord(kToken), "train");
  on_end_ = [] { return Status(StatusCode::kUnavailable, "not yet"); };
  EXPECT_EQ(LetGo().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Ask(), v1::OUTCOME_KIND_RUNS);
  on_end_ = nullptr;
  Begin();  // also by the next agent
  ExpectLetGo();
  EXPECT_EQ(ends_, (std::vector<std::string>{"train", "train"}));
  // Nor does anything bring it back here.
  EXPECT_EQ(MovedTo(folder()), "there");
  EXPECT_EQ(registry_.Find("train")->moved_to(), "there");
  ExpectLetGo();
  EXPECT_EQ(ends(), 2u);
}

// An operation restores it, which ends or is given up before the end that was asked for.
TEST_F(LetGoTest, WhatDoesNotLiveYetEndsToo) {
  ASSERT_OK(Die());
  on_end_ = [this] {
    Live();
    return Status();
  };
  EXPECT_EQ(LetGo().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Ask(), v1::OUTCOME_KIND_RUNS);
  on_end_ = nullptr;
  ExpectLetGo();
  EXPECT_EQ(ends(), 2u);
}

TEST_F(LetGoTest, WhatMovesOnMeanwhileIsTold) {
  on_end_ = [this] {
    RETURN_IF_ERROR(MarkMoved(folder(), "elsewhere"));
    return Die();
  };
  ExpectRefused("elsewhere");
  EXPECT_EQ(MovedTo(folder()), "elsewhere");
}

// A migration that fails takes its mark away.
TEST_F(LetGoTest, WhatDoesNotMoveOnAfterAllIsMarkedAgain) {
  ASSERT_OK(MarkMoved(folder(), "elsewhere"));
  on_end_ = [this] {
    RETURN_IF_ERROR(UnmarkMoved(folder()));
    return Die();
  };
  ExpectLetGo();
  EXPECT_EQ(MovedTo(folder()), "there");
  EXPECT_EQ(registry_.Find("train")->moved_to(), "there");
}

TEST_F(LetGoTest, WhatHasMovedOnIsTold) {
  ASSERT_OK(Die());
  ASSERT_OK(MarkMoved(folder(), "elsewhere"));
  ExpectRefused("elsewhere");
  ASSERT_OK(WriteFileAtomically(folder() + "/moved.json", "{"));
  ExpectRefused("(unknown)");
}

// As by a scheduler that has brought it back here, or when it was begun anew.
TEST_F(LetGoTest, ALifeWithoutATokenIsLeftAlone) {
  ASSERT_OK(UnmarkCame(folder()));
  ExpectLetGo();
  EXPECT_EQ(MovedTo(folder()), "");
  EXPECT_EQ(ends(), 0u);
}

TEST_F(LetGoTest, WhatIsTakenBackHereMeanwhileIsLeftAlone) {
  on_end_ = [this] { return UnmarkCame(folder()).ok() ? UnmarkMoved(folder()) : Die(); };
  ExpectLetGo();
  EXPECT_EQ(MovedTo(folder()), "");
}

// It has moved on, and come back, or was handed over anew.
TEST_F(LetGoTest, ALifeByAnotherTokenIsTold) {
  ASSERT_OK(MarkCame(folder(), kAnother));
  ExpectRefused("another hand-over");
  EXPECT_EQ(MovedTo(folder()), "");
  EXPECT_EQ(ends(), 0u);
  ASSERT_OK(Die());
  ExpectLetGo();
  EXPECT_EQ(MovedTo(folder()), "");
}

TEST_F(LetGoTest, WhatIsOnItsWayByAnotherTokenIsAwaited) {
  ASSERT_OK(
      incoming_->Accept({kAnother, "train", false, {"train"}, Taker::Record::kNone, {}}, {}, {}, "another"));
  EXPECT_EQ(LetGo()->kind(), v1::OUTCOME_KIND_UNDECIDED);
  EXPECT_EQ(ends(), 0u);
  EXPECT_EQ(Ask(kAnother), v1::OUTCOME_KIND_NOT_TAKEN);
  ExpectLetGo();
}

TEST_F(LetGoTest, WhatCannotBeToldWhoseItIsIsNotSaidToHaveEnded) {
  ASSERT_OK(WriteFileAtomically(folder() + "/came.json", "{"));
  EXPECT_EQ(LetGo().status().code(), StatusCode::kCorrupt);
}

TEST_F(LetGoTest, AnOfferIsVoidOnceItsSourceHasTakenItBack) {
  ASSERT_OK(incoming_->Accept({kAnother, "other", false, {"other"}, Taker::Record::kNone, {}}, {}, {}));
  EXPECT_EQ(LetGo(kAnother)->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  v1::HandOverRequest request;
  request.set_token(kAnother);
  EXPECT_EQ(incoming_->HandOver(request)->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

TEST_F(LetGoTest, OnlyTokensAndNamesOfNodesAreTaken) {
  EXPECT_EQ(LetGo(std::string(32, '0'))->kind(), v1::OUTCOME_KIND_NOT_TAKEN) << "nobody knows it";
  for (const std::string& token : {std::string(), std::string(31, '0'), std::string(33, '0'),
                                   std::string(32, 'A'), std::string("0011223344556677\n899aabbccddeeff")})
    EXPECT_EQ(LetGo(token).status().code(), StatusCode::kInvalidArgument) << token;
  for (const std::string& node :
       {std::string(), std::string("a b"), std::string("a\n"), std::string("a\0", 2), std::string(254, 'n')})
    EXPECT_EQ(LetGo(kToken, node).status().code(), StatusCode::kInvalidArgument) << node;
  EXPECT_EQ(MovedTo(folder()), "");
  EXPECT_EQ(ends(), 0u);
  EXPECT_EQ(LetGo(kToken, std::string(253, 'n'))->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
}

// Each call that waits holds a thread that others need.
TEST_F(LetGoTest, OneCallWaitsForTheEndAndNotForLong) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  on_end_ = [&] {
    released.wait();
    return Die();
  };
  Result<v1::Outcome> first = v1::Outcome();
  std::thread waits([&] { first = LetGo(); });
  AwaitEnd();
  EXPECT_EQ(LetGo()->kind(), v1::OUTCOME_KIND_UNDECIDED);
  release.set_value();
  waits.join();
  ASSERT_OK(first.status());
  EXPECT_EQ(first->kind(), v1::OUTCOME_KIND_NOT_TAKEN);
  EXPECT_EQ(ends(), 1u);
}

TEST_F(LetGoTest, AnEndThatTakesLongGoesOn) {
  Begin(/*let_go=*/std::chrono::milliseconds(1));
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  on_end_ = [&] {
    released.wait();
    return Die();
  };
  EXPECT_EQ(LetGo()->kind(), v1::OUTCOME_KIND_UNDECIDED);
  EXPECT_EQ(LetGo()->kind(), v1::OUTCOME_KIND_UNDECIDED);
  v1::SettleRequest settle;
  settle.set_token(kToken);
  EXPECT_EQ(incoming_->Settle(settle).code(), StatusCode::kFailedPrecondition) << "it is not decided yet";
  release.set_value();
  while (Ask() != v1::OUTCOME_KIND_NOT_TAKEN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ends(), 1u);
  EXPECT_EQ(MovedTo(folder()), "there");
}

// As on a disk with an error: an agent that ends does not wait for it.
TEST_F(LetGoTest, WhatCannotBeLookedAtIsLeftToTheNextAgent) {
  WriteRow(Taker::Record::kMine);
  ASSERT_OK(Die());
  ASSERT_OK(WriteJson(paths_.File("exit.json"), {{"version", 1}, {"exit_code", 0}}));
  std::filesystem::remove(paths_.File("status.json"));
  std::filesystem::create_directory(paths_.File("status.json"));
  Begin();
  EXPECT_EQ(LetGo()->kind(), v1::OUTCOME_KIND_UNDECIDED);
  incoming_.reset();
  EXPECT_EQ(HandOverTable(*database_).Find(kToken)->record, Taker::Record::kMine);
  std::filesystem::remove(paths_.File("status.json"));
  ASSERT_OK(WriteJson(paths_.File("status.json"), {{"state", "ended"}, {"error", ""}}));
  Begin();
  incoming_->AwaitProbes();
  EXPECT_EQ(Ask(), v1::OUTCOME_KIND_RUNS);
}

TEST(OutcomeMemory, WhatIsToldAgainIsNoNews) {
  OutcomeMemory memory;
  EXPECT_TRUE(memory.IsNews("a", "refused"));
  EXPECT_FALSE(memory.IsNews("a", "refused"));
  EXPECT_TRUE(memory.IsNews("b", "refused"));
  EXPECT_TRUE(memory.IsNews("a", "done"));
  EXPECT_FALSE(memory.IsNews("a", "done"));
  EXPECT_FALSE(memory.IsNews("b", "refused"));
}

}  // namespace
}  // namespace stasis

#include "coordinator/agent/reclaims.h"

#include <gtest/gtest.h>

#include <map>

#include "base/testing.h"
#include "coordinator/agent/schema.h"

namespace stasis {
namespace {

// What some nodes answer.
class Nodes {
 public:
  void Set(const std::string& address, Result<v1::OutcomeKind> answer) {
    std::lock_guard lock(mutex_);
    answers_.insert_or_assign(address, std::move(answer));
  }
  // Returns once it was said by that many calls.
  void Await(const std::string& said, int calls) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return said_[said] >= calls; });
  }
  int Said(const std::string& said) {
    std::lock_guard lock(mutex_);
    return said_[said];
  }
  Result<v1::OutcomeKind> Say(const std::string& address, const std::string& what) {
    std::lock_guard lock(mutex_);
    ++said_[address + " " + what];
    changed_.notify_all();
    const auto found = answers_.find(address);
    if (found == answers_.end()) return Status(StatusCode::kUnavailable, "no route");
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Result<v1::OutcomeKind>> answers_;  // by address
  std::map<std::string, int> said_;
};

class Link final : public PeerLink {
 public:
  Link(Nodes& nodes, std::string address) : nodes_(nodes), address_(std::move(address)) {}
  Result<v1::Outcome> LetGo(const v1::LetGoRequest& request) override {
    ASSIGN_OR_RETURN(const v1::OutcomeKind kind,
                     nodes_.Say(address_, request.token() + " from " + request.from_node()));
    v1::Outcome outcome;
    outcome.set_kind(kind);
    return outcome;
  }
  Status Settle(const std::string& token) override {
    return nodes_.Say(address_, token + " settled").status();
  }

  Result<v1::HelloReply> Hello(const v1::HelloRequest&) override { return Unused(); }
  Result<v1::OfferReply> Offer(const v1::OfferRequest&) override { return Unused(); }
  Result<std::vector<bool>> Missing(const std::string&, std::span<const Hash128>) override {
    return Unused();
  }
  Status StillAtIt(const std::string&) override { return Unused(); }
  Status Put(const std::string&, std::string) override { return Unused(); }
  Status PutManifest(const std::string&, uint32_t, std::span<const std::byte>) override { return Unused(); }
  Result<v1::Outcome> HandOver(const v1::HandOverRequest&, Duration) override { return Unused(); }
  Result<v1::Outcome> AskOutcome(const std::string&, Duration) override { return Unused(); }
  Result<v1::KeepReply> Keep(const v1::KeepRequest&, Duration) override { return Unused(); }

 private:
  static Status Unused() { return Status(StatusCode::kInternal, "not asked for"); }
  Nodes& nodes_;
  const std::string address_;
};

class ReclaimsTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<Database>> database = Database::Open(folder_ / "agent.db", SchemaSteps());
    ASSERT_OK(database.status());
    database_ = *std::move(database);
    Begin();
  }
  void Begin(Duration refused_wait = std::chrono::hours(1)) {
    reclaims_.reset();
    reclaims_ = std::make_unique<Reclaims>(
        *database_,
        [this](const std::string& address) -> Result<std::unique_ptr<PeerLink>> {
          return std::unique_ptr<PeerLink>(new Link(nodes_, address));
        },
        "here", std::chrono::milliseconds(5), refused_wait);
  }
  size_t Owed() { return ReclaimTable(*database_).All()->size(); }

  TempFolder folder_;
  Nodes nodes_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Reclaims> reclaims_;
};

TEST_F(ReclaimsTest, ANodeIsToldUntilItHasLetGo) {
  ASSERT_OK(reclaims_->Add({"t", "train", "a:1", "a"}));
  nodes_.Await("a:1 t from here", 3);
  nodes_.Set("a:1", v1::OUTCOME_KIND_UNDECIDED);
  nodes_.Await("a:1 t from here", nodes_.Said("a:1 t from here") + 3);
  nodes_.Set("a:1", v1::OUTCOME_KIND_RUNS);
  nodes_.Await("a:1 t from here", nodes_.Said("a:1 t from here") + 3);
  EXPECT_EQ(Owed(), 1u);
  EXPECT_EQ(nodes_.Said("a:1 t settled"), 0);
  nodes_.Set("a:1", v1::OUTCOME_KIND_NOT_TAKEN);
  nodes_.Await("a:1 t settled", 1);
  Begin();  // the thread before has ended
  EXPECT_EQ(Owed(), 0u);
}

TEST_F(ReclaimsTest, SoItIsByTheNextAgent) {
  ASSERT_OK(reclaims_->Add({"t", "train", "a:1", "a"}));
  nodes_.Await("a:1 t from here", 1);
  reclaims_.reset();
  EXPECT_EQ(Owed(), 1u);
  nodes_.Set("a:1", v1::OUTCOME_KIND_NOT_TAKEN);
  Begin();
  nodes_.Await("a:1 t settled", 1);
}

// One that is gone for good keeps nobody from being told.
TEST_F(ReclaimsTest, ANodeThatIsSilentDoesNotHoldUpOthers) {
  nodes_.Set("b:1", v1::OUTCOME_KIND_NOT_TAKEN);
  ASSERT_OK(reclaims_->Add({"t", "train", "a:1", "a"}));
  nodes_.Await("a:1 t from here", 2);
  ASSERT_OK(reclaims_->Add({"u", "other", "b:1", "b"}));
  nodes_.Await("b:1 u settled", 1);
  nodes_.Await("a:1 t from here", nodes_.Said("a:1 t from here") + 2);
  EXPECT_EQ(nodes_.Said("b:1 u from here"), 1);
}

// As of a job that has moved on from there; what is only not decided yet is asked for all the while.
TEST_F(ReclaimsTest, WhatIsRefusedForGoodIsToldSeldom) {
  nodes_.Set("a:1", Status(StatusCode::kFailedPrecondition, "train has moved on to node c"));
  nodes_.Set("b:1", v1::OUTCOME_KIND_UNDECIDED);
  ASSERT_OK(reclaims_->Add({"t", "train", "a:1", "a"}));
  nodes_.Await("a:1 t from here", 1);
  ASSERT_OK(reclaims_->Add({"u", "other", "b:1", "b"}));
  nodes_.Await("b:1 u from here", 20);
  EXPECT_EQ(nodes_.Said("a:1 t from here"), 1);
  EXPECT_EQ(Owed(), 2u);
  Begin(std::chrono::milliseconds(5));
  nodes_.Await("a:1 t from here", 4);
  nodes_.Set("a:1", v1::OUTCOME_KIND_NOT_TAKEN);
  nodes_.Await("a:1 t settled", 1);
}

}  // namespace
}  // namespace stasis

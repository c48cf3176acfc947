// Kinds of faults that others have reported of schedulers that preempt; docs/reported-faults.md has the
// table.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "scheduler/live/testing.h"
#include "scheduler/plan.h"
#include "scheduler/policy.h"

namespace stasis::scheduler {
namespace {

Settings TwoNodes() {
  Settings settings;
  settings.shape = {2, 4, 2};
  settings.tenants = {{"a", 1}, {"b", 2}};
  settings.lease = 60 * kSecond;
  return settings;
}

JobSpec Spec(TenantId tenant, int gpus, Time duration) {
  JobSpec spec;
  spec.tenant = tenant;
  spec.gpus = gpus;
  spec.duration = duration;
  return spec;
}

TEST(PausedTimeTest, IsNoRunTimeForAnybodyWhoCounts) {
  State state(TwoNodes());
  const JobId id = *state.Submit(Spec(0, 2, 90 * kSecond));
  const Placement place = {{0, 3}};
  state.Apply({ActionKind::kStart, id, place}, 0);
  state.AdvanceTo(30 * kSecond);
  state.Apply({ActionKind::kPause, id, {}}, 0);
  const double held = state.ledger().Utilized(0, state.now());
  state.AdvanceTo(150 * kSecond);
  EXPECT_EQ(state.ProgressOf(state.job(id)), 30 * kSecond) << "it has made progress while it stood still";
  EXPECT_EQ(state.ledger().Utilized(0, state.now()), held)
      << "it is charged for devices that it does not have";
  EXPECT_EQ(state.ledger().held(0), 0);
  state.Apply({ActionKind::kResume, id, place}, 0);
  // A lease is of running time, too: a new one begins.
  EXPECT_EQ(state.NextLeaseEnd(state.job(id)), 210 * kSecond);
  EXPECT_FALSE(state.LeaseEndedSince(state.job(id), 0));
  state.AdvanceTo(210 * kSecond);
  EXPECT_EQ(state.ProgressOf(state.job(id)), 90 * kSecond);
  EXPECT_EQ(state.ledger().JobUtilized(state.job(id).account, state.now()), 2.0 * 90 * kSecond);
}

// A cluster full of jobs that never end, with random tenants, sizes, classes and moments.
class Crowd {
 public:
  Crowd(std::string_view policy, unsigned seed)
      : policy_(std::move(*MakePolicy(policy))), state_(TwoNodes()), random_(seed) {}

  void Run() {
    for (int turn = 0; turn < 60 && !::testing::Test::HasFailure(); ++turn) {
      for (unsigned i = random_() % 3; i > 0; --i) {
        JobSpec spec = Spec(random_() % 2, 1 << random_() % 4, 1'000'000 * kSecond);
        spec.priority = random_() % 5 == 0 ? 1 : 0;
        spec.submit = state_.now();
        ASSERT_TRUE(state_.Submit(spec).ok());
      }
      if (!state_.running().empty() && random_() % 4 == 0)
        state_.Finish(state_.running()[random_() % state_.running().size()]);
      SettleNow();
      state_.AdvanceTo(state_.now() + static_cast<Time>(random_() % 40) * kSecond);
    }
  }

 private:
  // Decides until nothing is left to do at this moment.
  void SettleNow() {
    std::map<JobId, int> preempted;
    for (int round = 0;; ++round) {
      ASSERT_LT(round, 20) << policy_->name() << " never comes to rest";
      const Decision decision = policy_->Decide(state_, last_);
      last_ = state_.now();
      if (decision.actions.empty()) return;
      std::vector<Job> victims;
      int highest = -1;  // class of those that come
      for (const Action& action : decision.actions) {
        const Job& job = state_.job(action.job);
        if (action.kind == ActionKind::kPause) {
          // What a lower class was given back for lack of others may be wanted by a higher one after all.
          EXPECT_LE(++preempted[action.job], 2) << policy_->name() << " goes round in a circle";
          victims.push_back(job);
        } else if (action.kind == ActionKind::kStart || action.kind == ActionKind::kResume) {
          highest = std::max(highest, job.spec.priority);
        }
        state_.Apply(action, 0);
      }
      if (policy_->name() == "astraea") CheckLegal(victims, highest);
    }
  }

  // By the shares that there are when all of it is done: whose lease was cut had what was lent, or made room
  // for a higher class.
  void CheckLegal(const std::vector<Job>& victims, int highest) {
    for (const Job& victim : victims) {
      if (victim.lease_end <= state_.now() || victim.spec.priority < highest) continue;
      const TenantId tenant = victim.spec.tenant;
      const double before = state_.ledger().held(tenant) + victim.gpus;
      EXPECT_GT(before, state_.ledger().quota(tenant)) << "a job within its tenant's quota was preempted";
    }
  }

  const std::unique_ptr<Policy> policy_;
  State state_;
  std::mt19937 random_;
  Time last_ = -1;
};

class PreemptionTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(PreemptionTest, ComesToRestAtEveryMoment) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Crowd(GetParam(), seed).Run();
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PreemptionTest, ::testing::ValuesIn(PolicyNames()),
                         [](const auto& info) { return std::string(info.param); });

TEST(RetentionTest, WhatIsPausedHasNotEndedHoweverLongItIs) {
  Keeper keeper("astraea");
  keeper.Happens(0, TenantSet{"a", 1});
  keeper.Happens(0, NodeJoined{"n", "here", 2, "", ""});
  keeper.Happens(0, JobSubmitted{Request("low", "a", 2)});
  keeper.Decide(0);
  auto carry_out = [&](Time now) {
    for (std::vector<Order> ready = keeper.cluster().Ready(); !ready.empty();
         ready = keeper.cluster().Ready())
      for (const Order& order : ready) keeper.Happens(now, OrderEnded{order.number, true, ""});
  };
  carry_out(0);
  keeper.Happens(kSecond, JobSubmitted{Request("high", "a", 2, 3)});
  keeper.Decide(kSecond);
  carry_out(kSecond);
  ASSERT_EQ(keeper.cluster().Find("low")->where, Cluster::Where::kPaused);
  const Time year = Time{365} * 24 * 3600 * kSecond;
  keeper.Happens(year, JobsForgotten{year});
  keeper.Compact();
  keeper.Decide(year);
  ASSERT_NE(keeper.cluster().Find("low"), nullptr) << "a paused job was cleaned up";
  keeper.Happens(year, JobEnded{"high", true, 0, ""});
  keeper.Decide(year);
  carry_out(year);
  EXPECT_EQ(keeper.cluster().Find("low")->where, Cluster::Where::kRunning);
  keeper.Happens(year, JobsForgotten{year + kSecond});
  EXPECT_EQ(keeper.cluster().Find("high"), nullptr) << "what has ended is kept for ever";
}

}  // namespace
}  // namespace stasis::scheduler

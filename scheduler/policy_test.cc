// What every policy must keep to, on small clusters with random jobs; and what each is for.
#include "scheduler/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/plan.h"

namespace stasis::scheduler {
namespace {

constexpr Time kLease = 900 * kSecond;

Settings SmallCluster() {
  Settings settings;
  settings.shape = {4, 4, 2};
  settings.tenants = {{"a", 1}, {"b", 1}, {"c", 2}};
  settings.lease = kLease;
  settings.device_bytes = 1500;
  return settings;
}

struct Observed {
  Time at;
  Action action;
  bool lease_cut;
  bool operator==(const Observed& other) const {
    return at == other.at && action.kind == other.action.kind && action.job == other.action.job;
  }
};

// Drives one policy over random jobs to the end, and looks at every action.
class Drive {
 public:
  Drive(std::string_view name, unsigned seed, int classes = 1)
      : policy_(std::move(*MakePolicy(name))), state_(SmallCluster()), random_(seed), classes_(classes) {}

  std::vector<Observed> Run(size_t jobs) {
    while (finished_ < jobs) {
      const Time next = Next(jobs);
      if (next == kNever) {
        ADD_FAILURE() << policy_->name() << " leaves jobs waiting for ever";
        return seen_;
      }
      state_.AdvanceTo(next);
      FinishDue();
      if (submitted_ < jobs && next >= next_submit_) Submit();
      Decide();
      CheckBooks();
      if (::testing::Test::HasFailure()) return seen_;
    }
    return seen_;
  }
  const State& state() const { return state_; }

 private:
  Time Next(size_t jobs) const {
    Time next = submitted_ < jobs ? next_submit_ : kNever;
    for (const JobId id : state_.running()) next = std::min(next, EndOf(id));
    return std::min(next, wake_);
  }
  Time EndOf(JobId id) const {
    const Job& job = state_.job(id);
    const double left = static_cast<double>(job.spec.duration - job.progress) / job.rate;
    return job.progress_at + static_cast<Time>(std::ceil(left));
  }

  void FinishDue() {
    const std::vector<JobId> running = state_.running();
    for (const JobId id : running) {
      if (EndOf(id) > state_.now()) continue;
      state_.Finish(id);
      ++finished_;
    }
  }

  void Submit() {
    JobSpec spec;
    spec.name = std::to_string(submitted_);
    spec.tenant = random_() % 3;
    spec.gpus = 1 << random_() % 5;  // up to the whole cluster
    spec.duration = (1 + static_cast<Time>(random_() % 4000)) * kSecond;
    spec.submit = state_.now();
    spec.priority = static_cast<int>(random_() % static_cast<unsigned>(classes_));
    spec.active_bytes_per_gpu = static_cast<int64_t>(random_() % 1000);
    spec.utilization = 0.2 + static_cast<double>(random_() % 80) / 100;
    if (random_() % 3 == 0) {
      spec.min_gpus = std::max(1, spec.gpus / 2);
      spec.max_gpus = std::min(16, 2 * spec.gpus);
    }
    // Up to a node's devices on one node, more on as many nodes as that takes, or wherever they are free.
    if (random_() % 2 == 0) spec.max_nodes = (spec.gpus + 3) / 4;
    ASSERT_TRUE(state_.Submit(spec).ok());
    ++submitted_;
    next_submit_ = state_.now() + static_cast<Time>(random_() % 900) * kSecond;
  }

  void Decide() {
    const Decision decision = policy_->Decide(state_, last_);
    for (const Action& action : decision.actions) {
      const Job& job = state_.job(action.job);
      const bool cut = action.kind == ActionKind::kPause && !job.guest && !state_.LeaseEndedSince(job, last_);
      seen_.push_back({state_.now(), action, cut});
      if (action.kind != ActionKind::kPause && job.spec.max_gpus != 0) {
        EXPECT_GE(CountDevices(action.to), job.spec.min_gpus);
        EXPECT_LE(CountDevices(action.to), job.spec.max_gpus);
      } else if (action.kind != ActionKind::kPause) {
        EXPECT_EQ(CountDevices(action.to), job.spec.gpus) << "a gang is split";
      }
      if (action.kind != ActionKind::kPause && job.spec.max_nodes != 0) {
        EXPECT_LE(action.to.size(), static_cast<size_t>(job.spec.max_nodes));
      }
      state_.Apply(action, 0);  // checks that every device was free and every phase fits
      if (action.kind == ActionKind::kPack) Measure(action);
    }
    EXPECT_GT(decision.wake, state_.now());
    wake_ = decision.wake;
    last_ = state_.now();
  }

  // What the two get done side by side.
  void Measure(const Action& action) {
    EXPECT_LE(
        state_.job(action.job).spec.active_bytes_per_gpu + state_.job(action.with).spec.active_bytes_per_gpu,
        state_.settings().device_bytes);
    const double rate = 0.3 + static_cast<double>(random_() % 60) / 100;
    for (const JobId id : {action.job, action.with}) state_.SetRate(id, rate);
    const bool known = Contains(state_.job(action.job).tried, action.with);
    EXPECT_FALSE(known) << "two that were parted share again";
  }

  void CheckBooks() {
    std::map<NodeId, DeviceMask> held;
    std::vector<double> by_tenant(3);
    for (const JobId id : state_.running()) {
      const Job& job = state_.job(id);
      by_tenant[job.spec.tenant] += job.packed_with != kNoJob ? job.gpus / 2.0 : job.gpus;
      if (job.packed_with != kNoJob) {
        EXPECT_EQ(state_.job(job.packed_with).packed_with, id);
        EXPECT_NE(state_.job(job.packed_with).guest, job.guest);
      }
      if (job.guest) continue;
      for (const NodeShare& share : state_.job(id).placement) {
        EXPECT_EQ(held[share.node] & share.devices, 0u) << "a device twice";
        held[share.node] |= share.devices;
      }
    }
    for (NodeId node = 0; node < 4; ++node) EXPECT_EQ(held[node] ^ state_.devices().free_on(node), 15u);
    for (TenantId tenant = 0; tenant < 3; ++tenant)
      EXPECT_EQ(state_.ledger().held(tenant), by_tenant[tenant]);
  }

  const std::unique_ptr<Policy> policy_;
  State state_;
  std::mt19937 random_;
  const int classes_;
  size_t submitted_ = 0, finished_ = 0;
  Time next_submit_ = 0, wake_ = kNever, last_ = -1;
  std::vector<Observed> seen_;
};

class EveryPolicyTest : public ::testing::TestWithParam<std::string_view> {};

TEST_P(EveryPolicyTest, KeepsTheBooksAndFinishesEveryJob) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    Drive drive(GetParam(), seed);
    drive.Run(120);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(EveryPolicyTest, DecidesTheSameTwice) {
  EXPECT_EQ(Drive(GetParam(), 5, 2).Run(150), Drive(GetParam(), 5, 2).Run(150));
}

INSTANTIATE_TEST_SUITE_P(All, EveryPolicyTest, ::testing::ValuesIn(PolicyNames()),
                         [](const auto& info) { return std::string(info.param); });

// ---- Leases

TEST(LeaseTest, OnlyLentDevicesAreTakenBackWithinALease) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    for (const Observed& observed : Drive("las", seed).Run(120)) ASSERT_FALSE(observed.lease_cut);
    for (const Observed& observed : Drive("themis", seed).Run(120)) ASSERT_FALSE(observed.lease_cut);
    for (const Observed& observed : Drive("gandiva", seed).Run(120)) ASSERT_FALSE(observed.lease_cut);
  }
}

class TwoTenants : public ::testing::Test {
 protected:
  TwoTenants() : state_(MakeSettings()), policy_(std::move(*MakePolicy("astraea"))) {}
  static Settings MakeSettings() {
    Settings settings;
    settings.shape = {2, 4, 2};
    settings.tenants = {{"a", 1}, {"b", 1}};
    settings.lease = kLease;
    return settings;
  }
  JobId Submit(TenantId tenant, int gpus, int priority = 0) {
    JobSpec spec;
    spec.tenant = tenant;
    spec.gpus = gpus;
    spec.duration = 100000 * kSecond;
    spec.submit = state_.now();
    spec.priority = priority;
    return *state_.Submit(spec);
  }
  // Decides and carries it out.
  Decision Decide() {
    Decision decision = policy_->Decide(state_, last_);
    for (const Action& action : decision.actions) state_.Apply(action, 0);
    last_ = state_.now();
    return decision;
  }
  void At(double seconds) { state_.AdvanceTo(static_cast<Time>(seconds * kSecond)); }
  bool Runs(JobId id) const { return state_.job(id).phase == JobPhase::kRunning; }

  State state_;
  const std::unique_ptr<Policy> policy_;
  Time last_ = -1;
};

TEST_F(TwoTenants, IdleDevicesAreLentAndComeBackToTheirOwnerAtOnce) {
  const JobId first = Submit(0, 4), lent = Submit(0, 4);
  Decide();
  EXPECT_TRUE(Runs(first) && Runs(lent));
  At(10);
  const JobId owners = Submit(1, 4);
  Decide();
  EXPECT_TRUE(Runs(owners));
  EXPECT_NE(Runs(first), Runs(lent)) << "a tenant keeps its quota, and no more";
}

TEST_F(TwoTenants, WhatATenantHoldsWithinItsQuotaIsItsOwnForALease) {
  const JobId running = Submit(0, 4), other = Submit(1, 4);
  Decide();
  At(10);
  const JobId late = Submit(0, 4);
  Decision decision = Decide();
  EXPECT_TRUE(Runs(running) && Runs(other) && !Runs(late));
  EXPECT_EQ(decision.wake, kLease);
  At(900);
  Decide();
  EXPECT_TRUE(Runs(late) && Runs(other) && !Runs(running))
      << "whose lease has ended and who has had more yields";
}

TEST_F(TwoTenants, AStarvingGangGathersDevices) {
  std::vector<JobId> small;
  for (int i = 0; i < 8; ++i) small.push_back(Submit(static_cast<TenantId>(i % 2), 1));
  Decide();
  At(1);
  const JobId gang = Submit(0, 8);
  for (double now = 1; now < 40 * 900 && !Runs(gang); now += 900) {
    At(now);
    Submit(1, 1);
    Decide();
  }
  EXPECT_TRUE(Runs(gang));
  EXPECT_LE(state_.job(gang).first_start, state_.settings().starvation + 2 * kLease + kSecond);
}

TEST_F(TwoTenants, ALeaseThatEndsUnwantedGoesOnWithoutAGap) {
  const JobId running = Submit(0, 4), other = Submit(1, 4);
  Decide();
  At(2000);  // two leases have ended, and nobody wanted the devices
  const JobId late = Submit(0, 4);
  EXPECT_EQ(Decide().wake, 3 * kLease);
  EXPECT_TRUE(Runs(running) && Runs(other) && !Runs(late));
}

TEST_F(TwoTenants, AHigherClassCutsTheLeaseOfALowerOneAndOfNobodyElse) {
  const JobId low = Submit(0, 4), high = Submit(1, 4, 1);
  Decide();
  At(10);
  const JobId same = Submit(1, 2, 0), higher = Submit(0, 2, 1);
  Decide();
  EXPECT_TRUE(Runs(high) && Runs(higher) && !Runs(low));
  Decide();
  EXPECT_TRUE(Runs(same)) << "in the room that was left";
  At(20);
  const JobId highest = Submit(0, 4, 2);
  Decide();
  EXPECT_TRUE(Runs(highest) && Runs(high)) << "the lowest class first, then who has begun last";
  EXPECT_FALSE(Runs(higher) || Runs(same));
}

TEST_F(TwoTenants, WhatWasLentToAHigherClassIsNotTakenBackByALowerOne) {
  const JobId first = Submit(0, 4, 1), lent = Submit(0, 4, 1);
  Decide();
  At(10);
  const JobId owners = Submit(1, 4, 0);
  Decide();
  EXPECT_TRUE(Runs(first) && Runs(lent) && !Runs(owners));
}

TEST(FifoTest, AJobThatDoesNotFitBlocksThoseBehindIt) {
  Settings settings;
  settings.shape = {1, 8, 1};
  settings.tenants = {{"a", 1}, {"b", 1}};
  State state(settings);
  auto submit = [&state](TenantId tenant, int gpus) {
    JobSpec spec;
    spec.tenant = tenant;
    spec.gpus = gpus;
    spec.duration = kSecond;
    return *state.Submit(spec);
  };
  const JobId first = submit(0, 3), big = submit(0, 2), behind = submit(0, 1), other = submit(1, 4);
  const Decision decision = (*MakePolicy("fifo"))->Decide(state, -1);
  std::set<JobId> started;
  for (const Action& action : decision.actions) started.insert(action.job);
  EXPECT_EQ(started, (std::set<JobId>{first, other}));
  EXPECT_EQ(state.job(big).phase, JobPhase::kPending);
  EXPECT_EQ(state.job(behind).phase, JobPhase::kPending);
}

TEST(GandivaTest, AScatteredGangIsBroughtTogetherWhenThereIsRoom) {
  Settings settings;
  settings.shape = {2, 4, 2};
  settings.tenants = {{"a", 1}};
  State state(settings);
  auto submit = [&state](int gpus) {
    JobSpec spec;
    spec.gpus = gpus;
    spec.duration = 1000 * kSecond;
    return *state.Submit(spec);
  };
  const JobId gang = submit(2), leaves = submit(2);
  state.Apply({ActionKind::kStart, gang, {{0, 1}, {1, 1}}}, 0);
  state.Apply({ActionKind::kStart, leaves, {{0, 2}, {1, 2}}}, 0);
  state.AdvanceTo(5 * kSecond);
  state.Finish(leaves);
  const Decision decision = (*MakePolicy("gandiva"))->Decide(state, 0);
  ASSERT_EQ(decision.actions.size(), 1u);
  EXPECT_EQ(decision.actions[0].kind, ActionKind::kMigrate);
  EXPECT_EQ(decision.actions[0].to.size(), 1u);
}

class GandivaRound : public ::testing::Test {
 protected:
  GandivaRound() : state_(MakeSettings()), policy_(std::move(*MakePolicy("gandiva"))) {}
  static Settings MakeSettings() {
    Settings settings;
    settings.shape = {1, 4, 1};
    settings.tenants = {{"a", 1}};
    settings.lease = kLease;
    settings.device_bytes = 100;
    return settings;
  }
  JobId Submit(int gpus, double utilization, int64_t bytes = 40) {
    JobSpec spec;
    spec.gpus = gpus;
    spec.duration = 100000 * kSecond;
    spec.utilization = utilization;
    spec.active_bytes_per_gpu = bytes;
    return *state_.Submit(spec);
  }
  void DecideAt(double seconds) {
    state_.AdvanceTo(static_cast<Time>(seconds * kSecond));
    decision_ = policy_->Decide(state_, last_);
    for (const Action& action : decision_.actions) state_.Apply(action, 0);
    last_ = state_.now();
  }

  State state_;
  const std::unique_ptr<Policy> policy_;
  Decision decision_;
  Time last_ = -1;
};

TEST_F(GandivaRound, APairStaysTogetherWhileItDoesMoreThanInTurn) {
  const JobId host = Submit(4, 0.4);
  DecideAt(0);
  const JobId guest = Submit(4, 0.5);
  DecideAt(1);
  ASSERT_EQ(state_.job(guest).packed_with, host);
  for (const JobId id : {host, guest}) state_.SetRate(id, 0.8);
  DecideAt(61);
  EXPECT_EQ(state_.job(guest).packed_with, host) << "1.6 of what one has alone";
  state_.SetRate(guest, 0.15);
  DecideAt(62);
  EXPECT_EQ(state_.job(guest).phase, JobPhase::kPaused) << "less than in turn";
  DecideAt(63);
  EXPECT_EQ(state_.job(guest).phase, JobPhase::kPaused) << "and not again with that one";
}

TEST_F(GandivaRound, NoPairForBusyJobsAndFullMemory) {
  Submit(4, 0.9);
  DecideAt(0);
  const JobId busy = Submit(4, 0.9), large = Submit(4, 0.1, 70);
  DecideAt(1);
  EXPECT_EQ(state_.job(busy).phase, JobPhase::kPending);
  EXPECT_EQ(state_.job(large).phase, JobPhase::kPending);
}

TEST_F(GandivaRound, NobodySharesWhoseProgressAloneIsNotKnownOrOnADrainedNode) {
  const JobId host = Submit(4, 0.4);
  DecideAt(0);
  const JobId guest = Submit(4, 0.4);
  state_.SetKnown(guest, false);
  DecideAt(1);
  EXPECT_EQ(state_.job(guest).phase, JobPhase::kPending);
  state_.SetKnown(guest, true);
  state_.SetKnown(host, false);
  DecideAt(2);
  EXPECT_EQ(state_.job(guest).phase, JobPhase::kPending);
  state_.SetKnown(host, true);
  state_.SetNodeUsable(0, false);
  DecideAt(3);
  EXPECT_EQ(state_.job(guest).phase, JobPhase::kPending);
  state_.SetNodeUsable(0, true);
  DecideAt(4);
  EXPECT_EQ(state_.job(guest).packed_with, host);
}

TEST_F(GandivaRound, TheGuestGetsTheDevicesOfWhoLeaves) {
  const JobId host = Submit(4, 0.4);
  DecideAt(0);
  const JobId guest = Submit(4, 0.4);
  DecideAt(1);
  for (const JobId id : {host, guest}) state_.SetRate(id, 0.9);
  state_.AdvanceTo(10 * kSecond);
  state_.Finish(host);
  EXPECT_EQ(state_.devices().free(), 0);
  EXPECT_EQ(state_.job(guest).rate, 1);
  EXPECT_FALSE(state_.job(guest).guest);
  state_.Finish(guest);
  EXPECT_EQ(state_.devices().free(), 4);
}

TEST_F(GandivaRound, ElasticJobsTakeWhatIsIdleAndGiveItBack) {
  JobSpec spec;
  spec.gpus = 2;
  spec.min_gpus = 1;
  spec.max_gpus = 4;
  spec.duration = 100000 * kSecond;
  const JobId elastic = *state_.Submit(spec);
  DecideAt(0);
  DecideAt(1);
  EXPECT_EQ(state_.job(elastic).gpus, 4);
  EXPECT_EQ(state_.job(elastic).rate, 2);
  const JobId other = Submit(3, 1);
  DecideAt(2);
  EXPECT_EQ(state_.job(elastic).gpus, 1);
  EXPECT_EQ(decision_.wake, state_.now() + 1);
  DecideAt(2.001);
  EXPECT_EQ(state_.job(other).phase, JobPhase::kRunning);
  state_.Finish(other);
  DecideAt(3);
  EXPECT_EQ(state_.job(elastic).gpus, 4);
}

TEST(PolicyNameTest, AnUnknownPolicyIsRefusedWithTheKnown) {
  const Result<std::unique_ptr<Policy>> policy = MakePolicy("lottery");
  EXPECT_EQ(policy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(policy.status().message().find("astraea"), std::string_view::npos);
}

TEST(StateTest, JobsThatCannotBeAreRefused) {
  State state(SmallCluster());
  JobSpec spec;
  spec.duration = kSecond;
  spec.gpus = 17;
  EXPECT_EQ(state.Submit(spec).status().code(), StatusCode::kInvalidArgument);
  spec.gpus = 0;
  EXPECT_EQ(state.Submit(spec).status().code(), StatusCode::kInvalidArgument);
  spec.gpus = 1;
  spec.tenant = 3;
  EXPECT_EQ(state.Submit(spec).status().code(), StatusCode::kInvalidArgument);
  spec.tenant = 0;
  spec.duration = -1;
  EXPECT_EQ(state.Submit(spec).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stasis::scheduler

#include "scheduler/defrag.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "scheduler/policy.h"

namespace stasis::scheduler {
namespace {

Settings Cluster(int nodes, int devices_per_node) {
  Settings settings;
  settings.shape = {nodes, devices_per_node, 2};
  settings.tenants = {{"a", 1}};
  return settings;
}

JobSpec Spec(int gpus, int64_t bytes, int max_nodes = 1) {
  JobSpec spec;
  spec.gpus = gpus;
  spec.duration = 1000 * kSecond;
  spec.active_bytes_per_gpu = bytes;
  spec.max_nodes = max_nodes;
  return spec;
}

JobId StartAt(State& state, const JobSpec& spec, const Placement& place) {
  const JobId id = *state.Submit(spec);
  state.Apply({ActionKind::kStart, id, place}, 0);
  return id;
}

std::vector<JobId> Running(const State& state) {
  std::vector<JobId> running = state.running();
  std::sort(running.begin(), running.end());
  return running;
}

// Carries the plan out, which checks that every device is free when it is taken.
void Check(State state, const Defragmentation& plan, int gpus, int max_nodes) {
  int64_t bytes = 0;
  std::set<JobId> moved;
  for (const Action& action : plan.actions) {
    state.Apply(action, 0);
    if (moved.insert(action.job).second)
      bytes += state.job(action.job).spec.active_bytes_per_gpu * state.job(action.job).spec.gpus;
  }
  for (const JobId id : moved) {
    const Job& job = state.job(id);
    EXPECT_EQ(job.phase, JobPhase::kRunning);
    EXPECT_EQ(CountDevices(job.placement), job.spec.gpus) << "a gang is split";
    if (job.spec.max_nodes != 0) {
      EXPECT_LE(job.placement.size(), static_cast<size_t>(job.spec.max_nodes));
    }
  }
  EXPECT_EQ(bytes, plan.bytes);
  EXPECT_TRUE(state.devices().IsFree(plan.place));
  EXPECT_EQ(CountDevices(plan.place), gpus);
  EXPECT_LE(plan.place.size(), static_cast<size_t>(max_nodes));
}

// The least bytes, by every assignment of every job and the gang to nodes (each wants one).
class BruteForce {
 public:
  BruteForce(const State& state, int gpus) : state_(state), gpus_(gpus), jobs_(Running(state)) {
    free_.assign(static_cast<size_t>(state.settings().shape.nodes), state.settings().shape.devices_per_node);
  }
  // -1: there is no way.
  int64_t Least() {
    Assign(0, 0);
    return least_;
  }

 private:
  void Assign(size_t at, int64_t bytes) {
    if (least_ >= 0 && bytes >= least_) return;
    if (at == jobs_.size()) {
      if (std::any_of(free_.begin(), free_.end(), [this](int free) { return free >= gpus_; })) least_ = bytes;
      return;
    }
    const Job& job = state_.job(jobs_[at]);
    for (NodeId node = 0; node < free_.size(); ++node) {
      if (free_[node] < job.gpus) continue;
      free_[node] -= job.gpus;
      const bool stays = job.placement[0].node == node;
      Assign(at + 1, bytes + (stays ? 0 : job.spec.active_bytes_per_gpu * job.gpus));
      free_[node] += job.gpus;
    }
  }

  const State& state_;
  const int gpus_;
  const std::vector<JobId> jobs_;
  std::vector<int> free_;
  int64_t least_ = -1;
};

TEST(DefragTest, MovesTheFewestBytesOfAllWays) {
  std::mt19937 random(7);
  int planned = 0, impossible = 0;
  for (int round = 0; round < 4000; ++round) {
    const int nodes = 2 + static_cast<int>(random() % 3), width = 2 + static_cast<int>(random() % 3);
    State state(Cluster(nodes, width));
    for (int tries = 0; tries < 8; ++tries) {
      const NodeId node = static_cast<NodeId>(random() % static_cast<unsigned>(nodes));
      const int gpus = 1 + static_cast<int>(random() % static_cast<unsigned>(width));
      if (state.devices().FreeOn(node) < gpus) continue;
      StartAt(state, Spec(gpus, 1 + static_cast<int64_t>(random() % 50)), state.devices().On(node, gpus));
    }
    const int gang = 1 + static_cast<int>(random() % static_cast<unsigned>(width));
    if (state.devices().Find(gang, 1)) continue;
    const std::optional<Defragmentation> plan = PlanRoom(state, state.devices(), Running(state), gang, 1);
    const int64_t least = BruteForce(state, gang).Least();
    ASSERT_EQ(plan.has_value(), least >= 0) << "round " << round;
    if (!plan) {
      ++impossible;
      continue;
    }
    ++planned;
    EXPECT_EQ(plan->bytes, least) << "round " << round;
    Check(state, *plan, gang, 1);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(planned, 200);
  EXPECT_GT(impossible, 100);
}

TEST(DefragTest, JobsThatHaveToChangePlacesStepAside) {
  State state(Cluster(2, 3));
  StartAt(state, Spec(2, 10), {{0, 0b011}});
  StartAt(state, Spec(1, 10), {{1, 0b001}});
  // One device is free on node 0, two on node 1: the gang of three needs node 1 or node 0 as a whole.
  const std::optional<Defragmentation> plan = PlanRoom(state, state.devices(), Running(state), 3, 1);
  ASSERT_TRUE(plan.has_value());
  Check(state, *plan, 3, 1);
}

TEST(DefragTest, LargeClustersAreClearedNodeByNode) {
  State state(Cluster(100, 8));
  std::mt19937 random(3);
  for (NodeId node = 0; node < 100; ++node) {
    StartAt(state, Spec(4, 1000 + static_cast<int64_t>(random() % 1000)), {{node, 0b00001111}});
    StartAt(state, Spec(2, 100 + static_cast<int64_t>(random() % 100)), {{node, 0b00110000}});
  }
  int64_t cheapest = std::numeric_limits<int64_t>::max();
  for (const JobId id : state.running()) {
    if (state.job(id).gpus == 4) cheapest = std::min(cheapest, state.job(id).spec.active_bytes_per_gpu * 4);
  }
  // Two devices are free on each: a job of two can go elsewhere, one of four cannot.
  const std::optional<Defragmentation> plan = PlanRoom(state, state.devices(), Running(state), 4, 1);
  ASSERT_TRUE(plan.has_value());
  Check(state, *plan, 4, 1);
  EXPECT_LT(plan->bytes, cheapest);
  EXPECT_EQ(plan->actions.size(), 1u);
  EXPECT_FALSE(PlanRoom(state, state.devices(), Running(state), 9, 1).has_value());
}

TEST(DefragTest, AGangOnFewNodesIsMadeRoomFor) {
  State state(Cluster(4, 2));
  for (NodeId node = 0; node < 4; ++node) StartAt(state, Spec(1, 10 + node), {{node, 0b01}});
  const std::optional<Defragmentation> plan = PlanRoom(state, state.devices(), Running(state), 4, 2);
  ASSERT_TRUE(plan.has_value());
  Check(state, *plan, 4, 2);
  EXPECT_EQ(plan->bytes, 10 + 11);
}

// Through the policies: a gang that wants one node gets it although devices are free on two only.
class DefragByPolicy : public ::testing::TestWithParam<std::string_view> {};

TEST_P(DefragByPolicy, MakesRoomWhenItPays) {
  State state(Cluster(2, 4));
  StartAt(state, Spec(2, 10), {{0, 0b0011}});
  StartAt(state, Spec(2, 20), {{1, 0b0011}});
  const JobId gang = *state.Submit(Spec(4, 10));
  const Decision decision = (*MakePolicy(GetParam()))->Decide(state, state.now());
  ASSERT_EQ(decision.actions.size(), 2u);
  EXPECT_EQ(decision.actions[0].kind, ActionKind::kMigrate);
  for (const Action& action : decision.actions) state.Apply(action, 0);
  EXPECT_EQ(state.job(gang).phase, JobPhase::kRunning);
  EXPECT_EQ(state.job(gang).placement.size(), 1u);
}

TEST_P(DefragByPolicy, LeavesJobsAloneWhenItDoesNotPay) {
  Settings settings = Cluster(2, 4);
  settings.move_fixed = 3 * settings.lease;  // of two devices: more than a lease of four
  State state(settings);
  StartAt(state, Spec(2, 10), {{0, 0b0011}});
  StartAt(state, Spec(2, 20), {{1, 0b0011}});
  const JobId gang = *state.Submit(Spec(4, 10)), small = *state.Submit(Spec(1, 10));
  const Decision decision = (*MakePolicy(GetParam()))->Decide(state, state.now());
  for (const Action& action : decision.actions) state.Apply(action, 0);
  EXPECT_EQ(state.job(gang).phase, JobPhase::kPending);
  if (GetParam() != "fifo") {
    EXPECT_EQ(state.job(small).phase, JobPhase::kRunning) << "what the gang cannot use goes to others";
  }
}

INSTANTIATE_TEST_SUITE_P(All, DefragByPolicy,
                         ::testing::Values("fifo", "las", "themis", "astraea", "gandiva"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace stasis::scheduler

// The cluster against a world that does what it is told, late, and sometimes not.
#include "scheduler/live/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>

#include "scheduler/live/testing.h"

namespace stasis::scheduler {
namespace {

// Nodes with devices that notice when two programs are on them, and programs that run for a while.
class World {
 public:
  World(std::string_view policy, unsigned seed, int jobs, bool faults)
      : keeper_(policy), random_(seed), jobs_(jobs), faults_(faults), shares_(policy == "gandiva") {}

  void Run() {
    keeper_.Happens(0, TenantSet{"a", 1});
    keeper_.Happens(0, TenantSet{"b", 2});
    for (const char* node : {"n0", "n1", "n2"})
      keeper_.Happens(0, NodeJoined{node, "here", 4, "", "", shares_ ? 100 : 0});
    for (now_ = 0; ended_ < jobs_ && now_ < 40'000 * kSecond; now_ += kSecond) {
      Submit();
      if (faults_) Trouble();
      EndPrograms();
      CarryOut();
      keeper_.Decide(now_);
      TakeOrders();
      if (shares_) TellProgress();
      if (random_() % 400 == 0) keeper_.Restart();
      if (random_() % 300 == 0) Compact();
      if (::testing::Test::HasFailure()) return;
    }
    ASSERT_EQ(ended_, jobs_) << "jobs wait for ever";
    EXPECT_TRUE(keeper_.cluster().Ready().empty());
    for (const char* node : {"n0", "n1", "n2"}) keeper_.Happens(now_, NodeChanged{node, true, false, ""});
    EXPECT_EQ(keeper_.cluster().state().devices().free(), 12);
  }
  std::map<std::string, int> orders() const { return order_counts_; }
  int shared() const { return shared_; }  // orders to devices that another job has
  int deadlines() const { return deadlines_; }

 private:
  struct Program {
    std::string node;
    std::vector<int> gpus;
    bool running = false;
    Time left = 0;
  };
  struct Given {
    Order order;
    Time done = 0;
  };

  void Submit() {
    if (submitted_ == jobs_ || random_() % 20 != 0) return;
    const std::string name = "j" + std::to_string(submitted_++);
    JobRequest request =
        Request(name, random_() % 2 == 0 ? "a" : "b", 1 << random_() % 3, random_() % 10 == 0 ? 1 : 0);
    if (shares_ && random_() % 4 != 0) {
      request.memory = 30 + static_cast<int64_t>(random_() % 30);
      request.utilization = 0.4;
    }
    keeper_.Happens(now_, JobSubmitted{request});
    programs_[name] = {"", {}, false, static_cast<Time>(1 + random_() % 300) * kSecond};
  }

  void Compact() {
    if (random_() % 2 == 0)
      keeper_.Happens(now_, JobsForgotten{now_ - static_cast<Time>(random_() % 500) * kSecond});
    keeper_.Compact();
  }

  // Some pairs get on well, and some do not.
  void TellProgress() {
    if (now_ % (5 * kSecond) != 0) return;
    for (const auto& [name, program] : programs_) {
      const Cluster::Entry* entry = keeper_.cluster().Find(name);
      if (entry == nullptr || entry->where != Cluster::Where::kRunning) continue;
      const std::string beside = keeper_.cluster().Beside(*entry);
      const double rate = beside.empty() ? 10 : (name.back() + beside.back()) % 2 == 0 ? 9 : 3;
      const std::optional<RateMeasured> news =
          keeper_.cluster().Tell(name, {rate, "launches", 20 * kSecond}, now_);
      if (news) keeper_.Happens(now_, *news);
    }
  }

  // Nodes are drained and come back, jobs are cancelled, a program's node loses it.
  void Trouble() {
    Cluster& cluster = keeper_.cluster();
    const std::string node = "n" + std::to_string(random_() % 3);
    if (random_() % 300 == 0) Drain(node, !cluster.FindNode(node)->draining);
    if (now_ % (200 * kSecond) == 0) keeper_.Happens(now_, NodeChanged{node, true, false, ""});
    if (random_() % 200 != 0 || cluster.jobs().empty()) return;
    auto victim = cluster.jobs().begin();
    std::advance(victim, random_() % cluster.jobs().size());
    if (victim->second.where == Cluster::Where::kEnded || victim->second.cancelled) return;
    const std::string name = victim->first;
    if (random_() % 2 == 0) {
      keeper_.Happens(now_, JobCancelled{name});
      Gone(name);
    } else {
      std::erase_if(given_, [&name](const auto& each) { return each.second.order.job == name; });
      programs_[name].running = false;
      programs_[name].gpus.clear();
      const std::string image = random_() % 2 == 0 ? node : "";
      if (!image.empty()) programs_[name].node = image;
      keeper_.Happens(now_, JobLost{name, image, "its node was lost"});
    }
  }

  // Sometimes for good.
  void Drain(const std::string& node, bool draining) {
    const Time deadline =
        draining && random_() % 2 == 0 ? now_ + static_cast<Time>(random_() % 60) * kSecond : 0;
    keeper_.Happens(now_, NodeChanged{node, true, draining, "maintenance", deadline});
    deadlines_ += deadline == 0 ? 0 : 1;
  }

  void EndPrograms() {
    for (auto& [name, program] : programs_) {
      if (!program.running || (program.left -= kSecond) > 0) continue;
      const Cluster::Entry* entry = keeper_.cluster().Find(name);
      if (entry->where == Cluster::Where::kEnded) continue;
      program.running = false;
      program.gpus.clear();
      std::erase_if(given_, [&name = name](const auto& each) { return each.second.order.job == name; });
      keeper_.Happens(now_, JobEnded{name, true, 0, ""});
      Gone(name);
    }
  }
  void Gone(const std::string& name) {
    if (keeper_.cluster().Find(name)->where == Cluster::Where::kEnded) ++ended_;
  }

  void TakeOrders() {
    for (const Order& order : keeper_.cluster().Ready()) {
      if (given_.contains(order.number)) continue;
      ++order_counts_[OrderKindName(order.kind)];
      if (!order.target.empty() && order.kind != OrderKind::kCancel) Occupy(order);
      given_[order.number] = {order, now_ + static_cast<Time>(random_() % 8) * kSecond};
    }
  }

  // From the moment that somebody may come, nobody else may be on the devices, but for one other where both
  // have told their memory.
  void Occupy(const Order& order) {
    std::set<std::string> others;
    const auto look = [&](const std::string& name, const std::string& node, const std::vector<int>& gpus) {
      if (name == order.job || node != order.target) return;
      for (const int gpu : order.gpus) {
        if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) others.insert(name);
      }
    };
    for (const auto& [name, program] : programs_) {
      if (program.running) look(name, program.node, program.gpus);
    }
    for (const auto& [number, given] : given_) look(given.order.job, given.order.target, given.order.gpus);
    const auto tells = [this](const std::string& job) {
      return keeper_.cluster().Find(job)->request.memory != 0;
    };
    EXPECT_TRUE(others.empty() || (others.size() == 1 && tells(order.job) && tells(*others.begin())))
        << order.job << " on " << order.target << " beside " << *others.begin();
    shared_ += others.empty() ? 0 : 1;
  }

  void CarryOut() {
    std::vector<uint64_t> done;
    for (const auto& [number, given] : given_) {
      if (given.done <= now_) done.push_back(number);
    }
    for (const uint64_t number : done) {
      const auto found = given_.find(number);
      if (found == given_.end()) continue;
      const Order order = found->second.order;
      given_.erase(found);
      const bool fails =
          faults_ && order.kind != OrderKind::kCancel && order.kind != OrderKind::kRun && random_() % 10 == 0;
      if (!fails) Do(order);
      const std::string job = order.job;
      const bool had_ended = keeper_.cluster().Find(job)->where == Cluster::Where::kEnded;
      keeper_.Happens(now_, OrderEnded{number, !fails, fails ? "no room" : ""});
      if (::testing::Test::HasFatalFailure()) return;
      if (!had_ended) Gone(job);
    }
  }

  void Do(const Order& order) {
    Program& program = programs_[order.job];
    switch (order.kind) {
      case OrderKind::kPause:
        EXPECT_TRUE(program.running);
        [[fallthrough]];
      case OrderKind::kCancel:
        EXPECT_EQ(program.node, order.node);
        program.running = false;
        program.gpus.clear();
        return;
      case OrderKind::kResume:
        EXPECT_EQ(program.node, order.node);
        [[fallthrough]];
      case OrderKind::kMigrate:
        EXPECT_EQ(program.node, order.node);
        [[fallthrough]];
      case OrderKind::kRun:
      case OrderKind::kRestore:
        program.node = order.target;
        program.gpus = order.gpus;
        program.running = true;
        return;
    }
  }

  Keeper keeper_;
  std::mt19937 random_;
  const int jobs_;
  const bool faults_, shares_;
  int shared_ = 0, deadlines_ = 0;
  Time now_ = 0;
  int submitted_ = 0, ended_ = 0;
  std::map<std::string, Program> programs_;
  std::map<uint64_t, Given> given_;
  std::map<std::string, int> order_counts_;
};

unsigned Seeds(unsigned few) {
  const char* full = std::getenv("STASIS_TEST_FULL");
  return full != nullptr && std::string_view(full) == "1" ? 20 * few : few;
}

class ClusterWorld : public ::testing::TestWithParam<std::string_view> {};

TEST_P(ClusterWorld, EveryJobEndsAndNoDeviceHasTwo) {
  for (unsigned seed = 1; seed <= Seeds(3); ++seed) {
    World world(GetParam(), seed, 60, /*faults=*/false);
    world.Run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST_P(ClusterWorld, TheSameWhenOrdersFailAndNodesGo) {
  std::map<std::string, int> orders;
  int shared = 0, deadlines = 0;
  for (unsigned seed = 1; seed <= Seeds(5); ++seed) {
    World world(GetParam(), seed, 60, /*faults=*/true);
    world.Run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    for (const auto& [kind, count] : world.orders()) orders[kind] += count;
    shared += world.shared();
    deadlines += world.deadlines();
  }
  EXPECT_EQ(shared > 0, GetParam() == "gandiva");
  EXPECT_GT(deadlines, 0);
  for (const char* kind : {"run", "cancel", "restore"}) EXPECT_GT(orders[kind], 0) << kind;
  if (GetParam() == "fifo") return;
  for (const char* kind : {"pause", "resume", "migrate"}) EXPECT_GT(orders[kind], 0) << kind;
}

// Two gangs of a tenant that fit into what is scattered over nodes once took one node from each other for
// ever.
TEST(ClusterWorlds, DecisionsComeToRestWhereGangsFitOnlyByCount) {
  World world("astraea", 210, 60, /*faults=*/true);
  world.Run();
}

INSTANTIATE_TEST_SUITE_P(All, ClusterWorld, ::testing::Values("fifo", "las", "astraea", "gandiva"),
                         [](const auto& info) { return std::string(info.param); });

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() : keeper_("astraea") {
    keeper_.Happens(0, TenantSet{"a", 1});
    keeper_.Happens(0, NodeJoined{"n0", "here", 4});
    keeper_.Happens(0, NodeJoined{"n1", "there", 2});
  }
  StatusCode CodeOf(const Fact& fact) { return keeper_.cluster().Check(fact).code(); }
  Order Only() {
    const std::vector<Order> ready = keeper_.cluster().Ready();
    EXPECT_EQ(ready.size(), 1u);
    return ready.empty() ? Order() : ready[0];
  }
  Keeper keeper_;
};

TEST_F(ClusterTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(CodeOf(JobSubmitted{Request("j", "a", 5)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(JobSubmitted{Request("j", "nobody", 1)}), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(TenantSet{"b", 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(CodeOf(NodeJoined{"n0", "here", 8}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CodeOf(NodeChanged{"n9", true, true, ""}), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(JobCancelled{"j"}), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(OrderEnded{77, true, ""}), StatusCode::kNotFound);
  keeper_.Happens(1, JobSubmitted{Request("j", "a", 1)});
  EXPECT_EQ(CodeOf(JobSubmitted{Request("j", "a", 1)}), StatusCode::kAlreadyExists);
  keeper_.Happens(1, JobEnded{"j", true, 0, ""});
  EXPECT_EQ(CodeOf(JobCancelled{"j"}), StatusCode::kFailedPrecondition);
}

TEST_F(ClusterTest, APauseThatFailsTakesTheDevicesBackFromWhoWasToHaveThem) {
  keeper_.Happens(1, JobSubmitted{Request("low", "a", 4)});
  keeper_.Decide(1);
  keeper_.Happens(2, OrderEnded{Only().number, true, ""});
  keeper_.Happens(3, JobSubmitted{Request("other", "a", 4)});
  // The lease of the first ends, and the other one's turn comes.
  keeper_.Decide(kLease + 3);
  const Order pause = Only();
  ASSERT_EQ(pause.kind, OrderKind::kPause);
  keeper_.Happens(kLease + 4, OrderEnded{pause.number, false, "a kernel does not end"});
  EXPECT_TRUE(keeper_.cluster().Ready().empty());
  const Cluster::Entry* low = keeper_.cluster().Find("low");
  EXPECT_EQ(low->where, Cluster::Where::kRunning);
  EXPECT_EQ(low->message, "a kernel does not end");
  EXPECT_EQ(keeper_.cluster().state().job(low->id).phase, JobPhase::kRunning);
  keeper_.Restart();
}

// Whoever waits for its devices would wait for nothing again and again.
TEST_F(ClusterTest, APauseThatNeverEndsIsAskedForLessAndLessOften) {
  keeper_.Happens(1, JobSubmitted{Request("low", "a", 4)});
  keeper_.Decide(1);
  keeper_.Happens(2, OrderEnded{Only().number, true, ""});
  keeper_.Happens(3, JobSubmitted{Request("high", "a", 4, 1)});
  Time now = 3;
  const auto not_asked_for = [&](bool late) {
    keeper_.Decide(now);
    const Order pause = Only();
    EXPECT_EQ(pause.kind, OrderKind::kPause);
    keeper_.Happens(now, OrderEnded{pause.number, false, "it has not paused", false, late});
    keeper_.Decide(now);
    EXPECT_TRUE(keeper_.cluster().Ready().empty());
    const Time asked = keeper_.cluster().state().job(keeper_.cluster().Find("low")->id).kept_until;
    keeper_.Decide(asked - 1);
    EXPECT_TRUE(keeper_.cluster().Ready().empty());
    const Time kept = asked - now;
    now = asked;
    return kept;
  };
  for (const Time kept : {60, 120, 240, 480, 960, 1800, 1800})
    EXPECT_EQ(not_asked_for(/*late=*/true), kept * kSecond);
  keeper_.Compact();
  EXPECT_EQ(not_asked_for(/*late=*/true), 1800 * kSecond) << "a snapshot has it";
  EXPECT_EQ(not_asked_for(/*late=*/false), 60 * kSecond) << "it has an answer again";
  EXPECT_EQ(not_asked_for(/*late=*/true), 60 * kSecond);
  keeper_.Decide(now);
  keeper_.Happens(now, OrderEnded{Only().number, true, ""});
  EXPECT_EQ(keeper_.cluster().Find("low")->late_pauses, 0);
}

// However long it takes to come: else it would have to leave before it has done anything, again and again.
TEST_F(ClusterTest, ALeaseBeginsWhenTheJobIsThere) {
  keeper_.Happens(1, JobSubmitted{Request("first", "a", 4)});
  keeper_.Decide(1);
  const Order run = Only();
  keeper_.Happens(2, JobSubmitted{Request("second", "a", 4)});
  keeper_.Decide(3 * kLease);
  keeper_.Happens(3 * kLease + 1, OrderEnded{run.number, true, ""});
  keeper_.Decide(3 * kLease + 2);
  EXPECT_TRUE(keeper_.cluster().Ready().empty());
  EXPECT_EQ(keeper_.cluster().wake(), 4 * kLease + 1);
  keeper_.Restart();
  keeper_.Decide(4 * kLease + 1);
  EXPECT_EQ(Only().kind, OrderKind::kPause);
}

TEST_F(ClusterTest, AVictimThatIsCancelledHoldsItsDevicesUntilItHasGone) {
  keeper_.Happens(1, JobSubmitted{Request("low", "a", 4)});
  keeper_.Decide(1);
  keeper_.Happens(2, OrderEnded{Only().number, true, ""});
  keeper_.Happens(3, JobSubmitted{Request("high", "a", 4, 1)});
  keeper_.Decide(3);
  const Order pause = Only();
  ASSERT_EQ(pause.kind, OrderKind::kPause);
  keeper_.Happens(4, JobCancelled{"low"});
  keeper_.Happens(5, OrderEnded{pause.number, false, "no room"});
  keeper_.Decide(5);
  const Order cancel = Only();
  EXPECT_EQ(cancel.kind, OrderKind::kCancel) << "it is there still";
  keeper_.Restart();
  keeper_.Happens(6, OrderEnded{cancel.number, true, ""});
  EXPECT_EQ(Only().job, "high");
}

TEST_F(ClusterTest, WhatCannotBeStartedHasFailed) {
  keeper_.Happens(1, JobSubmitted{Request("j", "a", 1)});
  keeper_.Decide(1);
  keeper_.Happens(2, OrderEnded{Only().number, false, "no such program"});
  EXPECT_TRUE(keeper_.cluster().Find("j")->failed);
  EXPECT_EQ(keeper_.cluster().state().devices().free(), 6);
}

TEST_F(ClusterTest, ANodeThatIsDrainedBecomesEmpty) {
  keeper_.Happens(1, JobSubmitted{Request("j", "a", 2)});
  keeper_.Decide(1);
  const Order run = Only();
  EXPECT_EQ(run.target, "n1") << "where it fits most tightly";
  keeper_.Happens(2, OrderEnded{run.number, true, ""});
  keeper_.Happens(3, NodeChanged{"n1", true, true, "new power supply"});
  keeper_.Decide(3);
  const Order move = Only();
  EXPECT_EQ(move.kind, OrderKind::kMigrate);
  EXPECT_EQ(move.node, "n1");
  EXPECT_EQ(move.target, "n0");
}

TEST_F(ClusterTest, WhatIsPausedAsAnImageComesBackFromIt) {
  keeper_.Happens(1, JobSubmitted{Request("j", "a", 2)});
  keeper_.Decide(1);
  keeper_.Happens(2, OrderEnded{Only().number, true, ""});
  keeper_.Happens(3, NodeChanged{"n0", true, true, ""});
  keeper_.Decide(3);
  keeper_.Happens(4, NodeChanged{"n1", true, true, ""});
  keeper_.Decide(4);
  const Order pause = Only();
  ASSERT_EQ(pause.kind, OrderKind::kPause);
  keeper_.Happens(5, OrderEnded{pause.number, true, "", true});
  EXPECT_EQ(keeper_.cluster().Find("j")->where, Cluster::Where::kImage);
  keeper_.Happens(6, NodeChanged{"n0", true, false, ""});
  keeper_.Decide(6);
  EXPECT_EQ(Only().kind, OrderKind::kRestore);
  EXPECT_EQ(Only().node, "n1");
  EXPECT_EQ(Only().target, "n0");
  keeper_.Restart();
}

TEST_F(ClusterTest, CopiesOfImagesAreInTheOrderInWhichTheyWereMade) {
  keeper_.Happens(1, JobSubmitted{Request("j", "a", 1)});
  for (const char* node : {"n0", "n1", "n0"}) keeper_.Happens(2, ImageKept{"j", node});
  EXPECT_EQ(keeper_.cluster().Find("j")->copies, (std::vector<std::string>{"n1", "n0"}));
  EXPECT_EQ(CodeOf(ImageKept{"j", "n7"}), StatusCode::kNotFound);
  EXPECT_EQ(CodeOf(MaintenanceSet{"n0", 5, 5}), StatusCode::kInvalidArgument);
}

TEST(FactTest, EveryFactComesBackAsItWas) {
  JobRequest request = Request("j", "a", 3, -2);
  request.environment = {"A=1"};
  request.max_restarts = 2;
  request.memory = 1 << 20;
  request.utilization = 0.3;
  for (const Fact& fact : {Fact(TenantSet{"a", 2.5}), Fact(NodeJoined{"n", "h:1", 8, "id", "soft", 1 << 30}),
                           Fact(NodeChanged{"n", false, true, "why", 7}), Fact(JobSubmitted{request, "key"}),
                           Fact(Decided{ActionKind::kPack, "j", {{"n", ~DeviceMask{0}}}, "k"}),
                           Fact(OrderEnded{1, false, "m", true, true}), Fact(JobEnded{"j", false, 3, "m"}),
                           Fact(JobLost{"j", "n", "m", true, true}), Fact(JobCancelled{"j"}),
                           Fact(MaintenanceSet{"n", 1, 2}), Fact(ImageKept{"j", "n", 1, 2, true}),
                           Fact(SaveBegun{"j", "n"}), Fact(SaveEnded{"j", "n", false, "m", 3}),
                           Fact(RateMeasured{"j", 0.1, "launches", "k"}), Fact(JobsForgotten{7})}) {
    const Result<Fact> again = ParseFact(FactText(fact));
    ASSERT_TRUE(again.ok()) << FactText(fact);
    EXPECT_TRUE(*again == fact) << FactText(fact);
  }
}

TEST(FactTest, WhatIsNewerThanTheRecordIsNotMissed) {
  const Result<Fact> joined =
      ParseFact(R"({"fact":"node","name":"n","address":"a","devices":2,"agent_id":"i","kind":"soft"})");
  ASSERT_TRUE(joined.ok()) << joined.status().ToString();
  EXPECT_EQ(std::get<NodeJoined>(*joined), (NodeJoined{"n", "a", 2, "i", "soft", 0}));
  const Result<Fact> changed =
      ParseFact(R"({"fact":"node-changed","name":"n","reachable":true,"draining":true,"reason":"r"})");
  ASSERT_TRUE(changed.ok()) << changed.status().ToString();
  EXPECT_EQ(std::get<NodeChanged>(*changed), (NodeChanged{"n", true, true, "r", 0}));
  const Result<Fact> kept = ParseFact(R"({"fact":"image","job":"j","node":"n"})");
  ASSERT_TRUE(kept.ok()) << kept.status().ToString();
  EXPECT_EQ(std::get<ImageKept>(*kept), (ImageKept{"j", "n", 0, 0, false}));
}

TEST(FactTest, AnythingElseIsCorrupt) {
  for (const char* text :
       {"", "[]", "{}", R"({"fact":"lottery"})", R"({"fact":"tenant","name":"a"})",
        R"({"fact":"cancelled","job":3})", R"({"fact":"order","order":-1,"ok":true,"message":""})",
        R"({"fact":"decided","kind":77,"job":"j","to":[],"with":""})",
        R"({"fact":"decided","kind":0,"job":"j","to":[{"node":"n"}],"with":""})"}) {
    EXPECT_EQ(ParseFact(text).status().code(), StatusCode::kCorrupt) << text;
  }
}

// Lets the waiting job have the devices of the one that runs, for ever.
class Swaps final : public Policy {
 public:
  std::string_view name() const override { return "swaps"; }
  Decision Decide(const State& state, Time) override {
    Decision decision;
    if (state.waiting(0).empty()) return decision;
    const JobId next = state.waiting(0).front();
    if (!state.running().empty())
      decision.actions.push_back({ActionKind::kPause, state.running().front(), {}, kNoJob});
    const bool pending = state.job(next).phase == JobPhase::kPending;
    decision.actions.push_back(
        {pending ? ActionKind::kStart : ActionKind::kResume, next, Placement{{0, 1}}, kNoJob});
    return decision;
  }
};

TEST(ClusterRest, APolicyThatDoesNotComeToRestIsNotAskedForAWhile) {
  Cluster::Options options;
  options.lease = kLease;
  Cluster cluster(options, std::make_unique<Swaps>());
  uint64_t number = 0;
  cluster.Take(++number, 0, TenantSet{"a", 1});
  cluster.Take(++number, 0, NodeJoined{"n", "here", 1, "", "", 0});
  for (const char* job : {"j", "k"}) cluster.Take(++number, 0, JobSubmitted{Request(job, "a", 1)});
  const auto rounds = [&](Time now) {
    int decisions = 0;
    for (std::vector<Fact> facts = cluster.Decide(now); !facts.empty(); facts = cluster.Decide(now)) {
      for (const Fact& fact : facts) cluster.Take(++number, now, fact);
      if (++decisions == 1000) break;
    }
    return decisions;
  };
  EXPECT_LT(rounds(0), 100);
  EXPECT_TRUE(cluster.restless());
  EXPECT_EQ(rounds(1), 0);
  EXPECT_EQ(cluster.wake(), kLease);
  EXPECT_GT(rounds(kLease), 0);
}

}  // namespace
}  // namespace stasis::scheduler

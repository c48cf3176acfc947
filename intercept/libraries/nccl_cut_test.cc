#include "intercept/libraries/nccl_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

namespace stasis::nccl {
namespace {

using Kind = Operation::Kind;

Operation Call(const char* call, Kind kind, const CutRankPtr& rank = nullptr, int peer = 0,
               uint64_t meeting = 0) {
  Operation operation;
  operation.call = call;
  operation.kind = kind;
  operation.rank = rank;
  operation.peer = peer;
  operation.meeting = meeting;
  return operation;
}
Operation GroupStart() { return Call("ncclGroupStart", Kind::kGroupStart); }
Operation GroupEnd() { return Call("ncclGroupEnd", Kind::kGroupEnd); }
Operation AllReduce(const CutRankPtr& rank) { return Call("ncclAllReduce", Kind::kCollective, rank); }
Operation Send(const CutRankPtr& rank, int peer) { return Call("ncclSend", Kind::kSend, rank, peer); }
Operation Receive(const CutRankPtr& rank, int peer) { return Call("ncclRecv", Kind::kReceive, rank, peer); }

CutTargets Targets(std::vector<RankTarget> ranks) {
  CutTargets targets;
  targets.ranks = std::move(ranks);
  return targets;
}

std::vector<std::string> Names(const Cut& cut) {
  std::vector<std::string> names;
  for (const TaskBlocker& blocker : cut.Missing()) names.push_back(blocker.call);
  return names;
}

class CutTest : public testing::Test {
 protected:
  CutThreadPtr AddThread() {
    auto thread = std::make_shared<CutThread>();
    thread->tid = ++threads_;
    cut_.AddThread(thread);
    return thread;
  }
  void Do(const CutThreadPtr& thread, const Operation& operation, bool success = true) {
    cut_.Enter(thread, operation);
    cut_.Leave(*thread, success);
  }

  Cut cut_;
  int threads_ = 0;
};

TEST_F(CutTest, IsSettledWhenRanksHaveIssuedTheSame) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 2, 1, "ncclCommInitRank");
  EXPECT_TRUE(cut_.Settled());
  Do(a, AllReduce(r0));
  EXPECT_FALSE(cut_.Settled());
  EXPECT_EQ(Names(cut_), std::vector<std::string>{"ncclAllReduce #1 of rank 1"});
  Do(b, AllReduce(r1));
  EXPECT_TRUE(cut_.Settled());
  EXPECT_TRUE(Names(cut_).empty());
}

TEST_F(CutTest, LetsTheRankThatIsBehindGoOnAndHoldsTheOther) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 2, 1, "ncclCommInitRank");
  Do(a, AllReduce(r0));
  cut_.Hold(*a, AllReduce(r0));
  EXPECT_FALSE(cut_.Admit());
  cut_.Hold(*b, AllReduce(r1));
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
  EXPECT_FALSE(a->admitted);
  EXPECT_FALSE(cut_.Settled());
  Do(b, AllReduce(r1));
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, MatchesSendsWithReceives) {
  const CutThreadPtr a = AddThread(), b = AddThread(), c = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 3, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 3, 1, "ncclCommInitRank"),
                   r2 = cut_.AddRank(1, 3, 2, "ncclCommInitRank");
  Do(a, Send(r0, 2));
  Do(c, Receive(r2, 1));
  EXPECT_EQ(Names(cut_), (std::vector<std::string>{"ncclSend #1 of rank 1 to rank 2",
                                                   "ncclRecv #1 of rank 2 from rank 0"}));
  Do(c, Receive(r2, 0));
  EXPECT_FALSE(cut_.Settled());
  Do(b, Send(r1, 2));
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, AGroupCountsAtItsEndAndIsLetGoOn) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 2, 1, "ncclCommInitRank");
  Do(a, GroupStart());
  EXPECT_TRUE(Cut::MayPass(*a, AllReduce(r0)));
  Do(a, AllReduce(r0));
  EXPECT_EQ(r0->issued.collectives, 0u);
  EXPECT_EQ(Names(cut_), std::vector<std::string>{"ncclGroupEnd"});
  Do(a, GroupStart());
  Do(a, AllReduce(r1));
  Do(a, GroupEnd());
  EXPECT_EQ(r1->issued.collectives, 0u);
  Do(a, GroupEnd());
  EXPECT_EQ(r0->issued.collectives, 1u);
  EXPECT_EQ(r1->issued.collectives, 1u);
  EXPECT_EQ(r1->issued.groups, 1u);
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, WhatHasFailedWasNotIssued) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 2, 1, "ncclCommInitRank");
  Do(a, AllReduce(r0), /*success=*/false);
  EXPECT_TRUE(cut_.Settled());
  Do(a, GroupStart());
  Do(a, AllReduce(r1));
  Do(a, GroupEnd(), /*success=*/false);
  EXPECT_TRUE(cut_.Settled());
  EXPECT_EQ(r1->issued.groups, 0u);
}

TEST_F(CutTest, AMeetingLetsTheOthersIn) {
  const CutThreadPtr a = AddThread(), b = AddThread(), c = AddThread();
  const Operation init = Call("ncclCommInitRank", Kind::kMeeting, nullptr, 0, 77);
  const Operation other = Call("ncclCommInitRank", Kind::kMeeting, nullptr, 0, 78);
  cut_.Enter(a, init);
  cut_.Hold(*b, init);
  cut_.Hold(*c, other);
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
  EXPECT_FALSE(c->admitted);
  EXPECT_FALSE(cut_.Settled());
  cut_.Enter(b, init);
  cut_.Leave(*a, true);
  cut_.OpenMeeting(77, "ncclCommInitRankConfig");
  cut_.Leave(*b, true);
  EXPECT_FALSE(cut_.Settled());
  EXPECT_EQ(Names(cut_), std::vector<std::string>{"ncclCommInitRankConfig"});
  cut_.CloseMeeting(77);
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, ACallThatMakesACommunicatorMayBeTheAwaitedOne) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  cut_.Hold(*b, Call("ncclCommInitRank", Kind::kMeeting));
  EXPECT_FALSE(cut_.Admit());
  cut_.Enter(a, Call("ncclCommInitRank", Kind::kMeeting, nullptr, 0, 77));
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
}

TEST_F(CutTest, EndingACommunicatorWaitsForTheOtherRanks) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  const CutRankPtr r0 = cut_.AddRank(5, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(5, 2, 1, "ncclCommInitRank");
  Do(b, AllReduce(r1));
  Do(a, AllReduce(r0));
  cut_.Enter(a, Call("ncclCommDestroy", Kind::kMeeting, r0, 0, 5));
  // What the other one is held before comes ahead of its own destruction.
  cut_.Hold(*b, GroupStart());
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
}

TEST_F(CutTest, ACommunicatorThatOneRankHasEndedIsEndedByTheOthers) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  CutRankPtr r0 = cut_.AddRank(5, 2, 0, "ncclCommInitRank");
  const CutRankPtr r1 = cut_.AddRank(5, 2, 1, "ncclCommInitRank");
  cut_.Hold(*b, Call("ncclCommDestroy", Kind::kMeeting, r1, 0, 5));
  cut_.OpenMeeting(77, "ncclCommInitRank");
  EXPECT_FALSE(cut_.Admit());
  r0.reset();
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
}

TEST_F(CutTest, RanksThatAreOverAreNotWaitedFor) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank"),
                   r1 = cut_.AddRank(1, 2, 1, "ncclCommInitRank");
  Do(a, AllReduce(r0));
  r0->over = true;
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, OtherProcessesSetTargets) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr r0 = cut_.AddRank(1, 2, 0, "ncclCommInitRank");
  cut_.SetTargets(Targets({{1, 0, {1, {}, {{1, 1}}}}, {1, 1, {9, {}, {}}}, {2, 0, {9, {}, {}}}}));
  EXPECT_EQ(Names(cut_),
            (std::vector<std::string>{"collective #1 of rank 0", "ncclRecv #1 of rank 0 from rank 1"}));
  Do(a, AllReduce(r0));
  EXPECT_FALSE(cut_.Settled());
  Do(a, Receive(r0, 1));
  EXPECT_TRUE(cut_.Settled());
  Do(a, AllReduce(r0));
  EXPECT_TRUE(cut_.Settled());
  cut_.SetTargets({});
  EXPECT_TRUE(cut_.Settled());
}

TEST_F(CutTest, ReportsRanksOfCommunicatorsThatReachOtherProcesses) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr here = cut_.AddRank(1, 1, 0, "ncclCommInitAll");
  const CutRankPtr shared = cut_.AddRank(2, 3, 1, "ncclCommInitRank");
  Do(a, AllReduce(shared));
  Do(a, Send(shared, 2));
  const CutReport report = cut_.Report();
  EXPECT_TRUE(report.settled);
  ASSERT_EQ(report.ranks.size(), 1u);
  EXPECT_EQ(report.ranks[0].comm, 2u);
  EXPECT_EQ(report.ranks[0].size, 3);
  EXPECT_EQ(report.ranks[0].rank, 1);
  EXPECT_EQ(report.ranks[0].made_by, "ncclCommInitRank");
  EXPECT_EQ(report.ranks[0].issued, (RankCounts{1, {{2, 1}}, {}}));
  EXPECT_FALSE(report.ranks[0].over);
}

TEST_F(CutTest, ReportsWhatIsOverToThoseWhoAsk) {
  CutRankPtr shared = cut_.AddRank(2, 2, 1, "ncclCommInitRank");
  CutRankPtr here = cut_.AddRank(3, 1, 0, "ncclCommInitRank");
  for (CutRankPtr* rank : {&shared, &here}) {
    cut_.SetOver(**rank);
    rank->reset();
  }
  EXPECT_TRUE(cut_.Report().ranks.empty());
  cut_.SetTargets(Targets({{2, 0, {}}, {3, 0, {}}}));
  const CutReport report = cut_.Report();
  ASSERT_EQ(report.ranks.size(), 1u);
  EXPECT_EQ(report.ranks[0].comm, 2u);
  EXPECT_EQ(report.ranks[0].rank, 1);
  EXPECT_TRUE(report.ranks[0].over);
}

TEST_F(CutTest, WhatOthersAreInsideOfIsJoined) {
  const CutThreadPtr a = AddThread(), b = AddThread();
  const CutRankPtr r0 = cut_.AddRank(5, 2, 0, "ncclCommInitRank");
  cut_.Hold(*a, Call("ncclCommDestroy", Kind::kMeeting, r0, 0, 5));
  cut_.Hold(*b, Call("ncclCommInitRank", Kind::kMeeting));
  EXPECT_TRUE(cut_.Settled());
  CutTargets targets;
  targets.meetings = {5};
  cut_.SetTargets(targets);
  EXPECT_FALSE(cut_.Settled());
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(a->admitted);
  EXPECT_FALSE(b->admitted);
  targets.making = true;
  cut_.SetTargets(targets);
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(b->admitted);
  cut_.Enter(b, Call("ncclCommInitRank", Kind::kMeeting, nullptr, 0, 9));
  const CutReport report = cut_.Report();
  EXPECT_EQ(report.meetings, std::vector<CommKey>{9});
  EXPECT_TRUE(report.making);
  EXPECT_FALSE(report.settled);
}

TEST_F(CutTest, WhatIsEndedElsewhereIsEndedHereByWhoeverGetsThere) {
  const CutThreadPtr a = AddThread();
  const CutRankPtr r0 = cut_.AddRank(5, 2, 0, "ncclCommInitRank");
  Do(a, AllReduce(r0));
  CutTargets targets;
  targets.meetings = {5};
  cut_.SetTargets(targets);
  // What it is held before comes ahead of its own end.
  cut_.Hold(*a, AllReduce(r0));
  EXPECT_TRUE(cut_.Admit());
  EXPECT_TRUE(a->admitted);
  cut_.Hold(*a, Call("ncclCommDestroy", Kind::kMeeting, r0, 0, 5));
  targets = {};
  cut_.SetTargets(targets);
  EXPECT_TRUE(cut_.Settled());
  EXPECT_FALSE(cut_.Admit());
  targets.ended = {5};
  cut_.SetTargets(targets);
  EXPECT_TRUE(cut_.Settled());
  EXPECT_TRUE(cut_.Admit());
}

// ---- Random programs: threads drive ranks of several communicators in one global order, which makes them
// free of deadlocks; a pause comes at a random point and must find them at a cut, whatever runs when.

struct Step {
  enum class What { kCall, kAwait } what = What::kCall;
  Operation operation;          // kCall
  std::vector<Operation> done;  // kAwait: of these ranks, all partners must have come
};

class Simulation {
 public:
  // `known`: each rank's thread is known from the beginning, as when that thread has made it.
  Simulation(uint32_t seed, bool known) : random_(seed), known_(known) {
    const int threads = Below(4) + 1, cliques = Below(3) + 1;
    for (int t = 0; t < threads; ++t) {
      threads_.push_back(std::make_shared<CutThread>());
      threads_.back()->tid = t + 1;
      cut_.AddThread(threads_.back());
    }
    steps_.resize(threads_.size());
    next_.resize(threads_.size());
    for (int c = 0; c < cliques; ++c) AddClique(c);
    for (int n = Below(40) + 5; n > 0; --n) AddGlobalOperation();
  }

  // False when the cut was not reached, or reached too early.
  ::testing::AssertionResult Run() {
    for (int n = Below(60); n > 0; --n) RunSomebody();
    closing_ = true;
    Advance();
    for (int n = 0; n < 100000 && !settled_; ++n) {
      if (!RunSomebody() && (known_ || !cut_.AdmitAll()))
        return ::testing::AssertionFailure() << "nobody can go on and the cut is not reached";
    }
    if (!settled_) return ::testing::AssertionFailure() << "no end";
    if (!Matched()) return ::testing::AssertionFailure() << "something in flight lacks its partner";
    closing_ = settled_ = false;
    for (const CutThreadPtr& thread : threads_) thread->held = false;
    while (RunSomebody()) {
    }
    for (size_t t = 0; t < threads_.size(); ++t)
      if (next_[t] != steps_[t].size())
        return ::testing::AssertionFailure() << "thread " << t << " does not end";
    return ::testing::AssertionSuccess();
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  void AddClique(int c) {
    const int size = Below(4) + 1;
    cliques_.emplace_back();
    for (int r = 0; r < size; ++r) {
      cliques_.back().push_back(cut_.AddRank(static_cast<uint64_t>(c) + 1, size, r, "ncclCommInitRank"));
      const auto owner = static_cast<size_t>(Below(static_cast<int>(threads_.size())));
      owners_.push_back({cliques_.back().back(), owner});
      if (known_) cliques_.back().back()->driver = threads_[owner];
    }
  }

  size_t OwnerOf(const CutRankPtr& rank) const {
    return std::find_if(owners_.begin(), owners_.end(),
                        [&](const auto& owner) { return owner.first == rank; })
        ->second;
  }

  // One collective of all ranks, or one message; what a thread has to do for several ranks is a group.
  void AddGlobalOperation() {
    const std::vector<CutRankPtr>& clique =
        cliques_[static_cast<size_t>(Below(static_cast<int>(cliques_.size())))];
    const int size = static_cast<int>(clique.size());
    std::vector<std::vector<Operation>> parts(threads_.size());
    if (Below(2) == 0) {
      for (const CutRankPtr& rank : clique) parts[OwnerOf(rank)].push_back(AllReduce(rank));
    } else {
      const int from = Below(size), to = Below(size);
      const CutRankPtr &source = clique[static_cast<size_t>(from)], &sink = clique[static_cast<size_t>(to)];
      parts[OwnerOf(source)].push_back(Send(source, to));
      parts[OwnerOf(sink)].push_back(Receive(sink, from));
    }
    for (size_t t = 0; t < parts.size(); ++t) AddPart(t, parts[t]);
  }

  void AddPart(size_t t, const std::vector<Operation>& operations) {
    if (operations.empty()) return;
    const bool group = operations.size() > 1 || Below(3) == 0;
    if (group) steps_[t].push_back({Step::What::kCall, GroupStart(), {}});
    for (const Operation& operation : operations) steps_[t].push_back({Step::What::kCall, operation, {}});
    if (group) steps_[t].push_back({Step::What::kCall, GroupEnd(), {}});
    if (Below(2) == 0) steps_[t].push_back({Step::What::kAwait, {}, operations});
  }

  static uint64_t Count(const std::map<int, uint64_t>& counts, int peer) {
    return counts.count(peer) == 0 ? 0 : counts.at(peer);
  }

  // What the thread has issued on that rank is done, because all partners have come.
  bool Done(const Operation& operation) {
    const CutRank& rank = *operation.rank;
    for (const auto& weak : rank.clique->ranks) {
      const CutRankPtr other = weak.lock();
      if (operation.kind == Kind::kCollective && other->issued.collectives < rank.issued.collectives)
        return false;
      if (operation.kind == Kind::kSend && other->rank == operation.peer &&
          Count(other->issued.receives, rank.rank) < Count(rank.issued.sends, other->rank))
        return false;
      if (operation.kind == Kind::kReceive && other->rank == operation.peer &&
          Count(other->issued.sends, rank.rank) < Count(rank.issued.receives, other->rank))
        return false;
    }
    return true;
  }

  bool Matched() {
    for (const auto& clique : cliques_)
      for (const CutRankPtr& rank : clique) {
        if (!Done(AllReduce(rank))) return false;
        for (int peer = 0; peer < static_cast<int>(clique.size()); ++peer)
          if (!Done(Send(rank, peer)) || !Done(Receive(rank, peer))) return false;
      }
    return true;
  }

  void Advance() {
    if (!closing_ || settled_) return;
    if (cut_.Settled()) {
      settled_ = true;
    } else {
      (void)cut_.Admit();
    }
  }

  bool CanRun(size_t t) {
    if (threads_[t]->inside) return true;
    if (next_[t] == steps_[t].size()) return false;
    const Step& step = steps_[t][next_[t]];
    if (step.what == Step::What::kAwait)
      return std::all_of(step.done.begin(), step.done.end(), [this](const Operation& o) { return Done(o); });
    return !threads_[t]->held || threads_[t]->admitted;
  }

  bool RunSomebody() {
    std::vector<size_t> able;
    for (size_t t = 0; t < threads_.size(); ++t)
      if (CanRun(t)) able.push_back(t);
    if (able.empty()) return false;
    RunOne(able[static_cast<size_t>(Below(static_cast<int>(able.size())))]);
    return true;
  }

  void RunOne(size_t t) {
    const CutThreadPtr& thread = threads_[t];
    if (thread->inside) {
      cut_.Leave(*thread, true);
      ++next_[t];
      return Advance();
    }
    const Step& step = steps_[t][next_[t]];
    if (step.what == Step::What::kAwait) {
      ++next_[t];
      return;
    }
    const bool pass = !closing_ || thread->admitted || (!settled_ && Cut::MayPass(*thread, step.operation));
    if (pass) {
      cut_.Enter(thread, step.operation);
    } else {
      cut_.Hold(*thread, step.operation);
    }
    Advance();
  }

  std::mt19937 random_;
  const bool known_;
  Cut cut_;
  std::vector<CutThreadPtr> threads_;
  std::vector<std::vector<Step>> steps_;
  std::vector<size_t> next_;
  std::vector<std::vector<CutRankPtr>> cliques_;
  std::vector<std::pair<CutRankPtr, size_t>> owners_;
  bool closing_ = false, settled_ = false;
};

TEST(CutSimulationTest, FindsACutInEveryProgramThatEnds) {
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    ASSERT_TRUE(Simulation(seed, false).Run()) << "seed " << seed;
    ASSERT_TRUE(Simulation(seed, true).Run()) << "seed " << seed << ", threads known";
  }
}

}  // namespace
}  // namespace stasis::nccl

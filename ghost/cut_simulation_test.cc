// Random programs of several processes, whose threads drive ranks of communicators that come and go, in one
// global order, which makes them free of deadlocks. A pause comes at a random point and must find all of them
// at a cut, whatever runs when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ghost/cut.h"
#include "intercept/libraries/nccl_cut.h"

namespace stasis {
namespace {

using nccl::Cut;
using nccl::CutRankPtr;
using nccl::CutThread;
using nccl::CutThreadPtr;
using nccl::Operation;
using Kind = Operation::Kind;
using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

struct Step {
  enum class What {
    kCall,   // of NCCL
    kAwait,  // the device has done what this rank has issued
    kSync,   // the threads meet without NCCL
    kId,     // a new unique id
  } what = What::kCall;
  const char* name = "";
  Kind kind = Kind::kLocal;
  int comm = -1, rank = -1, peer = 0;
  int sync = 0;
};

struct Comm {
  struct Rank {
    size_t thread = 0;
    CutRankPtr cut;        // once it is made
    bool arrived = false;  // in the call that makes it
    bool leaving = false;  // in the call that ends it, or past it
    bool ended = false;
  };
  CommKey key = 0;
  size_t id_maker = 0;  // thread
  bool id_known = false;
  bool ends_together = false;  // who ends it waits for the others
  bool ended = false;          // in the program's text
  std::vector<Rank> ranks;
};

struct Thread {
  size_t process = 0;
  CutThreadPtr cut = std::make_shared<CutThread>();
  std::vector<Step> steps;
  size_t next = 0;
  bool waiting = false;  // at the gate
  bool passing = false;  // let through, and not inside yet
  std::vector<Step> group;
};

struct Process {
  Cut cut;
  bool closed = false, advancing = false, admit_all = false;
  CutTargets targets;
  CutReport report;
  uint32_t events = 0;
  std::set<CommKey> ids, used;
};

class JobSimulation {
 public:
  explicit JobSimulation(uint32_t seed) : random_(seed) {
    processes_ = std::vector<Process>(static_cast<size_t>(Below(4) + 1));
    threads_.resize(processes_.size() * static_cast<size_t>(Below(2) + 1));
    for (size_t t = 0; t < threads_.size(); ++t) {
      threads_[t].process = t % processes_.size();
      threads_[t].cut->tid = static_cast<int>(t) + 1;
      Home(t).cut.AddThread(threads_[t].cut);
    }
    AddComm();
    for (int n = Below(40) + 5; n > 0; --n) AddToProgram();
    syncs_.resize(static_cast<size_t>(next_sync_));
  }

  AssertionResult Run() {
    for (int n = Below(80); n > 0; --n) (void)RunSomebody();
    for (int round = 0; !search_.settled(); ++round) {
      if (round == 3000) return AssertionFailure() << "no cut: " << search_.Missing();
      if (!search_.refused().ok()) return AssertionFailure() << search_.refused().ToString();
      Round();
    }
    for (const Process& process : processes_)
      if (AnyInside(process)) return AssertionFailure() << "a thread is inside";
    for (const Comm& comm : comms_)
      if (!Matched(comm)) return AssertionFailure() << "something in flight lacks its partner";
    if (AssertionResult whole = CanBeMadeAgain(); !whole) return whole;
    Reopen();
    while (RunSomebody()) {
    }
    for (size_t t = 0; t < threads_.size(); ++t)
      if (threads_[t].next != threads_[t].steps.size())
        return AssertionFailure() << "thread " << t << " does not end";
    return AssertionSuccess();
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  size_t Below(size_t n) { return random_() % n; }
  Process& Home(size_t thread) { return processes_[threads_[thread].process]; }

  // ---- The program

  void Add(size_t thread, Step step) { threads_[thread].steps.push_back(step); }
  void AddCall(size_t thread, const char* name, Kind kind, int comm = -1, int rank = -1, int peer = 0) {
    Add(thread, {Step::What::kCall, name, kind, comm, rank, peer, 0});
  }
  // What one thread does at the same time for several ranks is a group.
  void AddParts(const std::vector<std::vector<Step>>& parts, bool grouped = false) {
    for (size_t t = 0; t < parts.size(); ++t) {
      if (parts[t].empty()) continue;
      const bool group = grouped || parts[t].size() > 1 || Below(3) == 0;
      if (group) AddCall(t, "ncclGroupStart", Kind::kGroupStart);
      for (const Step& step : parts[t]) Add(t, step);
      if (group) AddCall(t, "ncclGroupEnd", Kind::kGroupEnd);
    }
  }

  void AddToProgram() {
    const int what = Below(20);
    if (what == 0 && comms_.size() < 8) return AddComm();
    if (what == 1) return EndComm();
    if (what == 2) return AddSync();
    AddOperations();
  }

  void AddComm() {
    const int c = static_cast<int>(comms_.size());
    Comm comm;
    comm.key = static_cast<CommKey>(c) + 100;
    comm.id_maker = Below(threads_.size());
    comm.ranks.resize(static_cast<size_t>(Below(5) + 1));
    std::vector<std::vector<Step>> parts(threads_.size());
    for (size_t r = 0; r < comm.ranks.size(); ++r) {
      const size_t t = comm.ranks[r].thread = Below(threads_.size());
      parts[t].push_back(
          {Step::What::kCall, "ncclCommInitRank", Kind::kMeeting, c, static_cast<int>(r), 0, 0});
    }
    const auto several = [](const std::vector<Step>& part) { return part.size() > 1; };
    comm.ends_together = std::none_of(parts.begin(), parts.end(), several) && Below(2) == 0;
    Add(comm.id_maker, {Step::What::kId, "ncclGetUniqueId", Kind::kLocal, c, -1, 0, 0});
    comms_.push_back(std::move(comm));
    AddParts(parts);
  }

  // -1: none lives.
  int SomeComm() {
    const int c = static_cast<int>(Below(comms_.size()));
    return comms_[static_cast<size_t>(c)].ended ? -1 : c;
  }

  void EndComm() {
    const int c = SomeComm();
    if (c < 0) return;
    Comm& comm = comms_[static_cast<size_t>(c)];
    comm.ended = true;
    for (size_t r = 0; r < comm.ranks.size(); ++r) {
      const size_t t = comm.ranks[r].thread;
      Add(t, {Step::What::kAwait, "", Kind::kLocal, c, static_cast<int>(r), 0, 0});
      AddCall(t, "ncclCommDestroy", Kind::kMeeting, c, static_cast<int>(r));
    }
  }

  void AddSync() {
    const int sync = next_sync_++;
    for (size_t t = 0; t < threads_.size(); ++t)
      Add(t, {Step::What::kSync, "", Kind::kLocal, -1, -1, 0, sync});
  }

  // Collectives and messages, of several communicators in one group now and then.
  void AddOperations() {
    std::vector<std::vector<Step>> parts(threads_.size());
    std::vector<std::pair<int, int>> awaited;
    const int count = Below(4) == 0 ? 3 : 1;
    for (int n = 0; n < count; ++n) {
      const int c = SomeComm();
      if (c < 0) continue;
      const Comm& comm = comms_[static_cast<size_t>(c)];
      const auto add = [&](int rank, const char* name, Kind kind, int peer) {
        parts[comm.ranks[static_cast<size_t>(rank)].thread].push_back(
            {Step::What::kCall, name, kind, c, rank, peer, 0});
        awaited.push_back({c, rank});
      };
      const int size = static_cast<int>(comm.ranks.size());
      if (Below(2) == 0) {
        for (int r = 0; r < size; ++r) add(r, "ncclAllReduce", Kind::kCollective, 0);
      } else {
        const int from = Below(size), to = Below(size);
        add(from, "ncclSend", Kind::kSend, to);
        add(to, "ncclRecv", Kind::kReceive, from);
      }
    }
    AddParts(parts, count > 1);
    for (const auto& [c, r] : awaited)
      if (Below(3) == 0)
        Add(comms_[static_cast<size_t>(c)].ranks[static_cast<size_t>(r)].thread,
            {Step::What::kAwait, "", Kind::kLocal, c, r, 0, 0});
  }

  // ---- What holds

  static uint64_t Count(const std::map<int, uint64_t>& counts, int peer) {
    const auto found = counts.find(peer);
    return found == counts.end() ? 0 : found->second;
  }

  // All partners of what the rank has issued have come.
  static bool Done(const Comm& comm, size_t r) {
    const CutRankPtr& rank = comm.ranks[r].cut;
    if (rank == nullptr) return true;
    for (const Comm::Rank& entry : comm.ranks) {
      const CutRankPtr& other = entry.cut;
      if (other == nullptr) return rank->issued == RankCounts{};
      if (other->issued.collectives < rank->issued.collectives ||
          Count(other->issued.receives, rank->rank) < Count(rank->issued.sends, other->rank) ||
          Count(other->issued.sends, rank->rank) < Count(rank->issued.receives, other->rank))
        return false;
    }
    return true;
  }

  static bool Matched(const Comm& comm) {
    for (size_t r = 0; r < comm.ranks.size(); ++r)
      if (!Done(comm, r)) return false;
    return true;
  }

  // Who has a rank of a communicator that another process has ended a rank of has been told.
  AssertionResult CanBeMadeAgain() const {
    for (const Comm& comm : comms_) {
      const auto lives = [](const Comm::Rank& rank) { return rank.cut != nullptr && !rank.ended; };
      if (std::all_of(comm.ranks.begin(), comm.ranks.end(), lives)) continue;
      std::set<size_t> homes;
      for (const Comm::Rank& rank : comm.ranks) homes.insert(threads_[rank.thread].process);
      for (const Comm::Rank& rank : comm.ranks) {
        const std::vector<CommKey>& ended = processes_[threads_[rank.thread].process].targets.ended;
        if (homes.size() > 1 && lives(rank) && std::count(ended.begin(), ended.end(), comm.key) == 0)
          return AssertionFailure() << "communicator " << comm.key << " has lost a rank, and nobody is told";
      }
    }
    return AssertionSuccess();
  }

  bool AnyInside(const Process& process) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
      return &processes_[thread.process] == &process &&
             (thread.passing || thread.cut->inside || thread.cut->depth != 0);
    });
  }

  // ---- Running

  Operation OperationOf(const Step& step, bool held) const {
    Operation operation;
    operation.call = step.name;
    operation.kind = step.kind;
    operation.peer = step.peer;
    if (step.comm < 0 || step.rank < 0) return operation;
    const Comm& comm = comms_[static_cast<size_t>(step.comm)];
    operation.rank = comm.ranks[static_cast<size_t>(step.rank)].cut;
    // Which communicator a held call makes is not known.
    if (step.kind == Kind::kMeeting && (operation.rank != nullptr || !held)) operation.meeting = comm.key;
    return operation;
  }

  Comm::Rank& RankOf(const Step& step) {
    return comms_[static_cast<size_t>(step.comm)].ranks[static_cast<size_t>(step.rank)];
  }
  bool Makes(const Step& step) const { return step.kind == Kind::kMeeting && step.name[8] == 'I'; }
  bool Ends(const Step& step) const { return step.kind == Kind::kMeeting && !Makes(step); }

  // The calls a thread is inside of.
  std::vector<Step> Inside(const Thread& thread) const {
    const Step& step = thread.steps[thread.next];
    if (step.kind == Kind::kGroupEnd) return thread.cut->depth == 1 ? thread.group : std::vector<Step>();
    return thread.cut->depth == 0 ? std::vector<Step>{step} : std::vector<Step>();
  }

  bool CanLeave(const Thread& thread) const {
    for (const Step& step : Inside(thread)) {
      if (step.kind != Kind::kMeeting) continue;
      const Comm& comm = comms_[static_cast<size_t>(step.comm)];
      const auto missing = [&](const Comm::Rank& rank) {
        return Makes(step) ? !rank.arrived : !rank.leaving;
      };
      if ((Makes(step) || comm.ends_together) && std::any_of(comm.ranks.begin(), comm.ranks.end(), missing))
        return false;
    }
    return true;
  }

  bool CanRun(const Thread& thread) const {
    if (thread.cut->inside) return CanLeave(thread);
    if (thread.next == thread.steps.size()) return false;
    const Step& step = thread.steps[thread.next];
    if (step.what == Step::What::kAwait)
      return Done(comms_[static_cast<size_t>(step.comm)], static_cast<size_t>(step.rank));
    if (step.what == Step::What::kSync) {
      const std::set<size_t>& there = syncs_[static_cast<size_t>(step.sync)];
      return there.count(Index(thread)) == 0 || there.size() == threads_.size();
    }
    // The number of an id comes over the program's own network.
    if (Makes(step) && !comms_[static_cast<size_t>(step.comm)].id_known) return false;
    return !thread.waiting || thread.passing;
  }

  size_t Index(const Thread& thread) const { return static_cast<size_t>(&thread - threads_.data()); }

  bool RunSomebody() {
    std::vector<size_t> able;
    for (size_t t = 0; t < threads_.size(); ++t)
      if (CanRun(threads_[t])) able.push_back(t);
    if (able.empty()) return false;
    RunOne(threads_[able[Below(able.size())]]);
    return true;
  }

  void RunOne(Thread& thread) {
    Process& process = processes_[thread.process];
    if (thread.cut->inside) return Leave(thread, process);
    const Step& step = thread.steps[thread.next];
    if (step.what == Step::What::kSync && syncs_[static_cast<size_t>(step.sync)].insert(Index(thread)).second)
      return;
    if (step.what == Step::What::kAwait || step.what == Step::What::kSync) {
      ++thread.next;
      return;
    }
    if (process.closed && !thread.passing) {
      thread.waiting = true;
      ++process.events;
      return Look(process);
    }
    thread.waiting = thread.passing = false;
    Enter(thread, process, step);
    Look(process);
  }

  void Enter(Thread& thread, Process& process, const Step& step) {
    process.cut.Enter(thread.cut, OperationOf(step, false));
    for (const Step& inside : Inside(thread)) {
      if (Makes(inside)) RankOf(inside).arrived = true;
      if (Ends(inside)) RankOf(inside).leaving = true;
    }
    if (step.what != Step::What::kId) return;
    Comm& comm = comms_[static_cast<size_t>(step.comm)];
    comm.id_known = true;
    process.ids.insert(comm.key);
    process.cut.OpenMeeting(comm.key, "ncclCommInitRank");
  }

  void Leave(Thread& thread, Process& process) {
    const Step step = thread.steps[thread.next++];
    const bool queued = thread.cut->depth > 0;
    for (const Step& done : InsideOf(step, thread)) {
      if (Makes(done)) Made(thread, process, done);
      if (Ends(done)) {
        RankOf(done).ended = true;
        process.cut.SetOver(*RankOf(done).cut);
      }
    }
    if (Makes(step)) NoteUsed(process, comms_[static_cast<size_t>(step.comm)].key);
    if (queued && step.kind != Kind::kGroupEnd) thread.group.push_back(step);
    if (step.kind == Kind::kGroupEnd && thread.cut->depth == 1) thread.group.clear();
    process.cut.Leave(*thread.cut, true);
    ++process.events;
    Look(process);
  }

  std::vector<Step> InsideOf(const Step& step, const Thread& thread) const {
    if (step.kind == Kind::kGroupEnd) return thread.cut->depth == 1 ? thread.group : std::vector<Step>();
    return thread.cut->depth == 0 ? std::vector<Step>{step} : std::vector<Step>();
  }

  void Made(Thread& thread, Process& process, const Step& step) {
    const Comm& comm = comms_[static_cast<size_t>(step.comm)];
    CutRankPtr& made = RankOf(step).cut;
    made = process.cut.AddRank(comm.key, static_cast<int>(comm.ranks.size()), step.rank, step.name);
    made->driver = thread.cut;
  }

  static void NoteUsed(Process& process, CommKey key) {
    if (process.ids.erase(key) != 0) {
      process.cut.CloseMeeting(key);
    } else {
      process.used.insert(key);
    }
  }

  // ---- The pause

  // As NcclLedger::Advance().
  void Look(Process& process) {
    if (!process.advancing) return;
    const bool all = std::exchange(process.admit_all, false);
    HoldWaiting(process);
    process.report = process.cut.Report();
    process.report.settled = process.report.settled && !AnyPassing(process);
    if (process.report.settled && !all) return Return(process);
    if (!process.report.settled) (void)process.cut.Admit();
    if (all) (void)process.cut.AdmitAll();
    for (Thread& thread : threads_)
      if (&processes_[thread.process] == &process && thread.waiting && thread.cut->admitted)
        thread.passing = true;
  }

  bool AnyPassing(const Process& process) const {
    return std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
      return &processes_[thread.process] == &process && thread.passing;
    });
  }

  void HoldWaiting(Process& process) {
    for (Thread& thread : threads_) {
      if (&processes_[thread.process] != &process || !thread.waiting || thread.passing || thread.cut->held)
        continue;
      process.cut.Hold(*thread.cut, OperationOf(thread.steps[thread.next], true));
    }
  }

  static void Return(Process& process) {
    process.advancing = false;
    process.report.events = process.events;
    process.report.used.clear();
    for (const CommKey key : process.targets.meetings)
      if (process.used.count(key) != 0) process.report.used.push_back(key);
  }

  void Begin(Process& process) {
    process.closed = process.advancing = true;
    process.targets = search_.targets();
    process.admit_all = process.targets.admit_all;
    for (const CommKey key : process.targets.used)
      if (process.ids.erase(key) != 0) process.cut.CloseMeeting(key);
    process.cut.ForgetHeld();
    process.cut.SetTargets(process.targets);
    HoldWaiting(process);
    Look(process);
  }

  // One round of all processes, which begin and end it when they like.
  void Round() {
    std::deque<Process*> later;
    for (Process& process : processes_) later.push_back(&process);
    std::shuffle(later.begin(), later.end(), random_);
    while (!later.empty()) {
      Begin(*later.front());
      later.pop_front();
      for (int n = Below(6); n > 0; --n) (void)RunSomebody();
    }
    bool moved = false;
    // Those that have nothing to do come back after a while, the others are busy.
    for (int n = Below(12); n > 0 && RunSomebody(); --n) moved = true;
    std::vector<CutReport> reports;
    for (Process& process : processes_) {
      if (process.advancing) {
        process.report = process.cut.Report();
        process.report.settled = false;
        Return(process);
      }
      reports.push_back(process.report);
    }
    now_ += std::chrono::milliseconds(moved ? 1 : 40);
    search_.Take(reports, now_);
  }

  void Reopen() {
    for (Process& process : processes_) {
      process.closed = false;
      process.cut.ForgetHeld();
    }
    for (Thread& thread : threads_) thread.waiting = thread.passing = false;
  }

  std::mt19937 random_;
  std::vector<Process> processes_;
  std::vector<Thread> threads_;
  std::vector<Comm> comms_;
  std::vector<std::set<size_t>> syncs_;
  int next_sync_ = 0;
  CutSearch search_;
  MonotonicTime now_{};
};

TEST(CutSimulationTest, FindsACutInEveryJobThatEnds) {
  const char* full = getenv("STASIS_TEST_FULL");
  const uint32_t seeds = full != nullptr && full[0] == '1' ? 3000 : 1000;
  for (uint32_t seed = 1; seed <= seeds; ++seed) ASSERT_TRUE(JobSimulation(seed).Run()) << "seed " << seed;
}

}  // namespace
}  // namespace stasis

// How far each rank of each communicator has come, and which calls have to be let go on so that a pause finds
// the ranks at the same place: nothing in flight waits for a call that is held back.
//
// Plain bookkeeping: no locks, no calls of the library; NcclLedger guards it. Collectives are counted per
// rank, sends and receives per pair of ranks; a group issues what is in it at its end. A pause wants, for
// every communicator, that all ranks of this process have issued the same number of collectives, that each
// send has its receive, that nobody is inside of a call and that no group is open. Ranks in other processes
// are counted there: what they have issued comes as a target (base/rank_protocol.h).
#ifndef INTERCEPT_LIBRARIES_NCCL_CUT_H_
#define INTERCEPT_LIBRARIES_NCCL_CUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/rank_protocol.h"
#include "base/task_protocol.h"

namespace stasis::nccl {

// What one rank has issued.
struct Counters : RankCounts {
  uint64_t groups = 0;  // that had an operation of this rank in them
};

struct CutThread;
struct CutRank;

// The ranks of one communicator that are in this process.
struct Clique {
  uint64_t key = 0;             // the same in every process that has a rank of it
  int size = 0;                 // ranks, wherever they are
  const char* made_by = "";     // the call
  std::set<int> ever;           // ranks that were in this process
  bool over_elsewhere = false;  // a rank in another process is over
  std::vector<std::weak_ptr<CutRank>> ranks;

  bool shared() const { return static_cast<int>(ever.size()) < size; }
};

struct CutRank {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  // Nobody waits for it or with it any more: it has ended, failed, or was aborted.
  bool over = false;
  Counters issued;
  // What this rank has to issue because of ranks elsewhere; all zero: nothing.
  RankCounts target;
  std::weak_ptr<CutThread> driver;  // the thread that issued its last operation
  // Names of the last collectives, by number modulo the size.
  std::array<const char*, 64> names{};
};
using CutRankPtr = std::shared_ptr<CutRank>;

struct Operation {
  enum class Kind : uint8_t {
    kLocal,       // needs no other rank
    kCollective,  // of every rank of the communicator
    kSend,        // to `peer`
    kReceive,     // from `peer`
    kMeeting,     // makes or ends communicators: may wait inside for the same call of other ranks
    kGroupStart,
    kGroupEnd,
  };
  const char* call = "";
  Kind kind = Kind::kLocal;
  CutRankPtr rank;  // null: of no communicator that is known
  int peer = 0;
  uint64_t meeting = 0;  // of kMeeting: equal for the calls that wait for each other; 0: not known yet
};

struct CutThread {
  int tid = 0;
  int depth = 0;  // of open groups
  std::vector<Operation> group;
  // The call it is inside of, or is held before.
  bool inside = false;
  bool held = false;
  bool admitted = false;
  uint64_t held_id = 0;  // the library gate's number of the held call
  Operation call;
};
using CutThreadPtr = std::shared_ptr<CutThread>;

class Cut {
 public:
  void AddThread(const CutThreadPtr& thread);
  void RemoveThread(const CutThread& thread);
  // Null when no thread of that number is known.
  CutThreadPtr FindThread(int tid) const;
  const std::vector<CutThreadPtr>& threads() const { return threads_; }
  CutRankPtr AddRank(uint64_t clique_key, int size, int rank, const char* made_by);
  // Nobody will wait for it any more.
  void SetOver(CutRank& rank);
  // The child of a fork has none of the threads.
  void Reset();
  // No call is held any more.
  void ForgetHeld();

  // A thread is held before `operation`, goes into it, and comes out with success or without.
  void Hold(CutThread& thread, const Operation& operation);
  void Enter(const CutThreadPtr& thread, const Operation& operation);
  void Leave(CutThread& thread, bool success);
  // A meeting goes on although its call has returned (a communicator that does not block).
  void OpenMeeting(uint64_t meeting, const char* call);
  void CloseMeeting(uint64_t meeting);
  bool HasMeetings() const { return !meetings_.empty(); }

  // A call that may always go on while ranks are still on their way to the cut.
  static bool MayPass(const CutThread& thread, const Operation& operation);
  // Nothing that is in flight waits for a call to come.
  bool Settled() const;
  // Marks the held calls that something in flight waits for, and those that MayPass(); true when there are
  // new ones.
  bool Admit();
  // Marks all held calls: for when nothing moves although the ranks are not at the cut, since a thread may
  // wait for another one that is held.
  bool AdmitAll();
  // What the cut lacks, in words: "ncclAllReduce #17 of rank 1".
  std::vector<TaskBlocker> Missing() const;

  // ---- For ranks in other processes.

  // What this process's ranks have to do because of them, instead of what was said before.
  void SetTargets(const CutTargets& targets);
  // All of the report but `events`, `used` and the ranks' windows.
  CutReport Report() const;

 private:
  // Ranks of communicators that reach other processes, which may ask for them.
  struct Gone {
    int size = 0;
    const char* made_by = "";
    std::set<int> ranks;
  };
  static constexpr size_t kMaxGone = 4096;

  bool JoinsElsewhere(const CutThread& thread) const;
  bool IsAwaitedElsewhere(const CutRank& rank) const;
  void ReportRanks(CutReport* report) const;
  bool Awaited(const CutRank& rank) const;
  bool BehindInCollectives(const CutRank& rank) const;
  bool BehindWithPeers(const CutRank& rank) const;
  bool MeetingIsOpen(uint64_t meeting) const;
  bool SomebodyMakesOne() const;
  bool IsWanted(const CutThread& thread) const;
  bool DrivesAwaited(const CutThread& thread) const;
  bool HeldAt(const CutRank& rank) const;
  void Name(const CutRank& rank, std::vector<TaskBlocker>* missing) const;
  void NamePeers(const CutRank& rank, int tid, std::vector<TaskBlocker>* missing) const;
  std::vector<CutRankPtr> LivingRanks() const;

  std::vector<CutThreadPtr> threads_;
  std::map<uint64_t, std::weak_ptr<Clique>> cliques_;
  struct Meeting {
    const char* call = "";
    int count = 0;
  };
  std::map<uint64_t, Meeting> meetings_;
  // Of other processes.
  std::set<uint64_t> meetings_elsewhere_;
  bool making_elsewhere_ = false;
  std::set<uint64_t> asked_;  // communicators that have a rank somewhere
  std::map<uint64_t, Gone> gone_;
  std::deque<uint64_t> gone_order_;  // oldest first
};

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_CUT_H_

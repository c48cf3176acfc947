// The one book of the process about NCCL's calls (nccl_cut.h), with its lock, and the way to the cut.
//
// Every call of the program is noted when it has passed the library gate and when it ends, at the cost of a
// mutex that is never held across a call of the library. Thread-safe.
#ifndef INTERCEPT_LIBRARIES_NCCL_LEDGER_H_
#define INTERCEPT_LIBRARIES_NCCL_LEDGER_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/libraries/nccl_cut.h"

namespace stasis::nccl {

class NcclLedger {
 public:
  constexpr NcclLedger() = default;
  NcclLedger(const NcclLedger&) = delete;
  NcclLedger& operator=(const NcclLedger&) = delete;
  // Of the process; never destroyed.
  static NcclLedger& Get();

  // ---- For the calls of the program.
  void Enter(const Operation& operation);
  void Leave(bool success);
  // Open groups of the calling thread; the last one stays open until the call that ends it has left.
  int Depth();
  // The calling thread is taken for the one that drives the rank.
  CutRankPtr AddRank(uint64_t clique_key, int size, int rank, const char* made_by);
  // Nobody will wait for the rank any more.
  void SetOver(const CutRankPtr& rank);
  void OpenMeeting(uint64_t meeting, const char* call);
  void CloseMeeting(uint64_t meeting);

  // ---- For the pause, with the library gate shut.

  // What the ledger cannot know; called by Advance() without locks, except for the first.
  struct Knowledge {
    // Turns a held call of NCCL into an operation of a rank.
    std::function<Operation(const libraries::HeldCall& call)> describe;
    // Looks for meetings that have ended. Called now and then.
    std::function<void()> poll;
    // Whether it makes sense to wait. Called while nobody is inside.
    std::function<Status()> check;
  };
  // Lets calls pass until the ranks are where the targets want them and nobody is inside of NCCL, until
  // nothing has moved for `quiet`, for some times that, or until the deadline. `report` is filled in but for
  // `used` and windows.
  Status Advance(const CutTargets& targets, Duration quiet, const Deadline& deadline,
                 const Knowledge& knowledge, CutReport* report);
  // The same as it is, while nobody is inside.
  CutReport Report();

  // In the child.
  void ResetAfterFork();

 private:
  CutThreadPtr ThisThread();
  Cut& Book();
  void TakeHeld(const std::vector<libraries::HeldCall>& held, const Knowledge& knowledge);
  void LetPass(const std::vector<libraries::HeldCall>& held);
  bool Passes(const libraries::HeldCall& call);
  void NoteMove(const Operation& operation);
  static void ForgetThread(void* thread);

  std::mutex mutex_;
  Cut* cut_ = nullptr;  // guarded by mutex_
  uint32_t moves_ = 0;  // guarded by mutex_
};

// A call of the program that is inside, from its entry to its end.
class NcclCall {
 public:
  explicit NcclCall(const Operation& operation) { NcclLedger::Get().Enter(operation); }
  ~NcclCall() { NcclLedger::Get().Leave(success_); }
  NcclCall(const NcclCall&) = delete;
  NcclCall& operator=(const NcclCall&) = delete;
  // It has not been issued after all.
  void Failed() { success_ = false; }

 private:
  bool success_ = true;
};

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_LEDGER_H_

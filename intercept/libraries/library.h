// The CUDA libraries' part of a pause: each library whose objects hide device memory or peers is one Library.
//
// The objects are destroyed through the library itself while the program stands still and made again under
// the same program-visible handle before it goes on. Order of a pause, all on the control thread:
//   ShutLibraryGate (new library calls wait; those inside go on, driver calls and all), Advance of each, in
//   rounds until all processes of the job are at the cut (base/rank_protocol.h), AwaitLibraryCalls (nobody is
//   inside any more), [the driver's gate closes, the contexts drain], Check of each, GiveUp of each in
//   registration order;
// and back: Rejoin of each in reverse order once the driver's objects and memory are there again, then both
// gates open. A process that loses its ghost after GiveUp makes its objects again by Rebuild, unless some
// library NeedsRejoin. While GiveUp, ReportComms, Rebuild and Rejoin run, the calls that the library makes
// into the driver on this thread, and on threads it starts, pass the closed gate.
#ifndef INTERCEPT_LIBRARIES_LIBRARY_H_
#define INTERCEPT_LIBRARIES_LIBRARY_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_protocol.h"
#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis::libraries {

class Library {
 public:
  virtual ~Library() = default;
  // "cuBLAS", for messages.
  virtual const char* Name() const = 0;
  // While the library gate is closed and the driver's lets the libraries pass: lets held calls pass where
  // what the library has in flight, here or in other processes, waits for them (AdmitHeldCall). Returns, with
  // `report` filled in, when nothing is missing here, when nothing has moved for `quiet`, after some times
  // that whatever moves, or at the deadline.
  // An error is for good: what the program holds forbids to wait.
  virtual Status Advance(const CutTargets& targets, Duration quiet, const Deadline& deadline,
                         CutReport* report);
  // Where its ranks stand, as Advance() says it, letting nothing pass. Nobody is inside.
  virtual void Report(CutReport*) {}
  // It has given up what only several processes together can make again.
  virtual bool NeedsRejoin() const { return false; }
  // What that is, with a fresh id from the process of rank 0. After GiveUp().
  virtual Result<std::vector<CommReport>> ReportComms() { return std::vector<CommReport>(); }
  // As Rebuild(), for what has ranks in other processes, too: what has no id in `rejoin` is not made again,
  // and answers accordingly.
  virtual Status Rejoin(const CommRejoin&) { return Rebuild(); }
  // kUnsupported, naming the call that made it, when the program holds something that cannot be rebuilt.
  // Nothing has been touched yet.
  virtual Status Check() { return {}; }
  // Destroys what hides device memory or peers and keeps what is needed to make it again. On failure
  // everything is as before, or Rebuild will make it so.
  virtual Status GiveUp() = 0;
  // Makes everything again that GiveUp() destroyed; does nothing when there is nothing. On failure what was
  // made is destroyed again, and Rebuild may be called once more.
  virtual Status Rebuild() = 0;
};

// Adds a library for the life of the process, at its first call. Any thread; `library` is never deleted.
void Register(Library* library);

// ---- For the pause (task_server.cc). Each goes over the registered libraries; messages name the library.
// One round of all of them: their reports as one.
Result<CutReport> AdvanceLibraries(const CutTargets& targets, Duration quiet, const Deadline& deadline);
// The same with nothing let pass, after the devices have drained.
CutReport ReportCut();
Status CheckLibraries();
Status GiveUpLibraries();
// Goes on past the errors of single libraries and reports the first.
Status RebuildLibraries();
Status RejoinLibraries(const CommRejoin& rejoin);
Result<std::vector<CommReport>> ReportComms();
bool LibrariesNeedRejoin();

// In a child after fork(2): another thread may have held the lock.
void ResetLibrariesAfterFork();

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_LIBRARY_H_

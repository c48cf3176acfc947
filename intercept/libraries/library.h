// The CUDA libraries' part of a pause: each library whose objects hide device memory or peers is one Library.
//
// The objects are destroyed through the library itself while the program stands still and made again under
// the same program-visible handle before it goes on. Order of a pause, all on the control thread:
//   ShutLibraryGate (new library calls wait; those inside go on, driver calls and all), Settle of each,
//   AwaitLibraryCalls (nobody is inside any more), [the driver's gate closes, the contexts drain],
//   Check of each, GiveUp of each in registration order;
// and back: Rebuild of each in reverse order once the driver's objects and memory are there again, then both
// gates open. A pause that fails between the two is undone by Rebuild. While GiveUp and Rebuild run, the
// calls that the library makes into the driver on this thread, and on threads it starts, pass the closed
// gate.
#ifndef INTERCEPT_LIBRARIES_LIBRARY_H_
#define INTERCEPT_LIBRARIES_LIBRARY_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis::libraries {

class Library {
 public:
  virtual ~Library() = default;
  // "cuBLAS", for messages.
  virtual const char* Name() const = 0;
  // While the library gate is closed and the driver's lets the libraries pass: waits until what the library
  // has in flight can come to its end without a call that is held at the gate, letting held calls pass where
  // it must (AdmitHeldCall). kTimeout at the deadline, with `blockers` naming the calls that are missing.
  virtual Status Settle(const Deadline&, std::vector<TaskBlocker>*) { return {}; }
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
Status SettleLibraries(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
Status CheckLibraries();
Status GiveUpLibraries();
// Goes on past the errors of single libraries and reports the first.
Status RebuildLibraries();

// In a child after fork(2): another thread may have held the lock.
void ResetLibrariesAfterFork();

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_LIBRARY_H_

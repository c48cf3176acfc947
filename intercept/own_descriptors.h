// Descriptors that the interposer keeps open in the program: out of the way of the program's, and closed in
// its children.
#ifndef INTERCEPT_OWN_DESCRIPTORS_H_
#define INTERCEPT_OWN_DESCRIPTORS_H_

#include "base/fd.h"

namespace stasis {

// Numbers from this one on stay with us, as long as the program has not used up its own.
int LowestOwnFd();
// The same open file under a number of ours where there is one left; close-on-exec.
Fd MoveToOwnFds(Fd fd);

enum class OwnFd { kListener, kListenerLock, kConnection, kAsk, kGiven, kLowPoint, kFolder, kCount };
// Notes what a forked child has to close; -1, before it is closed: nothing. Of the control thread alone.
void NoteOwnFd(OwnFd which, int fd);
// For a child after fork(2). Async-signal-safe.
void CloseOwnFdsAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_OWN_DESCRIPTORS_H_

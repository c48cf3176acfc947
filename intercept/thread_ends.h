// The ends of threads that have called CUDA, and the end of the driver, kept apart.
//
// A driver frees what it keeps for a thread in a destructor of the thread (a key of pthread's). A driver that
// is closed at that moment is unmapped under the thread, or frees the same things itself. So closing waits
// for threads that are within their destructors, and those that come to them wait for the closing to be over,
// after which the driver's destructor is not called.
#ifndef INTERCEPT_THREAD_ENDS_H_
#define INTERCEPT_THREAD_ENDS_H_

namespace stasis {

// While it lives no thread runs the driver's destructors, or begins to. For the control thread, around
// CloseDriver(). Either side gives up waiting after some seconds: a destructor of the program may wait for
// whatever it likes, and a thread that the driver itself waits for may be the program's in between.
class ThreadEndHold {
 public:
  ThreadEndHold();
  ~ThreadEndHold();
  ThreadEndHold(const ThreadEndHold&) = delete;
  ThreadEndHold& operator=(const ThreadEndHold&) = delete;
};

// ---- Of the thread that ends.

// Its destructors begin; waits while there is a ThreadEndHold.
void EnterThreadEnd();
// Those of the driver have run, or the thread calls CUDA once more and may have to wait at the gate. Does
// nothing when it is not in its end.
void LeaveThreadEnd();

// In the child after fork(2).
void ResetThreadEndsAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_THREAD_ENDS_H_

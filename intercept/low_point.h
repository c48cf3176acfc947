// Letting the program run on until it holds least active memory, and stopping it there.
#ifndef INTERCEPT_LOW_POINT_H_
#define INTERCEPT_LOW_POINT_H_

#include "base/clock.h"
#include "base/status.h"

namespace stasis {

// True when the low point was reached in time: then the program's thread that has come there has shut the
// gate itself, and CloseGate() has to finish it. False when the time was over. kCancelled when anything comes
// from `connection`, or its end; the gate may be shut then, too. For the control thread.
Result<bool> WaitForLowPoint(int connection, const Deadline& deadline);

}  // namespace stasis

#endif  // INTERCEPT_LOW_POINT_H_

// A time axis for the events of one context that goes on over rebuilds and leaves out the time between.
//
// Positions are milliseconds of the driver's own event timing; 0 is the first pause. Used by the control
// thread while the gate is closed; read-only otherwise.
#ifndef REPLAY_EVENT_CLOCK_H_
#define REPLAY_EVENT_CLOCK_H_

#include <cuda.h>

#include <optional>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

class EventClock {
 public:
  // The context is current and idle. Places every event that has been recorded; the others keep nothing. The
  // pause is the end of the axis so far.
  Result<std::vector<std::optional<double>>> PlaceAll(const std::vector<CUevent>& real);
  // The context is current and new: its axis goes on where PlaceAll() left it.
  Status Continue();
  // Destroys the reference; the context is current.
  void End();
  // An event recorded since Continue(); nothing when it was not, or has not ended yet.
  std::optional<double> Place(CUevent real) const;

 private:
  double origin_ = 0;  // where reference_ stands on the axis
  CUevent reference_ =
      nullptr;        // recorded at the beginning of this driver's time; null before the first rebuild
  double pause_ = 0;  // end of the axis
};

}  // namespace stasis::replay

#endif  // REPLAY_EVENT_CLOCK_H_

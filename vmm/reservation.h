// A range of addresses that the driver keeps for us, or that we keep while there is no driver. Plain data;
// whoever owns it serialises.
#ifndef VMM_RESERVATION_H_
#define VMM_RESERVATION_H_

#include <cstdint>

#include "base/status.h"

namespace stasis::vmm {

struct Reservation {
  // Who keeps the addresses: the driver, pages of ours, or somebody else who was quicker.
  enum class Keeper { kDriver, kPages, kStranger };
  uint64_t size = 0;
  Keeper keeper = Keeper::kDriver;
};

// Gives the addresses back to the driver and holds them with inaccessible pages of the process. The first
// error; who keeps them then is said in `reservation`.
Status HoldReservation(uint64_t address, Reservation& reservation);
// Takes them back for the driver; no-op where it has them. kAlreadyExists, naming who is there, or the
// driver's error: then they are held as before, if that is possible.
Status ReserveAgain(uint64_t address, Reservation& reservation);
// The addresses are free for anybody.
void DropReservation(uint64_t address, const Reservation& reservation);

}  // namespace stasis::vmm

#endif  // VMM_RESERVATION_H_

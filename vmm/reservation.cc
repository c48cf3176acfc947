#include "vmm/reservation.h"

#include <cuda.h>

#include <cinttypes>
#include <string>
#include <utility>

#include "vmm/hold.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

using Keeper = Reservation::Keeper;

Status HoldReservation(uint64_t address, Reservation& reservation) {
  if (reservation.keeper == Keeper::kPages) return {};
  const bool ours = std::exchange(reservation.keeper, Keeper::kStranger) == Keeper::kDriver;
  // A driver that will not free it takes it along when it is closed.
  if (ours)
    RETURN_IF_ERROR(DriverStatus(Driver().cuMemAddressFree(address, reservation.size), "cuMemAddressFree"));
  Status held = HoldAddresses(address, reservation.size);
  reservation.keeper = held.ok() ? Keeper::kPages : Keeper::kStranger;
  return held;
}

Status ReserveAgain(uint64_t address, Reservation& reservation) {
  if (reservation.keeper == Keeper::kDriver) return {};
  if (reservation.keeper == Keeper::kPages) DropHold(address, reservation.size);
  reservation.keeper = Keeper::kDriver;
  CUdeviceptr got = 0;
  const CUresult result = Driver().cuMemAddressReserve(&got, reservation.size, 0, address, 0);
  if (result == CUDA_SUCCESS && got == address) return {};
  const std::string in_the_way = WhoIsAt(address, reservation.size);
  if (result == CUDA_SUCCESS) Driver().cuMemAddressFree(got, reservation.size);
  reservation.keeper = HoldAddresses(address, reservation.size).ok() ? Keeper::kPages : Keeper::kStranger;
  RETURN_IF_ERROR(DriverStatus(result, "cuMemAddressReserve"));
  return Errorf(StatusCode::kAlreadyExists,
                "device memory at 0x%" PRIx64 " (%" PRIu64
                " bytes) cannot come back to its address, for which the driver gave another one: %s",
                address, reservation.size, in_the_way.c_str());
}

void DropReservation(uint64_t address, const Reservation& reservation) {
  if (reservation.keeper == Keeper::kPages) DropHold(address, reservation.size);
  if (reservation.keeper == Keeper::kDriver) Driver().cuMemAddressFree(address, reservation.size);
}

}  // namespace stasis::vmm

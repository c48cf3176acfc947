// Keeps ranges of addresses of this process from being used while no driver holds them.
#ifndef VMM_HOLD_H_
#define VMM_HOLD_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "vmm/range_set.h"

namespace stasis::vmm {

// Fills [address, address + size) with inaccessible pages that cost nothing. kAlreadyExists, naming who is
// there, when some of it is in use; then nothing is changed.
Status HoldAddresses(uint64_t address, uint64_t size);
// Ends the hold.
void DropHold(uint64_t address, uint64_t size);
// The line of /proc/self/maps of the first mapping that touches the range; empty when there is none.
std::string OwnerOfAddresses(uint64_t address, uint64_t size);
// A clause for an error: who is in the way there, or that nobody is any more.
std::string WhoIsAt(uint64_t address, uint64_t size);
// All addresses at which the process has something mapped now.
RangeSet MappedAddresses();

}  // namespace stasis::vmm

#endif  // VMM_HOLD_H_

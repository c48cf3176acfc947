// Where the devices of a task are, as the ghost writes it down for processes of the task that begin to use
// them.
#ifndef BASE_PLACEMENT_LINE_H_
#define BASE_PLACEMENT_LINE_H_

#include <string>

namespace stasis {

// "UUID ordinal UUID\n", in hexadecimal digits: a device as the task sees it, its physical ordinal now, and
// the device that is there; without that where `now` is empty. UUIDs, raw.
std::string PlacementLine(const std::string& uuid, int ordinal, const std::string& now);

}  // namespace stasis

#endif  // BASE_PLACEMENT_LINE_H_

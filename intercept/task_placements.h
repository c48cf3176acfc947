// Where the task's devices are now, for a process that is started after the task has been moved.
#ifndef INTERCEPT_TASK_PLACEMENTS_H_
#define INTERCEPT_TASK_PLACEMENTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis {

// The file in the task's folder: for each device a PlacementLine(), in files of earlier versions without the
// last UUID. Of devices that were named before anybody of the task had looked at any, "-" and the ordinal.
inline constexpr char kPlacementsFile[] = "placements";

// Places the devices of this process, as they have just been recorded, where the task's are. Without the file
// they stay where they are.
Status FollowTask();
// The same for a file with this text. Devices are found by their UUIDs; where none of them is in the file,
// and there are as many, by their order, since the task has come here from another machine. Rows of devices
// without a UUID are for the first ones; who was where one of them goes gets its place.
std::vector<TaskAttach::Placement> PlacementsIn(std::string_view text,
                                                const std::vector<TaskDevice>& devices);
// Whether of these devices every one that has a row is itself, and has its ordinal, where the task is now. A
// row that does not name what is there says nothing of that.
bool AreWhereTheyWere(std::string_view text, const std::vector<TaskDevice>& devices);

}  // namespace stasis

#endif  // INTERCEPT_TASK_PLACEMENTS_H_

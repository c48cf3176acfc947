// Values as they are written on the command line.
#ifndef COORDINATOR_NODE_VALUES_H_
#define COORDINATOR_NODE_VALUES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/duration.h"
#include "base/status.h"

namespace stasis {

// "0", "2,0": device ordinals, each at most once.
Result<std::vector<int>> ParseGpuList(std::string_view text);
// "2,0".
std::string GpuListText(const std::vector<int>& gpus);

}  // namespace stasis

#endif  // COORDINATOR_NODE_VALUES_H_

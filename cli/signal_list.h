// Signals as they are named on the command line.
#ifndef CLI_SIGNAL_LIST_H_
#define CLI_SIGNAL_LIST_H_

#include <string_view>
#include <vector>

#include "base/status.h"

namespace stasis {

// "TERM,USR1", of those that a user may send.
Result<std::vector<int>> ParseSignals(std::string_view text);

}  // namespace stasis

#endif  // CLI_SIGNAL_LIST_H_

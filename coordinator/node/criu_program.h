// The criu that checkpoints and restores use, and versions of what they need.
#ifndef COORDINATOR_NODE_CRIU_PROGRAM_H_
#define COORDINATOR_NODE_CRIU_PROGRAM_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/node/subprocess.h"

namespace stasis {

inline constexpr int kOldestKernel = 5011;  // close_range with CLOSE_RANGE_CLOEXEC, time namespaces
inline constexpr int kOldestCriu = 401;     // older ones do not start on kernels from 6.13 on

// Its path, found where the ghost looks for it, in the same order; empty: there is none.
std::string FindCriu();
// `criu ARGUMENTS`, without the user's loader settings.
Result<SubprocessResult> RunCriu(const std::string& criu, const std::vector<std::string>& arguments);

// Errors that the output of a `criu check` tells of, but for those about the network. In a user namespace the
// network is often another one's, and images are made without connections there.
std::vector<std::string> CriuErrorsBesideNetwork(std::string_view output);

// "Version: 4.2.1" in the output of `criu --version`; major * 100 + minor, 0 if it is none.
int ParseCriuVersion(std::string_view text);
// "6.18.44-generic": major * 1000 + minor, 0 if it is none.
int ParseKernelVersion(std::string_view release);

}  // namespace stasis

#endif  // COORDINATOR_NODE_CRIU_PROGRAM_H_

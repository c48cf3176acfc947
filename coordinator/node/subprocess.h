// Running a helper program to its end with its output captured.
#ifndef COORDINATOR_NODE_SUBPROCESS_H_
#define COORDINATOR_NODE_SUBPROCESS_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/status.h"

namespace stasis {

struct SubprocessOptions {
  std::vector<std::string> argv;  // argv[0] is the path; no search
  std::vector<std::string> environment;
};

struct SubprocessResult {
  int exit_code = 0;
  int signal = 0;  // that ended it; 0: it exited
  std::string output;
  std::string error_output;
};

// Runs it with /dev/null as standard input. kTimeout: it was killed at the deadline. Output beyond 1 MiB is
// dropped.
Result<SubprocessResult> RunSubprocess(const SubprocessOptions& options, const Deadline& deadline);

}  // namespace stasis

#endif  // COORDINATOR_NODE_SUBPROCESS_H_

// Running a helper program to its end with its output captured.
#ifndef CLI_SUBPROCESS_H_
#define CLI_SUBPROCESS_H_

#include <string>
#include <vector>

#include "base/clock.h"
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

// This process's environment without LD_* (what steers a user's loader is not for our helpers), with
// `changes` (KEY=VALUE) on top.
std::vector<std::string> EnvironmentWithoutLoader(const std::vector<std::string>& changes);

// `base` with `changes` (KEY=VALUE) replacing or adding; a bare KEY removes.
std::vector<std::string> ChangeEnvironment(std::vector<std::string> base,
                                           const std::vector<std::string>& changes);

// The value of `key` in a list of KEY=VALUE, or "".
std::string EnvironmentValue(const std::vector<std::string>& environment, const std::string& key);

// This process's environment.
std::vector<std::string> OwnEnvironment();

// Runs it with /dev/null as standard input. kTimeout: it was killed at the deadline. Output beyond 1 MiB is
// dropped.
Result<SubprocessResult> RunSubprocess(const SubprocessOptions& options, const Deadline& deadline);

// For execve: pointers into `texts`, then null.
std::vector<char*> PointersOf(const std::vector<std::string>& texts);

}  // namespace stasis

#endif  // CLI_SUBPROCESS_H_

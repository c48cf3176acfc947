// The program that a task is to run: found as execvp would, and looked at before it is started.
#ifndef COORDINATOR_NODE_PROGRAM_H_
#define COORDINATOR_NODE_PROGRAM_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace stasis {

// The absolute path of `name`: itself if it holds a slash, seen from `folder` (absolute; "": the working
// folder), else the first executable of that name in `path` (as $PATH). kNotFound: there is none;
// kPermissionDenied: it is there and cannot be executed.
Result<std::string> FindProgram(const std::string& name, std::string_view path,
                                const std::string& folder = "");

// Why the preload would not reach this program: "" when it will, else a sentence. Looks at the interpreter of
// a script, not at what the script starts.
Result<std::string> WhyUnmanaged(const std::string& program);

}  // namespace stasis

#endif  // COORDINATOR_NODE_PROGRAM_H_

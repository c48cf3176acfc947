// What a verb has done, for people, out of its result (docs/ghost-protocol.md, docs/jobs.md).
#ifndef CLI_DESCRIBE_H_
#define CLI_DESCRIBE_H_

#include <string>

#include "coordinator/node/layout.h"

namespace stasis {

// A sentence about the task or job `name`, of a result that is a success. `verb`: pause, resume, checkpoint,
// restore, migrate, cancel, remove, copy.
std::string DescribeResult(const std::string& verb, const std::string& name, const Json& result);

}  // namespace stasis

#endif  // CLI_DESCRIBE_H_

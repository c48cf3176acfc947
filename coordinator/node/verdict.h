// How a task has ended, once nobody can change that any more.
#ifndef COORDINATOR_NODE_VERDICT_H_
#define COORDINATOR_NODE_VERDICT_H_

#include <optional>

#include "base/fd.h"
#include "base/status.h"
#include "coordinator/node/task.h"

namespace stasis {

// How a task whose process is gone has ended; nothing while its ghost, which is about to end it or has just
// done so for a checkpoint, has not said so yet. `ghost` is then a descriptor that polls readable when that
// ends.
Result<std::optional<TaskView>> Verdict(const TaskFacts& facts, Fd* ghost);

}  // namespace stasis

#endif  // COORDINATOR_NODE_VERDICT_H_

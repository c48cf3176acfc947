#include "coordinator/node/verdict.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace stasis {

Result<std::optional<TaskView>> Verdict(const TaskFacts& facts, Fd* ghost) {
  TaskView view = DeriveCondition(facts);
  bool ghost_decides = view.condition == TaskCondition::kKilled && facts.exit.is_null() &&
                       facts.ghost_listens && TextField(facts.status, "state") == "checkpointing";
  if (!ghost_decides) return std::optional(view);
  ghost->Reset(static_cast<int>(syscall(SYS_pidfd_open, IntegerField(facts.status, "ghost_pid"), 0)));
  return std::optional<TaskView>();
}

}  // namespace stasis

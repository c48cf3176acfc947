// A task that has been, or is just being, handed over to another node carries a mark here: <task
// folder>/moved.json. While it has one nothing makes it run on this node; it goes when the hand-over has
// failed, or the task comes back. What has come from another node carries one, too: <task folder>/came.json.
// Functions take the folder of a task. Thread-safe.
#ifndef COORDINATOR_MOVED_MARK_H_
#define COORDINATOR_MOVED_MARK_H_

#include <string>

#include "base/status.h"

namespace stasis {

// On stable storage when it returns.
Status MarkMoved(const std::string& task_folder, const std::string& node);
Status UnmarkMoved(const std::string& task_folder);
// The node, "(unknown)" where the mark does not say it; "": it has no mark.
std::string MovedTo(const std::string& task_folder);
// kFailedPrecondition for a task with a mark: `task` is its name. `*remedy`: what helps where that node is
// gone.
Status RefuseMoved(const std::string& task, const std::string& task_folder, std::string* remedy);

// What is here has come by that token of a hand-over. On stable storage when it returns.
Status MarkCame(const std::string& task_folder, const std::string& token);
Status UnmarkCame(const std::string& task_folder);
// The token; "": by none. An error: that cannot be read.
Result<std::string> CameBy(const std::string& task_folder);

}  // namespace stasis

#endif  // COORDINATOR_MOVED_MARK_H_

// The record of a task that comes with an image of another site.
#ifndef COORDINATOR_NODE_IMPORTED_TASK_H_
#define COORDINATOR_NODE_IMPORTED_TASK_H_

#include <string>

#include "base/status.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/own_files.h"
#include "ghost/task_config.h"

namespace stasis {

// Both are of one `stasis run`: an image of one is an image of the other.
bool SameOrigin(const TaskConfig& a, const TaskConfig& b);

// OK: there is no task of that name, or it is the one that `task` (of an image) is of. `*exists`: which of
// the two. kAlreadyExists: it is another task.
Status CheckOrigin(const TaskPaths& paths, const TaskConfig& task, bool* exists);

// task.json for this site: what `stasis run` would have written here. Only fields that are known are taken
// over, since an exported file may be anybody's.
Json ImportedTaskJson(const TaskPaths& paths, const Json& task, const TaskConfig& config,
                      const OwnFiles& files);

// The same task has another image to be restored from: `id`. Of a record that WriteImportedTask() has made.
Status WriteImportedStatus(const TaskPaths& paths, const std::string& id);

// Makes the task's folder: a task that has ended and can be restored from image `id`. After an error nothing
// of it is left, but in a folder that was there without a record. kAlreadyExists: somebody has made one
// meanwhile.
Status WriteImportedTask(const TaskPaths& paths, const Json& task_json, const std::string& id);

}  // namespace stasis

#endif  // COORDINATOR_NODE_IMPORTED_TASK_H_

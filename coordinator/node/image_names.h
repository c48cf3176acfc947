// Images as they are named on the command line, and the store that holds them.
#ifndef COORDINATOR_NODE_IMAGE_NAMES_H_
#define COORDINATOR_NODE_IMAGE_NAMES_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/layout.h"
#include "dedup/image.h"

namespace stasis {

struct ImageName {
  std::string task;
  std::string id;  // empty: the newest of the task
  std::string Text() const { return id.empty() ? task : task + "/" + id; }
  bool operator==(const ImageName&) const = default;
};

// TASK, TASK/ID, or the path of an image's manifest below the state folder. kInvalidArgument: none of these;
// kUnsupported: a path somewhere else, or of an image of format version 1.
Result<ImageName> ParseImageName(const std::string& text, const Folders& folders);

// Where the store of this site is.
std::string StoreRoot(const Folders& folders);
// kNotFound: nothing was ever stored here. Creates nothing.
Result<std::shared_ptr<Store>> OpenStore(const Folders& folders);
// The same, and creates it.
Result<std::shared_ptr<Store>> OpenOrCreateStore(const Folders& folders);

// Ids of what is stored for a task, ascending: checkpoints (six digits), and what the ghost holds there
// besides them.
Result<std::vector<std::string>> ListAllIds(Store& store, const std::string& task);
// True for the ids of checkpoints.
bool IsCheckpointId(const std::string& id);
// All names of tasks that anything is stored for, sorted.
Result<std::vector<std::string>> ListStoredTasks(Store& store);
// The image that is meant, the newest where no id is given. kNotFound: there is none; kUnsupported: it is of
// format version 1.
Result<std::unique_ptr<ImageReader>> OpenImage(const ImageName& name, const Folders& folders);
// kUnsupported for an image of format version 1.
Status RefuseOldImage(const ImageName& name, const Folders& folders);

// Images of format version 1, "TASK/ID": folders that this version does not read.
std::vector<std::string> ListOldImages(const Folders& folders);
// What to say about them; empty when there are none.
std::string OldImagesNote(const Folders& folders);

}  // namespace stasis

#endif  // COORDINATOR_NODE_IMAGE_NAMES_H_

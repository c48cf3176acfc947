// The images of jobs, as far as schedules need them.
#ifndef COORDINATOR_AGENT_IMAGE_SHELF_H_
#define COORDINATOR_AGENT_IMAGE_SHELF_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

// Thread-safe.
class ImageShelf {
 public:
  virtual ~ImageShelf() = default;
  // Ids, oldest first; of a ranked job those of the job. Whether they can be read is not looked at.
  virtual Result<std::vector<std::string>> List(const std::string& job) const = 0;
  // Removes them and gives their room back, which may take long. One that is not there is none to remove.
  virtual Status Remove(const std::string& job, const std::vector<std::string>& ids) = 0;
};

// Those of this node's store.
std::unique_ptr<ImageShelf> MakeImageShelf(const Folders& folders);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_IMAGE_SHELF_H_

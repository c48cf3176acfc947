// Forgetting a task, or a job, with all that belongs to it.
#ifndef COORDINATOR_NODE_REMOVAL_H_
#define COORDINATOR_NODE_REMOVAL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

struct Removed {
  uint64_t bytes = 0;  // that have become free
  size_t images = 0;
  bool had_old = false;            // images of format version 1
  std::vector<std::string> notes;  // what the user should know, a sentence each
};

// A task, a job of that name, or what is left of either without a record. Without `images` those of a task
// stay; a job's are of no use without its record, so that a job that has any is not removed then.
// kNotFound: there is nothing; kFailedPrecondition: it lives, is a rank of a job, is worked on, or has images
// that shall stay. `*remedy`: what the user can do then, or "".
Result<Removed> RemoveByName(const std::string& name, bool images, const Folders& folders,
                             std::string* remedy);

}  // namespace stasis

#endif  // COORDINATOR_NODE_REMOVAL_H_

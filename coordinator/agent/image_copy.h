// The operation "copy": an image of a job goes to another node, which keeps it. docs/migration.md, "Copies of
// images".
#ifndef COORDINATOR_AGENT_IMAGE_COPY_H_
#define COORDINATOR_AGENT_IMAGE_COPY_H_

#include <memory>

#include "coordinator/agent/migration.h"
#include "coordinator/agent/operations.h"

namespace stasis {

// Of CopyImageRequests; KindOptions::image_copy.
std::unique_ptr<OperationKind> MakeImageCopy(MigrationOptions options);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_IMAGE_COPY_H_

// What images there are: Agent.Images.
#ifndef COORDINATOR_AGENT_IMAGE_LIST_H_
#define COORDINATOR_AGENT_IMAGE_LIST_H_

#include <string>

#include "base/status.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// Checkpoints of one job, or of all (""), those of a job of ranks as one. Reads every manifest: blocks.
Result<v1::ImagesResponse> ListImagesOf(const Folders& folders, const std::string& job);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_IMAGE_LIST_H_

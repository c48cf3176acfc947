// Groups: calls between ncclGroupStart and ncclGroupEnd of a thread are gathered and done at its end.
//
// Each thread has a group of its own; outside of one a call is a group by itself.
#ifndef SOFTGPU_NCCL_GROUP_H_
#define SOFTGPU_NCCL_GROUP_H_

#include <functional>

#include "softgpu/nccl/communicator.h"

namespace softgpu::nccl {

// A communicator that is to be made.
struct PendingSetup {
  CommunicatorPtr communicator;  // null: this rank takes part in the meeting and gets none
  CommunicatorPtr parent;        // or null
  std::shared_ptr<Setup> setup;
  ncclComm_t* handle = nullptr;
};

ncclResult_t BeginGroup();
ncclResult_t EndGroup();
// Ends the group without doing anything; `bytes` is how many its operations would have moved.
ncclResult_t DropGroup(uint64_t* bytes);

// Each does it at once outside of a group.
ncclResult_t Submit(PendingSetup setup);
ncclResult_t Submit(const CommunicatorPtr& communicator, const Operation& operation, CUstream stream);
// What ends communicators comes last in a group.
ncclResult_t SubmitEnd(std::function<ncclResult_t()> end);

// The result of a call: an error within a group is also the group's.
ncclResult_t Note(ncclResult_t result);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_GROUP_H_

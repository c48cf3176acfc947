// Signals to the programs of a job.
#ifndef COORDINATOR_AGENT_SIGNAL_JOB_H_
#define COORDINATOR_AGENT_SIGNAL_JOB_H_

#include "base/status.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// Sends the signal to all ranks that live; true: a rank is paused and cannot act on it, so none has got it.
// Reads the ranks' files, so not for a thread that must not block. kInvalidArgument: a signal that is not
// among those of SignalRequest; kFailedPrecondition: none of it lives.
Result<bool> SignalJob(const Site& site, const v1::Job& job, int signal);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SIGNAL_JOB_H_

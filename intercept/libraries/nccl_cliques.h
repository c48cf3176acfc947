// The communicators of this process as wholes: what a pause refuses, gives up, and makes again. For the
// control thread while the library gate is closed.
//
// One whose ranks are all here is made again by this process alone. One that reaches other processes is made
// again by all of them at the same time, with an id from the process of rank 0 (base/rank_protocol.h).
#ifndef INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_
#define INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_

#include <chrono>
#include <vector>

#include "base/clock.h"
#include "base/rank_protocol.h"
#include "base/status.h"

namespace stasis::nccl {

// kUnsupported, naming the call that made it, for what cannot be made again. Nobody is inside of NCCL.
Status CheckCliques();
// A rank that has an asynchronous error is over: the other processes are told at the cut, and none of them
// makes the communicator again.
void NoteFailures();
// Ends all communicators in the library. Those that are whole and well are to be made again; the others keep
// what they answered. What is not finalized within `finalize_time`, of all together, is aborted.
void GiveUpCliques(Duration finalize_time = std::chrono::seconds(10));
// Makes those of this process alone again. On failure all of them are given up again.
Status RebuildCliques();

// Some are given up that only all of their processes can make again.
bool CliquesNeedRejoin();
// Those, with fresh ids of those whose rank 0 is here.
Result<std::vector<CommReport>> ReportCliques();
// Makes all again, those without an id excepted, which end here. On failure all of them are given up again,
// and it may be called once more with other ids.
Status RejoinCliques(const CommRejoin& rejoin);

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_

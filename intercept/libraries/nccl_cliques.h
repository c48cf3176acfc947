// The communicators of this process as wholes: what a pause refuses, gives up, and makes again. For the
// control thread while the library gate is closed.
#ifndef INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_
#define INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_

#include <chrono>

#include "base/clock.h"
#include "base/status.h"

namespace stasis::nccl {

// kUnsupported, naming the call that made it, for what cannot be made again. Nobody is inside of NCCL.
Status CheckCliques();
// Ends all communicators in the library. Those that are whole and well are to be made again; the others keep
// what they answered. What is not finalized after `finalize_time` is aborted.
void GiveUpCliques(Duration finalize_time = std::chrono::seconds(10));
// On failure all are given up again.
Status RebuildCliques();

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_CLIQUES_H_

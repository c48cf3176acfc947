// `stasis run --again`: what is on record of the name already.
#ifndef CLI_RUN_AGAIN_H_
#define CLI_RUN_AGAIN_H_

#include "base/status.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace stasis {

// True where there is an image to go on from. Else a record of that name that does not live is removed.
// kFailedPrecondition: it lives, or it is another program's.
Result<bool> MakeWay(const Options& options, Context& context);
// The restore that goes on with what `options` would have run.
Options RestoreAgain(const Options& options);

}  // namespace stasis

#endif  // CLI_RUN_AGAIN_H_

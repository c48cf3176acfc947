// The verbs of `stasis`. Each does all of its work, reports through the context's Reporter, and returns the
// exit code.
#ifndef CLI_VERBS_H_
#define CLI_VERBS_H_

#include <string>

#include "cli/options.h"
#include "cli/report.h"
#include "coordinator/node/site.h"

namespace stasis {

struct Context : Site {
  Reporter& reporter;
  // Endpoint of the agent that does the work; empty: this process does it itself.
  std::string node = "";
};

int RunVerb(const Options& options, Context& context);
int PsVerb(const Options& options, Context& context);
int LogsVerb(const Options& options, Context& context);
int RmVerb(const Options& options, Context& context);

int PauseVerb(const Options& options, Context& context);
int ResumeVerb(const Options& options, Context& context);
int CheckpointVerb(const Options& options, Context& context);
int RestoreVerb(const Options& options, Context& context);
int MigrateVerb(const Options& options, Context& context);
int CancelVerb(const Options& options, Context& context);

int ImagesVerb(const Options& options, Context& context);
int DoctorVerb(const Options& options, Context& context);
// Becomes the simulator; returns only when that cannot be.
int SimVerb(const Options& options, Context& context);

}  // namespace stasis

#endif  // CLI_VERBS_H_

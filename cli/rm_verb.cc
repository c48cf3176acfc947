// `stasis rm`: a task, or a job, is forgotten with all that belongs to it.
#include "cli/describe.h"
#include "cli/verbs.h"
#include "coordinator/job_result.h"
#include "coordinator/node/removal.h"

namespace stasis {

int RmVerb(const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  if (CheckTaskName(options.name).ok()) reporter.set_task(options.name);
  std::string remedy;
  Result<Removed> removed = RemoveByName(options.name, true, context.folders, &remedy);
  if (!removed.ok()) return reporter.FailWith(FailureJson("rm", removed.status(), remedy));
  for (const std::string& note : removed->notes) reporter.Note(note);
  Json fields = {{"bytes", removed->bytes}, {"images", removed->images}, {"had_old", removed->had_old}};
  return reporter.Done(fields, DescribeResult("remove", options.name, fields));
}

}  // namespace stasis

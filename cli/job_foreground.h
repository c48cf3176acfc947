// Staying with a job until all of its ranks have ended, as `run --ranks` and `restore` do, and exiting as its
// programs do.
#ifndef CLI_JOB_FOREGROUND_H_
#define CLI_JOB_FOREGROUND_H_

#include <chrono>
#include <string>
#include <vector>

#include "cli/job_follow.h"
#include "cli/verbs.h"

namespace stasis {

inline constexpr Duration kRankGrace = std::chrono::seconds(5);

struct ForegroundJob {
  std::string name;
  std::vector<TaskPaths> tasks;            // by rank
  std::vector<JobFollower::Start> starts;  // by rank
  Duration grace = kRankGrace;             // between SIGTERM and SIGKILL for those that are left
  bool expect_managed = false;             // say so when no process of a rank ever reported
  Json fields = Json::object();            // of the document
  std::vector<int> checkpoint_on = {};     // signals of this process that end it by an image
  bool forget = false;                     // remove it once all of its ranks have exited with 0
};

// The output of the ranks goes to standard output, each line with "[RANK] " before it. Signals are passed on
// to all programs; of a paused job the ranks are ended through their ghosts instead.
// When a rank fails, the others are ended, and the exit code is that of the first that did. Returns the exit
// code.
int StayWithJob(const ForegroundJob& job, JobFollower& follower, SignalSource& signals, Context& context);

}  // namespace stasis

#endif  // CLI_JOB_FOREGROUND_H_

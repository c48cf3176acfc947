// One job of several ranks as its files and the kernel tell it, the way cli/task.h does for a task.
#ifndef COORDINATOR_NODE_JOB_H_
#define COORDINATOR_NODE_JOB_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/job_record.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/task.h"

namespace stasis {

std::string JobFolder(const Folders& folders, std::string_view job);
// NAME.RANK
std::string RankName(std::string_view job, int rank);
// True when there is a job of that name on record.
bool IsJob(const Folders& folders, const std::string& name);

// Which rank of which job a task is, out of its task.json.
struct RankPlace {
  std::string job;
  int rank = 0;
  int ranks = 0;
};
std::optional<RankPlace> PlaceOf(const Json& task);
// kFailedPrecondition for the task of a rank: what is done to one rank is done to all of them. The remedy is
// the verb on the job.
Status RefuseRank(const TaskPaths& paths, const Json& task, std::string_view verb);
std::string RankRemedy(const Json& task, std::string_view verb);

struct RankFacts {
  bool on_record = false;  // else nothing else is set
  TaskFacts facts;
  TaskView view;
};

struct JobFacts {
  JobRecord record;
  std::vector<RankFacts> ranks;  // by rank
  std::string last_image;        // id of the job's newest image, or ""
};

// kNotFound: no such job.
Result<JobFacts> ReadJobFacts(const Folders& folders, const std::string& job);

enum class JobCondition {
  kSame,    // all of its ranks (all that have not exited with 0, while others go on) are in `condition`
  kMixed,   // they are in different ones, as during an operation, or after one whose coordinator was lost
  kBroken,  // a rank has failed or is not on record while others live
};

struct JobView {
  JobCondition kind = JobCondition::kSame;
  TaskCondition condition = TaskCondition::kCreated;  // of kSame
  bool live = false;                                  // a rank is
  int exit_code = 0;                                  // of kExited: of the first that failed, else 0
  int signal = 0;                                     // of kKilled
  int failed_rank = -1;                               // the first that ended otherwise than with exit code 0
  std::string name;                                   // "running", "mixed", "broken", ...
  std::string text;                                   // the same for people: "running (3 of 4)"
};
JobView DeriveJobView(const std::vector<RankFacts>& ranks);

// Exited with another code than 0, or killed.
bool HasFailed(const TaskView& view);
// When it ended, in seconds since 1970; 0 where nobody has written it down.
double EndTimeOf(const TaskFacts& facts);

}  // namespace stasis

#endif  // COORDINATOR_NODE_JOB_H_

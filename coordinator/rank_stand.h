// Where each rank of a job stands, as its ghost tells it, and which verbs that allows.
#ifndef COORDINATOR_RANK_STAND_H_
#define COORDINATOR_RANK_STAND_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/json.h"

namespace stasis {

enum class RankStand {
  kRunning,
  kPaused,
  kInDoubt,  // it stands still; whether the others went on or back, it does not know
  kEnded,
  kBusy,  // an operation whose coordinator is gone is coming to its end
};
const char* RankStandName(RankStand stand);
// Of the answer to a request for status.
RankStand StandOf(const Json& status);
// The task has been started, and the first of its processes lives no more: a ghost may not know yet.
bool HasEnded(const std::string& task_folder);

std::vector<int> RanksAt(const std::vector<RankStand>& stands, RankStand stand);
bool AllAt(const std::vector<RankStand>& stands, RankStand stand);

// For pause, checkpoint and migrate: all run, or, where `paused_too`, all are paused. kFailedPrecondition
// says who does not; `*remedy` what helps.
Status CheckTogether(const std::string& job, const std::vector<RankStand>& stands, bool paused_too,
                     std::string* remedy);
// For resume: some are paused or in doubt, and none has ended.
Status CheckResumable(const std::string& job, const std::vector<RankStand>& stands, std::string* remedy);
// For restore: all have ended.
Status CheckEnded(const std::string& job, const std::vector<RankStand>& stands, std::string* remedy);

}  // namespace stasis

#endif  // COORDINATOR_RANK_STAND_H_

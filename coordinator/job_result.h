// The result of a verb on a job, in the form of a ghost's (docs/ghost-protocol.md, "Results"): what its ranks
// have answered, put together.
#ifndef COORDINATOR_JOB_RESULT_H_
#define COORDINATOR_JOB_RESULT_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/star.h"
#include "dedup/json.h"

namespace stasis {

// Of a verb that all ranks have carried out: sums of what is in bytes, the longest of what is in
// milliseconds, every note with its rank.
Json SuccessJson(const std::string& verb, const std::vector<RankOutcome>& ranks);
// Of one that failed: code and message of the first failure, remedy and blockers of the rank that it is of.
Json FailureJson(const std::string& verb, const StarOutcome& outcome);
// The same without ranks.
Json FailureJson(const std::string& verb, const Status& status, const std::string& remedy);
// Where the ranks have been left: fills in `left`, the worst of `lefts` (by rank), `left_ranks`, who is
// where, and a remedy where there is none.
void SetLeft(const std::string& job, const std::vector<std::string>& lefts, Json* result);
std::string LeftOf(const RankOutcome& outcome);

void AddNote(const std::string& note, Json* result);

}  // namespace stasis

#endif  // COORDINATOR_JOB_RESULT_H_

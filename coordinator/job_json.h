// The texts of a job's files (coordinator/job_record.h), checked.
#ifndef COORDINATOR_JOB_JSON_H_
#define COORDINATOR_JOB_JSON_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/job_record.h"

namespace stasis {

inline constexpr int kMaxRanks = 1024;

// kInvalidArgument: no node, one without a name, two of the same name, or more ranks than devices are
// named.
Status CheckNodes(const std::vector<JobNode>& nodes);

std::string JobRecordText(const JobRecord& record);
std::string JobImageText(const JobImage& image);
// kCorrupt, naming the field, for anything else than what the above write; kUnsupported: of a version that we
// do not know.
Result<JobRecord> ParseJobRecord(std::string_view text);
Result<JobImage> ParseJobImage(std::string_view text);
// What a user has written: kInvalidArgument.
Result<std::vector<JobNode>> ParseNodes(std::string_view text);

}  // namespace stasis

#endif  // COORDINATOR_JOB_JSON_H_

// Which images of the ranks' tasks belong to images of the job.
#ifndef COORDINATOR_JOB_IMAGES_H_
#define COORDINATOR_JOB_IMAGES_H_

#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/job_record.h"

namespace stasis {

// Of one job, for one operation; the ranks' tasks get no images but by it. Not thread-safe.
class JobImages {
 public:
  JobImages(std::string state_dir, JobRecord record)
      : state_dir_(std::move(state_dir)), record_(std::move(record)) {}

  // Removes what no image of the job names: left by an operation that was given up after some ranks had
  // written theirs. Returns how many.
  Result<int> RemoveOrphans();
  // What is there before a checkpoint.
  Status NoteBefore();
  // All ranks have written one more image: makes the job's out of them. kInternal: not all have.
  Result<JobImage> Commit();
  // The named one, or the newest. kNotFound.
  Result<JobImage> Find(const std::string& id) const;

 private:
  Result<std::set<std::string>> TaskImages(int rank) const;

  const std::string state_dir_;
  const JobRecord record_;
  std::vector<std::set<std::string>> before_;  // by rank
};

}  // namespace stasis

#endif  // COORDINATOR_JOB_IMAGES_H_

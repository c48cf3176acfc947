// Copies of images of jobs of other nodes, that this node keeps: on stable storage. Thread-safe as the
// database is.
#ifndef COORDINATOR_AGENT_COPY_TABLE_H_
#define COORDINATOR_AGENT_COPY_TABLE_H_

#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "dedup/json.h"

namespace stasis {

extern const char kCopySchema[];

struct CopyRow {
  std::string job;
  std::string image;  // id here: of the job's image, or the task's
  bool ranked = false;
  uint64_t made = 0;  // when the image was made, seconds since 1970 by the clock of where it was made
  // False: it is about to become one, and may have been broken off anywhere.
  bool whole = false;
  // By rank; of a job that is not ranked, one.
  std::vector<std::string> tasks;
  std::vector<std::string> images;  // ids here
  std::vector<std::string> sums;    // of their manifests (SumOf): who has an id else is another image
  std::string job_json;             // of a ranked job: its record, placed on this node
};

class CopyTable {
 public:
  explicit CopyTable(Database& database) : database_(database) {}
  // Replaces what is there of that image.
  Status Write(const CopyRow& row);
  Status Remove(const CopyRow& row);
  // Oldest first.
  Result<std::vector<CopyRow>> Of(const std::string& job) const;
  Result<std::vector<CopyRow>> Broken() const;  // not whole

 private:
  Database& database_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_COPY_TABLE_H_

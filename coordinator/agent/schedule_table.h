// Schedules on stable storage. Thread-safe as the database is.
#ifndef COORDINATOR_AGENT_SCHEDULE_TABLE_H_
#define COORDINATOR_AGENT_SCHEDULE_TABLE_H_

#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/schedule_rules.h"
#include "coordinator/agent/scheduled_job.h"

namespace stasis {

extern const char kScheduleSchema[];

class ScheduleTable {
 public:
  explicit ScheduleTable(Database& database) : database_(database) {}

  struct Row {
    v1::Schedule rules;
    ScheduleState state;
  };
  Result<std::vector<Row>> Load() const;
  Status Save(const Row& row);
  // With what is known of its images; these stay.
  Status Remove(const std::string& job);

  // What a schedule has made, oldest first.
  Status AddImage(const std::string& job, const ScheduleImage& image);
  Result<std::vector<ScheduleImage>> Images(const std::string& job) const;
  Status ForgetImage(const std::string& job, const std::string& id);

 private:
  Database& database_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_TABLE_H_

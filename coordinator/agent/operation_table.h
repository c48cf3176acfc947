// Operations on stable storage. Thread-safe as the database is.
#ifndef COORDINATOR_AGENT_OPERATION_TABLE_H_
#define COORDINATOR_AGENT_OPERATION_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/operations.h"
#include "proto/rpc/actor.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

extern const char kOperationsSchema[];

struct OperationRow {
  int64_t number = 0;
  v1::Operation operation;
  Role role = Role::kItself;
  std::string request;
  std::string remembered;  // JSON, or ""
};

std::string OperationId(int64_t number);
// 0 for what is no id.
int64_t OperationNumber(const std::string& id);
bool HasEnded(v1::OperationState state);
int64_t MillisecondsNow();  // since 1970

class OperationTable {
 public:
  explicit OperationTable(Database& database) : database_(database) {}

  Result<OperationRow> Insert(const OperationRequest& request);
  Status Begin(const OperationRow& row);
  Status SetJob(int64_t number, const std::string& job);
  Status Remember(int64_t number, const std::string& state);
  // With its spans.
  Status End(int64_t number, const v1::Operation& operation);

  // kNotFound.
  Result<OperationRow> Find(int64_t number, bool spans) const;
  Result<std::optional<OperationRow>> FindKey(const std::string& key) const;
  // In their order, with what they remember.
  Result<std::vector<OperationRow>> Unfinished() const;
  // Newest first, without spans; `job` "": of all.
  Result<std::vector<OperationRow>> List(const std::string& job, bool unfinished, int64_t limit) const;
  // Those that have ended long ago, and those beyond a number.
  Status ForgetOld();

 private:
  Result<std::vector<OperationRow>> Select(const std::string& rest, const std::vector<DbValue>& values,
                                           bool spans) const;
  Database& database_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATION_TABLE_H_

// What came from other nodes, on stable storage: the target's side of coordinator/agent/handover.h.
// Thread-safe as the database is.
#ifndef COORDINATOR_AGENT_HANDOVER_TABLE_H_
#define COORDINATOR_AGENT_HANDOVER_TABLE_H_

#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/handover.h"
#include "coordinator/node/layout.h"

namespace stasis {

extern const char kHandOverSchema[];

struct HandOverRow {
  std::string token;
  std::string job;
  bool ranked = false;
  std::vector<std::string> tasks;
  Taker::Record record = Taker::Record::kNone;
  Json result = Json::object();  // of the restore
};

class HandOverTable {
 public:
  explicit HandOverTable(Database& database) : database_(database) {}
  // Replaces what is there for the token.
  Status Write(const HandOverRow& row);
  // kNotFound.
  Result<HandOverRow> Find(const std::string& token) const;
  Result<std::vector<HandOverRow>> Undecided() const;
  // The other side will not ask again.
  Status Forget(const std::string& token);

 private:
  Database& database_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_HANDOVER_TABLE_H_

// What other nodes are to let go of, on stable storage: coordinator/agent/reclaims.h.
// Thread-safe as the database is.
#ifndef COORDINATOR_AGENT_RECLAIM_TABLE_H_
#define COORDINATOR_AGENT_RECLAIM_TABLE_H_

#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"

namespace stasis {

extern const char kReclaimSchema[];

struct Reclaim {
  std::string token;  // of the hand-over
  std::string job;
  std::string address;  // "host:port" of the other node's agent
  std::string node;     // its name
};

class ReclaimTable {
 public:
  explicit ReclaimTable(Database& database) : database_(database) {}
  // Replaces what is there for the token.
  Status Write(const Reclaim& reclaim);
  Result<std::vector<Reclaim>> All() const;  // by address
  Status Forget(const std::string& token);

 private:
  Database& database_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_RECLAIM_TABLE_H_

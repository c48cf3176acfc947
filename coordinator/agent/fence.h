// Only the newest reign of a scheduler may change something (Change.fence).
#ifndef COORDINATOR_AGENT_FENCE_H_
#define COORDINATOR_AGENT_FENCE_H_

#include <cstdint>
#include <memory>
#include <mutex>

#include "base/sqlite/database.h"
#include "base/status.h"

namespace stasis {

// Thread-safe.
class Fence {
 public:
  static Result<std::unique_ptr<Fence>> Load(Database& database);
  // 0: the caller has no number, and is let in. A higher one than ever before is on stable storage when this
  // returns. kFailedPrecondition: there has been a higher one.
  Status Admit(uint64_t number);

 private:
  Fence(Database& database, uint64_t highest) : database_(database), highest_(highest) {}

  Database& database_;
  std::mutex mutex_;
  uint64_t highest_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_FENCE_H_

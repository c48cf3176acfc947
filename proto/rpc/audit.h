// Who did what, and who was refused: table `audit` of a database, and the log.
#ifndef PROTO_RPC_AUDIT_H_
#define PROTO_RPC_AUDIT_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "proto/rpc/actor.h"

namespace stasis {

inline constexpr char kAuditSchema[] = R"(
CREATE TABLE audit (
  id INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  actor TEXT NOT NULL,
  role TEXT NOT NULL,
  address TEXT NOT NULL,
  verb TEXT NOT NULL,
  job TEXT NOT NULL,
  operation TEXT NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
)";

struct AuditEntry {
  std::string actor;  // "": nobody that is known
  std::string role;
  std::string address;  // as gRPC calls the client
  std::string verb;
  std::string job;
  std::string operation;  // that was started
  Status outcome;
};

// What is recorded is logged at once and on disk soon after; at the end of the object all of it is. When more
// comes in than the disk takes, what is too much is only logged, and how many were dropped is told. The
// newest 100,000 are kept. Thread-safe.
class Audit {
 public:
  explicit Audit(Database& database);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  void Record(AuditEntry entry);
  uint64_t dropped() const;

 private:
  struct Row {
    int64_t at_ms;
    AuditEntry entry;
  };
  void Loop();
  void Write(const std::deque<Row>& rows);

  Database& database_;
  mutable std::mutex mutex_;
  std::condition_variable more_;
  std::deque<Row> waiting_;
  uint64_t dropped_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace stasis

#endif  // PROTO_RPC_AUDIT_H_

// The agent's SQLite database: <state dir>/agent.db in WAL mode, synchronous=FULL. What is committed survives
// a kill and a loss of power.
//
// Thread-safe: one connection, one caller at a time. Callers keep what they read often in memory themselves.
#ifndef COORDINATOR_AGENT_DATABASE_H_
#define COORDINATOR_AGENT_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"

struct sqlite3;

namespace stasis {

using DbValue = std::variant<std::nullptr_t, int64_t, double, std::string>;

class DbRow {
 public:
  // A column of another type, or NULL, is the type's zero.
  int64_t Integer(size_t column) const;
  double Number(size_t column) const;
  std::string Text(size_t column) const;  // also of a blob

 private:
  friend class Database;
  std::vector<DbValue> values_;
};

class Database {
 public:
  // Creates it (0600) and brings its tables to this version. kUnsupported: it is of a newer one; kCorrupt: it
  // is no database of ours; kFailedPrecondition: another agent has it open.
  static Result<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Status Execute(std::string_view sql, const std::vector<DbValue>& values = {});
  Result<std::vector<DbRow>> Query(std::string_view sql, const std::vector<DbValue>& values = {});
  // All that `work` does through the given connection is committed together, or nothing of it when `work`
  // fails. `work` uses Execute and Query of this object; they are not blocked for its own thread.
  Status Transaction(const std::function<Status()>& work);

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  Status Migrate();

  sqlite3* const handle_;
  std::recursive_mutex mutex_;
};

// The tables of all modules, as steps from version to version: [0] makes version 1.
const std::vector<std::string>& SchemaSteps();

}  // namespace stasis

#endif  // COORDINATOR_AGENT_DATABASE_H_

// A daemon's SQLite database, in WAL mode, synchronous=FULL. What is committed survives a kill and a loss of
// power.
//
// Thread-safe: one connection, one caller at a time. Callers keep what they read often in memory themselves.
#ifndef BASE_SQLITE_DATABASE_H_
#define BASE_SQLITE_DATABASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

struct sqlite3;

namespace stasis {

// A string may hold any bytes; it is stored as TEXT, also where it is no text (STRICT tables: no BLOB
// columns).
using DbValue = std::variant<std::nullptr_t, int64_t, double, std::string>;

class DbRow {
 public:
  // A column of another type, one that is not there, or NULL, is the type's zero.
  int64_t Integer(size_t column) const;
  double Number(size_t column) const;     // also of an integer
  std::string Text(size_t column) const;  // also of a blob

 private:
  friend class Database;
  std::vector<DbValue> values_;
};

class Database {
 public:
  // Creates it (0600), with missing folders above it, and brings its tables to this version. kUnsupported: it
  // is of a newer one; kCorrupt: it is no database of ours, or damaged; kFailedPrecondition: another
  // process has it open.
  //
  // `steps`: the tables of all modules, from version to version: [0] makes version 1. A step that was
  // released is never changed; a change of the tables is another step at the end.
  static Result<std::unique_ptr<Database>> Open(const std::string& path,
                                                const std::vector<std::string>& steps);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // `values` are bound in the order of the '?'; only where `sql` is a single statement. kAlreadyExists: a
  // row with that key is there; kResourceExhausted: the disk is full. A statement that fails has changed
  // nothing; those before it stay.
  Status Execute(std::string_view sql, const std::vector<DbValue>& values = {});
  Result<std::vector<DbRow>> Query(std::string_view sql, const std::vector<DbValue>& values = {});
  // All that `work` does through this object is committed together when it returns OK, or nothing of it when
  // it fails. `work` uses Execute and Query of this object; they are not blocked for its own thread. Within
  // another transaction: is undone alone when it fails, and committed with the outer one.
  Status Transaction(const std::function<Status()>& work);

 private:
  Database(sqlite3* handle, Fd lock) : lock_(std::move(lock)), handle_(handle) {}
  Status Prepare(const std::vector<std::string>& steps);
  Status Migrate(const std::vector<std::string>& steps);
  Result<int64_t> Pragma(const char* name);
  Status Run(std::string_view sql, const std::vector<DbValue>& values, std::vector<DbRow>* rows);

  const Fd lock_;  // of this process, on a file beside the database
  sqlite3* const handle_;
  std::recursive_mutex mutex_;
  int depth_ = 0;  // transactions that are open, one in the other
};

}  // namespace stasis

#endif  // BASE_SQLITE_DATABASE_H_

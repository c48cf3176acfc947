#include "base/sqlite/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/files.h"

namespace stasis {
namespace {

constexpr int64_t kApplicationId = 0x53746173;  // "Stas", in the header of the file
constexpr int kBusyMilliseconds = 5000;         // for whoever looks at the file with a tool

using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

StatusCode CodeOf(int error) {
  switch (error) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_ROWID:
      return StatusCode::kAlreadyExists;
    default:
      break;
  }
  switch (error & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return StatusCode::kCorrupt;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return StatusCode::kResourceExhausted;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return StatusCode::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_IOERR:
      return StatusCode::kUnavailable;
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
      return StatusCode::kInvalidArgument;
    default:
      return StatusCode::kInternal;
  }
}

Status Failure(sqlite3* handle) {
  return Status(CodeOf(sqlite3_extended_errcode(handle)),
                fmt::format("database: {}", sqlite3_errmsg(handle)));
}

Result<Fd> LockBeside(const std::string& path) {
  ASSIGN_OR_RETURN(Fd lock, OpenFile(path + ".lock", O_RDWR | O_CREAT | O_NOFOLLOW));
  // Unlike flock(2) not inherited: a child of a killed daemon that has not executed its program yet would
  // still have it when the next one starts.
  struct flock all {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  if (fcntl(lock.get(), F_SETLK, &all) == 0) return lock;
  if (errno != EACCES && errno != EAGAIN) return ErrnoStatus(errno, "lock " + path);
  return Status(StatusCode::kFailedPrecondition, path + " is in use by another process");
}

struct Binder {
  sqlite3_stmt* statement;
  int index;
  int operator()(std::nullptr_t) const { return sqlite3_bind_null(statement, index); }
  int operator()(int64_t value) const { return sqlite3_bind_int64(statement, index, value); }
  int operator()(double value) const { return sqlite3_bind_double(statement, index, value); }
  // The caller's values outlive the statement.
  int operator()(const std::string& value) const {
    return sqlite3_bind_text64(statement, index, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
};

Status Bind(sqlite3* handle, sqlite3_stmt* statement, const std::vector<DbValue>& values) {
  int wanted = sqlite3_bind_parameter_count(statement);
  if (static_cast<size_t>(wanted) != values.size()) {
    return Errorf(StatusCode::kInternal, "database: %zu values for %d parameters", values.size(), wanted);
  }
  for (size_t i = 0; i < values.size(); i++) {
    if (std::visit(Binder{statement, static_cast<int>(i) + 1}, values[i]) != SQLITE_OK)
      return Failure(handle);
  }
  return Status();
}

DbValue ColumnOf(sqlite3_stmt* statement, int column) {
  switch (sqlite3_column_type(statement, column)) {
    case SQLITE_INTEGER:
      return int64_t{sqlite3_column_int64(statement, column)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement, column);
    case SQLITE_NULL:
      return nullptr;
    default: {
      const void* bytes = sqlite3_column_blob(statement, column);
      auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
      return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
    }
  }
}

std::vector<DbValue> ValuesOf(sqlite3_stmt* statement) {
  std::vector<DbValue> values;
  for (int i = 0; i < sqlite3_column_count(statement); i++) values.push_back(ColumnOf(statement, i));
  return values;
}

bool IsBlank(std::string_view sql) { return sql.find_first_not_of(" \t\r\n;") == std::string_view::npos; }

}  // namespace

int64_t DbRow::Integer(size_t column) const {
  const auto* value = column < values_.size() ? std::get_if<int64_t>(&values_[column]) : nullptr;
  return value == nullptr ? 0 : *value;
}

double DbRow::Number(size_t column) const {
  const auto* value = column < values_.size() ? std::get_if<double>(&values_[column]) : nullptr;
  return value == nullptr ? static_cast<double>(Integer(column)) : *value;
}

std::string DbRow::Text(size_t column) const {
  const auto* value = column < values_.size() ? std::get_if<std::string>(&values_[column]) : nullptr;
  return value == nullptr ? std::string() : *value;
}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path,
                                                 const std::vector<std::string>& steps) {
  RETURN_IF_ERROR(MakeFolders(path.substr(0, path.rfind('/'))));
  ASSIGN_OR_RETURN(Fd lock, LockBeside(path));
  // SQLite would create it by the umask; what it makes beside the file has the file's mode.
  RETURN_IF_ERROR(OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW).status());
  sqlite3* handle = nullptr;
  int opened = sqlite3_open_v2(path.c_str(), &handle,
                               SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (handle == nullptr) return Status(StatusCode::kResourceExhausted, "no memory to open " + path);
  std::unique_ptr<Database> database(new Database(handle, std::move(lock)));
  if (opened != SQLITE_OK) return Failure(handle).WithContext(path);
  RETURN_IF_ERROR(database->Prepare(steps).WithContext(path));
  return database;
}

Database::~Database() { sqlite3_close(handle_); }

Status Database::Prepare(const std::vector<std::string>& steps) {
  sqlite3_busy_timeout(handle_, kBusyMilliseconds);
  ASSIGN_OR_RETURN(int64_t owner, Pragma("application_id"));
  ASSIGN_OR_RETURN(std::vector<DbRow> tables, Query("SELECT count(*) FROM sqlite_schema"));
  bool fresh = tables.at(0).Integer(0) == 0;
  if (owner != kApplicationId && !(fresh && owner == 0)) {
    return Status(StatusCode::kCorrupt, "the file is no database of this program");
  }
  ASSIGN_OR_RETURN(std::vector<DbRow> check, Query("PRAGMA quick_check(1)"));
  if (check.empty() || check[0].Text(0) != "ok") {
    return Status(StatusCode::kCorrupt, "damaged: " + (check.empty() ? "" : check[0].Text(0)));
  }
  RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(Execute("PRAGMA foreign_keys=ON"));
  // A burst must not leave its log on disk for ever.
  RETURN_IF_ERROR(Execute("PRAGMA journal_size_limit=16777216"));
  return Migrate(steps);
}

Status Database::Migrate(const std::vector<std::string>& steps) {
  ASSIGN_OR_RETURN(int64_t version, Pragma("user_version"));
  if (version < 0 || static_cast<size_t>(version) > steps.size()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("its version is {}, and this program knows up to {}", version, steps.size()));
  }
  for (size_t step = static_cast<size_t>(version); step < steps.size(); step++) {
    Status made = Transaction([&]() -> Status {
      RETURN_IF_ERROR(Execute(steps[step]));
      RETURN_IF_ERROR(Execute(fmt::format("PRAGMA application_id={}", kApplicationId)));
      return Execute(fmt::format("PRAGMA user_version={}", step + 1));
    });
    RETURN_IF_ERROR(std::move(made).WithContext(fmt::format("step to version {}", step + 1)));
  }
  return Status();
}

Result<int64_t> Database::Pragma(const char* name) {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows, Query(fmt::format("PRAGMA {}", name)));
  return rows.empty() ? 0 : rows[0].Integer(0);
}

Status Database::Execute(std::string_view sql, const std::vector<DbValue>& values) {
  return Run(sql, values, nullptr);
}

Result<std::vector<DbRow>> Database::Query(std::string_view sql, const std::vector<DbValue>& values) {
  std::vector<DbRow> rows;
  RETURN_IF_ERROR(Run(sql, values, &rows));
  return rows;
}

Status Database::Run(std::string_view sql, const std::vector<DbValue>& values, std::vector<DbRow>* rows) {
  std::lock_guard lock(mutex_);
  while (!IsBlank(sql)) {
    if (depth_ > 0 && sqlite3_get_autocommit(handle_) != 0) {
      return Status(StatusCode::kFailedPrecondition, "database: the transaction was rolled back");
    }
    sqlite3_stmt* prepared = nullptr;
    const char* rest = nullptr;
    if (sqlite3_prepare_v2(handle_, sql.data(), static_cast<int>(sql.size()), &prepared, &rest) !=
        SQLITE_OK) {
      return Failure(handle_);
    }
    sql.remove_prefix(static_cast<size_t>(rest - sql.data()));
    if (prepared == nullptr) continue;  // a comment
    Statement statement(prepared, sqlite3_finalize);
    RETURN_IF_ERROR(Bind(handle_, prepared, values));
    int step;
    while ((step = sqlite3_step(prepared)) == SQLITE_ROW) {
      if (rows != nullptr) rows->emplace_back().values_ = ValuesOf(prepared);
    }
    if (step != SQLITE_DONE) return Failure(handle_);
  }
  return Status();
}

Status Database::Transaction(const std::function<Status()>& work) {
  std::lock_guard lock(mutex_);
  bool outermost = depth_ == 0;
  RETURN_IF_ERROR(Execute(outermost ? "BEGIN IMMEDIATE" : "SAVEPOINT inner"));
  depth_++;
  Status done = work();
  depth_--;
  if (done.ok()) done = Execute(outermost ? "COMMIT" : "RELEASE inner");
  if (done.ok()) return done;
  // Some failures (a full disk) have rolled back all of it by themselves.
  if (sqlite3_get_autocommit(handle_) != 0) return done;
  Status undone = Execute(outermost ? "ROLLBACK" : "ROLLBACK TO inner; RELEASE inner");
  return undone.ok() ? done : undone;
}

}  // namespace stasis

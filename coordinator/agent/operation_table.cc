#include "coordinator/agent/operation_table.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>

namespace stasis {

// `notes` and `spans`: serialized Operations that hold nothing else. `key` is NULL without one.
const char kOperationsSchema[] = R"(
CREATE TABLE operations (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  verb TEXT NOT NULL,
  job TEXT NOT NULL,
  actor TEXT NOT NULL,
  role INTEGER NOT NULL,
  key TEXT UNIQUE,
  request TEXT NOT NULL,
  state INTEGER NOT NULL,
  created_ms INTEGER NOT NULL,
  started_ms INTEGER NOT NULL DEFAULT 0,
  ended_ms INTEGER NOT NULL DEFAULT 0,
  remembered TEXT NOT NULL DEFAULT '',
  phase TEXT NOT NULL DEFAULT '',
  result TEXT NOT NULL DEFAULT '',
  revision INTEGER NOT NULL DEFAULT 0,
  notes TEXT NOT NULL DEFAULT '',
  spans TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX operations_by_job ON operations (job, number);
CREATE INDEX operations_unfinished ON operations (number) WHERE ended_ms = 0;
CREATE INDEX operations_by_end ON operations (ended_ms) WHERE ended_ms != 0;
)";

namespace {

constexpr int64_t kKeepMs = 7ll * 24 * 3600 * 1000;
constexpr int64_t kKeepNumber = 10000;
constexpr char kPrefix[] = "op-";

OperationRow RowOf(const DbRow& columns) {
  OperationRow row;
  row.number = columns.Integer(0);
  v1::Operation& operation = row.operation;
  operation.ParseFromString(columns.Text(12));
  operation.MergeFromString(columns.Text(15));
  operation.set_id(OperationId(row.number));
  operation.set_verb(columns.Text(1));
  operation.set_job(columns.Text(2));
  operation.set_actor(columns.Text(3));
  row.role = static_cast<Role>(columns.Integer(4));
  row.request = columns.Text(5);
  operation.set_state(static_cast<v1::OperationState>(columns.Integer(6)));
  operation.set_created_ms(columns.Integer(7));
  operation.set_started_ms(columns.Integer(8));
  operation.set_ended_ms(columns.Integer(9));
  operation.set_phase(columns.Text(10));
  operation.set_result_json(columns.Text(11));
  operation.set_revision(static_cast<uint64_t>(columns.Integer(13)));
  row.remembered = columns.Text(14);
  return row;
}

}  // namespace

std::string OperationId(int64_t number) { return fmt::format("{}{:06}", kPrefix, number); }

int64_t OperationNumber(const std::string& id) {
  std::string_view digits = id;
  if (!digits.starts_with(kPrefix)) return 0;
  digits.remove_prefix(sizeof kPrefix - 1);
  int64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && number > 0 && OperationId(number) == id ? number : 0;
}

bool HasEnded(v1::OperationState state) {
  return state != v1::OPERATION_STATE_QUEUED && state != v1::OPERATION_STATE_RUNNING;
}

int64_t MillisecondsNow() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<std::vector<OperationRow>> OperationTable::Select(const std::string& rest,
                                                         const std::vector<DbValue>& values,
                                                         bool spans) const {
  ASSIGN_OR_RETURN(std::vector<DbRow> found,
                   database_.Query(fmt::format("SELECT number, verb, job, actor, role, request, state, "
                                               "created_ms, started_ms, ended_ms, phase, result, notes, "
                                               "revision, remembered, {} FROM operations {}",
                                               spans ? "spans" : "''", rest),
                                   values));
  std::vector<OperationRow> rows;
  for (const DbRow& columns : found) rows.push_back(RowOf(columns));
  return rows;
}

Result<OperationRow> OperationTable::Insert(const OperationRequest& request) {
  OperationRow row;
  row.role = request.actor.role;
  row.request = request.request;
  v1::Operation& operation = row.operation;
  operation.set_verb(request.verb);
  operation.set_job(request.job);
  operation.set_actor(request.actor.name);
  operation.set_state(v1::OPERATION_STATE_QUEUED);
  operation.set_created_ms(MillisecondsNow());
  DbValue key = request.key.empty() ? DbValue(nullptr) : DbValue(request.key);
  ASSIGN_OR_RETURN(
      std::vector<DbRow> made,
      database_.Query(
          "INSERT INTO operations (verb, job, actor, role, key, request, state, created_ms) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
          {request.verb, request.job, request.actor.name, static_cast<int64_t>(request.actor.role), key,
           request.request, static_cast<int64_t>(operation.state()), operation.created_ms()}));
  row.number = made.at(0).Integer(0);
  operation.set_id(OperationId(row.number));
  return row;
}

Status OperationTable::Begin(const OperationRow& row) {
  return database_.Execute(
      "UPDATE operations SET state = ?, started_ms = ? WHERE number = ?",
      {static_cast<int64_t>(v1::OPERATION_STATE_RUNNING), row.operation.started_ms(), row.number});
}

Status OperationTable::SetJob(int64_t number, const std::string& job) {
  return database_.Execute("UPDATE operations SET job = ? WHERE number = ?", {job, number});
}

Status OperationTable::Remember(int64_t number, const std::string& state) {
  return database_.Execute("UPDATE operations SET remembered = ? WHERE number = ?", {state, number});
}

Status OperationTable::End(int64_t number, const v1::Operation& operation) {
  v1::Operation notes, spans;
  *notes.mutable_notes() = operation.notes();
  *spans.mutable_spans() = operation.spans();
  return database_.Execute(
      "UPDATE operations SET state = ?, ended_ms = ?, phase = ?, result = ?, revision = ?, notes = ?, "
      "spans = ? WHERE number = ?",
      {static_cast<int64_t>(operation.state()), operation.ended_ms(), operation.phase(),
       operation.result_json(), static_cast<int64_t>(operation.revision()), notes.SerializeAsString(),
       spans.SerializeAsString(), number});
}

Result<OperationRow> OperationTable::Find(int64_t number, bool spans) const {
  ASSIGN_OR_RETURN(std::vector<OperationRow> rows, Select("WHERE number = ?", {number}, spans));
  if (rows.empty()) return Status(StatusCode::kNotFound, "no operation " + OperationId(number));
  return std::move(rows[0]);
}

Result<std::optional<OperationRow>> OperationTable::FindKey(const std::string& key) const {
  ASSIGN_OR_RETURN(std::vector<OperationRow> rows, Select("WHERE key = ?", {key}, false));
  if (rows.empty()) return std::optional<OperationRow>();
  return std::optional<OperationRow>(std::move(rows[0]));
}

Result<std::vector<OperationRow>> OperationTable::Unfinished() const {
  return Select("WHERE ended_ms = 0 ORDER BY number", {}, false);
}

Result<std::vector<OperationRow>> OperationTable::List(const std::string& job, bool unfinished,
                                                       int64_t limit) const {
  std::vector<DbValue> values;
  std::string where = unfinished ? "WHERE ended_ms = 0" : "WHERE true";
  if (!job.empty()) {
    where += " AND job = ?";
    values.emplace_back(job);
  }
  values.emplace_back(limit);
  return Select(where + " ORDER BY number DESC LIMIT ?", values, false);
}

Status OperationTable::ForgetOld() {
  return database_.Execute(
      "DELETE FROM operations WHERE ended_ms != 0 AND (ended_ms < ? OR number <= "
      "(SELECT max(number) FROM operations) - ?)",
      {MillisecondsNow() - kKeepMs, kKeepNumber});
}

}  // namespace stasis

#include "coordinator/agent/handover_table.h"

#include <chrono>

namespace stasis {

// A row stays until the other side has said that it knows: what is forgotten counts as never taken.
const char kHandOverSchema[] = R"(
CREATE TABLE handovers (
  token TEXT PRIMARY KEY,
  job TEXT NOT NULL,
  ranked INTEGER NOT NULL,
  tasks TEXT NOT NULL,
  record TEXT NOT NULL,
  result TEXT NOT NULL,
  changed_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)";

namespace {

constexpr char kColumns[] = "SELECT token, job, ranked, tasks, record, result FROM handovers ";

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

HandOverRow RowOf(const DbRow& columns) {
  HandOverRow row;
  row.token = columns.Text(0);
  row.job = columns.Text(1);
  row.ranked = columns.Integer(2) != 0;
  Json tasks = Json::parse(columns.Text(3), nullptr, false);
  if (tasks.is_array()) row.tasks = TextsField({{"tasks", tasks}}, "tasks");
  row.record = TakerRecordOf(columns.Text(4));
  row.result = Json::parse(columns.Text(5), nullptr, false);
  if (!row.result.is_object()) row.result = Json::object();
  return row;
}

}  // namespace

Status HandOverTable::Write(const HandOverRow& row) {
  return database_.Execute("INSERT OR REPLACE INTO handovers VALUES (?, ?, ?, ?, ?, ?, ?)",
                           {row.token, row.job, int64_t{row.ranked}, Json(row.tasks).dump(),
                            std::string(RecordName(row.record)), row.result.dump(), NowMs()});
}

Result<HandOverRow> HandOverTable::Find(const std::string& token) const {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows,
                   database_.Query(std::string(kColumns) + "WHERE token = ?", {token}));
  if (rows.empty()) return Status(StatusCode::kNotFound, "no hand-over of that token");
  return RowOf(rows[0]);
}

Result<std::vector<HandOverRow>> HandOverTable::Undecided() const {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows, database_.Query(std::string(kColumns) + "WHERE record = ?",
                                                            {std::string(RecordName(Taker::Record::kMine))}));
  std::vector<HandOverRow> found;
  for (const DbRow& columns : rows) found.push_back(RowOf(columns));
  return found;
}

Status HandOverTable::Forget(const std::string& token) {
  return database_.Execute("DELETE FROM handovers WHERE token = ?", {token});
}

}  // namespace stasis

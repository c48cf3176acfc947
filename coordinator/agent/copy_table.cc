#include "coordinator/agent/copy_table.h"

#include <chrono>

#include "coordinator/node/layout.h"

namespace stasis {

const char kCopySchema[] = R"(
CREATE TABLE image_copies (
  job TEXT NOT NULL,
  image TEXT NOT NULL,
  whole INTEGER NOT NULL,
  made INTEGER NOT NULL,
  body TEXT NOT NULL,
  changed_ms INTEGER NOT NULL,
  PRIMARY KEY (job, image)
) STRICT, WITHOUT ROWID;
)";

namespace {

constexpr char kColumns[] = "SELECT job, image, whole, made, body FROM image_copies ";

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string BodyOf(const CopyRow& row) {
  Json body = {{"ranked", row.ranked},
               {"tasks", row.tasks},
               {"images", row.images},
               {"sums", row.sums},
               {"job_json", row.job_json}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<CopyRow> RowOf(const DbRow& columns) {
  CopyRow row;
  row.job = columns.Text(0);
  row.image = columns.Text(1);
  row.whole = columns.Integer(2) != 0;
  row.made = static_cast<uint64_t>(columns.Integer(3));
  Json body = Json::parse(columns.Text(4), nullptr, false);
  if (!body.is_object()) body = Json::object();
  row.ranked = BoolField(body, "ranked");
  row.tasks = TextsField(body, "tasks");
  row.images = TextsField(body, "images");
  row.sums = TextsField(body, "sums");
  row.job_json = TextField(body, "job_json");
  if (!row.tasks.empty() && row.images.size() == row.tasks.size() && row.sums.size() == row.tasks.size())
    return row;
  return Status(StatusCode::kCorrupt, "the record of a copy of " + row.job + " cannot be read");
}

Result<std::vector<CopyRow>> RowsOf(const std::vector<DbRow>& found) {
  std::vector<CopyRow> rows;
  for (const DbRow& columns : found) {
    ASSIGN_OR_RETURN(CopyRow row, RowOf(columns));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Status CopyTable::Write(const CopyRow& row) {
  return database_.Execute(
      "INSERT OR REPLACE INTO image_copies VALUES (?, ?, ?, ?, ?, ?)",
      {row.job, row.image, int64_t{row.whole}, static_cast<int64_t>(row.made), BodyOf(row), NowMs()});
}

Status CopyTable::Remove(const CopyRow& row) {
  return database_.Execute("DELETE FROM image_copies WHERE job = ? AND image = ?", {row.job, row.image});
}

Result<std::vector<CopyRow>> CopyTable::Of(const std::string& job) const {
  ASSIGN_OR_RETURN(
      std::vector<DbRow> found,
      database_.Query(std::string(kColumns) + "WHERE job = ? AND whole = 1 ORDER BY image", {job}));
  return RowsOf(found);
}

Result<std::vector<CopyRow>> CopyTable::Broken() const {
  ASSIGN_OR_RETURN(std::vector<DbRow> found, database_.Query(std::string(kColumns) + "WHERE whole = 0", {}));
  return RowsOf(found);
}

}  // namespace stasis

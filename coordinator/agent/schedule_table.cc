#include "coordinator/agent/schedule_table.h"

namespace stasis {

// `rules`: a serialized Schedule. `state`: JSON.
const char kScheduleSchema[] = R"(
CREATE TABLE schedules (
  job TEXT PRIMARY KEY,
  rules TEXT NOT NULL,
  state TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE schedule_images (
  job TEXT NOT NULL REFERENCES schedules (job) ON DELETE CASCADE,
  image TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  PRIMARY KEY (job, image)
) STRICT, WITHOUT ROWID;
)";

Result<std::vector<ScheduleTable::Row>> ScheduleTable::Load() const {
  ASSIGN_OR_RETURN(std::vector<DbRow> found, database_.Query("SELECT job, rules, state FROM schedules"));
  std::vector<Row> rows;
  for (const DbRow& columns : found) {
    Row row;
    Json state = Json::parse(columns.Text(2), nullptr, /*allow_exceptions=*/false);
    if (!row.rules.ParseFromString(columns.Text(1)) || !state.is_object()) {
      return Status(StatusCode::kCorrupt, "database: the schedule of " + columns.Text(0) + " cannot be read");
    }
    row.state = ScheduleState::FromJson(state);
    rows.push_back(std::move(row));
  }
  return rows;
}

Status ScheduleTable::Save(const Row& row) {
  return database_.Execute(
      "INSERT INTO schedules (job, rules, state) VALUES (?, ?, ?) "
      "ON CONFLICT (job) DO UPDATE SET rules = excluded.rules, state = excluded.state",
      {row.rules.job(), row.rules.SerializeAsString(),
       row.state.ToJson().dump(-1, ' ', false, Json::error_handler_t::replace)});
}

Status ScheduleTable::Remove(const std::string& job) {
  return database_.Execute("DELETE FROM schedules WHERE job = ?", {job});
}

Status ScheduleTable::AddImage(const std::string& job, const ScheduleImage& image) {
  return database_.Execute("INSERT OR IGNORE INTO schedule_images (job, image, created_ms) VALUES (?, ?, ?)",
                           {job, image.id, image.created_ms});
}

Result<std::vector<ScheduleImage>> ScheduleTable::Images(const std::string& job) const {
  ASSIGN_OR_RETURN(
      std::vector<DbRow> found,
      database_.Query("SELECT image, created_ms FROM schedule_images WHERE job = ? ORDER BY image", {job}));
  std::vector<ScheduleImage> images;
  for (const DbRow& columns : found) images.push_back({columns.Text(0), columns.Integer(1)});
  return images;
}

Status ScheduleTable::ForgetImage(const std::string& job, const std::string& id) {
  return database_.Execute("DELETE FROM schedule_images WHERE job = ? AND image = ?", {job, id});
}

}  // namespace stasis

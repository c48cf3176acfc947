#include "scheduler/daemon/store.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "proto/rpc/audit.h"

namespace stasis::scheduler {
namespace {

constexpr char kTables[] = R"(
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('cluster_id', lower(hex(randomblob(8)))), ('reign', '0');
CREATE TABLE facts (
  number INTEGER PRIMARY KEY,
  at_ms INTEGER NOT NULL,
  fact TEXT NOT NULL
) STRICT;
)";

// In place of the facts up to `number`. Jobs by the number of their submission; `snapshot`: the last one that
// had news of it.
constexpr char kSnapshotTables[] = R"(
CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  number INTEGER NOT NULL,
  forgotten_ms INTEGER NOT NULL,
  cluster TEXT NOT NULL
) STRICT;
CREATE TABLE snapshot_jobs (
  number INTEGER PRIMARY KEY,
  snapshot INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  request TEXT NOT NULL,
  state TEXT NOT NULL
) STRICT;
CREATE TABLE snapshot_events (
  number INTEGER PRIMARY KEY,
  event TEXT NOT NULL
) STRICT;
)";

// A page of facts is in memory at a time.
constexpr int64_t kPage = 1000;

Result<std::string> Meta(Database& database, const char* key) {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows, database.Query("SELECT value FROM meta WHERE key = ?", {key}));
  if (rows.size() == 1) return rows[0].Text(0);
  return Errorf(StatusCode::kCorrupt, "the scheduler's database does not have its %s", key);
}

Result<StoredFact> FactOf(const DbRow& row) {
  StoredFact stored;
  stored.number = static_cast<uint64_t>(row.Integer(0));
  stored.at = row.Integer(1);
  Result<Fact> fact = ParseFact(row.Text(2));
  if (!fact.ok()) return fact.status().WithContext("fact " + std::to_string(stored.number));
  stored.fact = *std::move(fact);
  return stored;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                   Database::Open(path, {kTables, kAuditSchema, kSnapshotTables}));
  ASSIGN_OR_RETURN(std::string cluster_id, Meta(*database, "cluster_id"));
  return std::unique_ptr<Store>(new Store(std::move(database), std::move(cluster_id)));
}

Result<uint64_t> Store::BeginReign(uint64_t least) {
  ASSIGN_OR_RETURN(std::string text, Meta(*database_, "reign"));
  uint64_t last = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), last);
  if (error != std::errc() || end != text.data() + text.size())
    return Status(StatusCode::kCorrupt, "the reign on record is no number");
  const uint64_t reign = std::max(last + 1, least);
  RETURN_IF_ERROR(
      database_->Execute("UPDATE meta SET value = ? WHERE key = 'reign'", {std::to_string(reign)}));
  return reign;
}

Status Store::ForEach(const std::function<Status(const StoredFact&)>& take) const {
  for (int64_t after = 0;;) {
    ASSIGN_OR_RETURN(
        std::vector<DbRow> rows,
        database_->Query("SELECT number, at_ms, fact FROM facts WHERE number > ? ORDER BY number LIMIT ?",
                         {after, kPage}));
    if (rows.empty()) return Status();
    for (const DbRow& row : rows) {
      ASSIGN_OR_RETURN(StoredFact stored, FactOf(row));
      RETURN_IF_ERROR(take(stored));
    }
    after = rows.back().Integer(0);
  }
}

Result<std::optional<Snapshot>> Store::LoadSnapshot() const {
  ASSIGN_OR_RETURN(const std::vector<DbRow> rows,
                   database_->Query("SELECT number, forgotten_ms, cluster FROM snapshot"));
  if (rows.empty()) return std::optional<Snapshot>();
  Snapshot snapshot;
  snapshot.number = static_cast<uint64_t>(rows[0].Integer(0));
  snapshot.forgotten = rows[0].Integer(1);
  snapshot.cluster = rows[0].Text(2);
  ASSIGN_OR_RETURN(
      const std::vector<DbRow> jobs,
      database_->Query("SELECT number, ended_ms, request, state FROM snapshot_jobs ORDER BY number"));
  for (const DbRow& row : jobs) {
    snapshot.jobs.push_back(
        {static_cast<uint64_t>(row.Integer(0)), row.Integer(1), row.Text(2), row.Text(3)});
  }
  return std::optional<Snapshot>(std::move(snapshot));
}

Result<std::vector<Store::Event>> Store::LoadEvents() const {
  ASSIGN_OR_RETURN(const std::vector<DbRow> rows,
                   database_->Query("SELECT number, event FROM snapshot_events ORDER BY number"));
  std::vector<Event> events;
  for (const DbRow& row : rows) events.push_back({static_cast<uint64_t>(row.Integer(0)), row.Text(1)});
  return events;
}

// A job that lives is in every snapshot; one that has ended since the one before is, too.
Status Store::SaveJobs(const Snapshot& snapshot) {
  const auto number = static_cast<int64_t>(snapshot.number);
  for (const Snapshot::Job& job : snapshot.jobs) {
    RETURN_IF_ERROR(database_->Execute(
        "INSERT INTO snapshot_jobs (number, snapshot, ended_ms, request, state) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (number) DO UPDATE SET snapshot = excluded.snapshot, ended_ms = excluded.ended_ms, "
        "state = excluded.state",
        {static_cast<int64_t>(job.number), number, job.ended, job.request, job.state}));
  }
  return database_->Execute(
      "DELETE FROM snapshot_jobs WHERE (ended_ms = 0 AND snapshot < ?) OR (ended_ms != 0 AND ended_ms < ?)",
      {number, snapshot.forgotten});
}

Status Store::SaveSnapshot(const Snapshot& snapshot, const std::vector<Event>& events, size_t most) {
  const auto number = static_cast<int64_t>(snapshot.number);
  return database_->Transaction([&]() -> Status {
    RETURN_IF_ERROR(SaveJobs(snapshot));
    RETURN_IF_ERROR(database_->Execute(
        "INSERT OR REPLACE INTO snapshot (id, number, forgotten_ms, cluster) VALUES (1, ?, ?, ?)",
        {number, snapshot.forgotten, snapshot.cluster}));
    for (const Event& event : events) {
      RETURN_IF_ERROR(
          database_->Execute("INSERT OR REPLACE INTO snapshot_events (number, event) VALUES (?, ?)",
                             {static_cast<int64_t>(event.number), event.text}));
    }
    RETURN_IF_ERROR(
        database_->Execute("DELETE FROM snapshot_events WHERE number <= "
                           "(SELECT number FROM snapshot_events ORDER BY number DESC LIMIT 1 OFFSET ?)",
                           {static_cast<int64_t>(most)}));
    return database_->Execute("DELETE FROM facts WHERE number <= ?", {number});
  });
}

Status Store::Append(const std::vector<StoredFact>& facts) {
  return database_->Transaction([&]() -> Status {
    for (const StoredFact& each : facts) {
      RETURN_IF_ERROR(database_->Execute("INSERT INTO facts (number, at_ms, fact) VALUES (?, ?, ?)",
                                         {static_cast<int64_t>(each.number), each.at, FactText(each.fact)}));
    }
    return Status();
  });
}

}  // namespace stasis::scheduler

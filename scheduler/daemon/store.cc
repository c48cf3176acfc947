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
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(path, {kTables, kAuditSchema}));
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

#include "coordinator/agent/reclaim_table.h"

namespace stasis {

const char kReclaimSchema[] = R"(
CREATE TABLE reclaims (
  token TEXT PRIMARY KEY,
  job TEXT NOT NULL,
  address TEXT NOT NULL,
  node TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)";

Status ReclaimTable::Write(const Reclaim& reclaim) {
  return database_.Execute("INSERT OR REPLACE INTO reclaims VALUES (?, ?, ?, ?)",
                           {reclaim.token, reclaim.job, reclaim.address, reclaim.node});
}

Result<std::vector<Reclaim>> ReclaimTable::All() const {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows,
                   database_.Query("SELECT token, job, address, node FROM reclaims ORDER BY address", {}));
  std::vector<Reclaim> all;
  for (const DbRow& row : rows) all.push_back({row.Text(0), row.Text(1), row.Text(2), row.Text(3)});
  return all;
}

Status ReclaimTable::Forget(const std::string& token) {
  return database_.Execute("DELETE FROM reclaims WHERE token = ?", {token});
}

}  // namespace stasis

#include "coordinator/agent/fence.h"

#include <charconv>
#include <string>

#include "proto/rpc/fencing.h"

namespace stasis {

Result<std::unique_ptr<Fence>> Fence::Load(Database& database) {
  ASSIGN_OR_RETURN(std::vector<DbRow> rows, database.Query("SELECT value FROM meta WHERE key = 'fence'"));
  uint64_t highest = 0;
  if (!rows.empty()) {
    std::string text = rows[0].Text(0);
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), highest);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Status(StatusCode::kCorrupt, "the fence on record is no number");
    }
  }
  return std::unique_ptr<Fence>(new Fence(database, highest));
}

Status Fence::Admit(uint64_t number) {
  if (number == 0) return Status();
  std::lock_guard lock(mutex_);
  if (number < highest_) {
    return Status(StatusCode::kFailedPrecondition, std::string(kFencedOff) + std::to_string(highest_) +
                                                       ": a scheduler that reigned before, with " +
                                                       std::to_string(number) + ", changes nothing any more");
  }
  if (number == highest_) return Status();
  RETURN_IF_ERROR(
      database_.Execute("INSERT INTO meta (key, value) VALUES ('fence', ?) ON CONFLICT (key) DO UPDATE SET "
                        "value = excluded.value",
                        {std::to_string(number)}));
  highest_ = number;
  return Status();
}

}  // namespace stasis

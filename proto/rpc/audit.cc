#include "proto/rpc/audit.h"

#include <chrono>

#include "base/log/log.h"

namespace stasis {
namespace {

constexpr size_t kMostWaiting = 10000;
constexpr int64_t kMostKept = 100000;

int64_t NowMs() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

nlohmann::json Describe(const AuditEntry& entry) {
  nlohmann::json fields = {{"actor", entry.actor},
                           {"role", entry.role},
                           {"address", entry.address},
                           {"verb", entry.verb},
                           {"code", StatusCodeName(entry.outcome.code())}};
  if (!entry.job.empty()) fields["job"] = entry.job;
  if (!entry.operation.empty()) fields["operation"] = entry.operation;
  if (!entry.outcome.ok()) fields["why"] = std::string(entry.outcome.message());
  return fields;
}

}  // namespace

Audit::Audit(Database& database) : database_(database), thread_([this] { Loop(); }) {}

Audit::~Audit() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void Audit::Record(AuditEntry entry) {
  bool refused = !entry.outcome.ok();
  Log(refused ? LogLevel::kWarning : LogLevel::kInfo, "audit", refused ? "refused" : "taken",
      Describe(entry));
  std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    dropped_++;
    return;
  }
  waiting_.push_back({NowMs(), std::move(entry)});
  more_.notify_one();
}

uint64_t Audit::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

void Audit::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::deque<Row> rows = std::move(waiting_);
    waiting_.clear();
    lock.unlock();
    Write(rows);
    lock.lock();
  }
}

void Audit::Write(const std::deque<Row>& rows) {
  Status written = database_.Transaction([&] {
    for (const Row& row : rows) {
      const AuditEntry& entry = row.entry;
      RETURN_IF_ERROR(database_.Execute(
          "INSERT INTO audit (at_ms, actor, role, address, verb, job, operation, code, message) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
          {row.at_ms, entry.actor, entry.role, entry.address, entry.verb, entry.job, entry.operation,
           std::string(StatusCodeName(entry.outcome.code())), std::string(entry.outcome.message())}));
    }
    return database_.Execute("DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - ?", {kMostKept});
  });
  if (written.ok()) return;
  Log(LogLevel::kError, "audit", "what was done is not on record",
      {{"entries", rows.size()}, {"why", std::string(written.message())}});
}

}  // namespace stasis

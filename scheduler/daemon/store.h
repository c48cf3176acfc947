// What has happened to the cluster, on stable storage: <state dir>/schedd.db.
#ifndef SCHEDULER_DAEMON_STORE_H_
#define SCHEDULER_DAEMON_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "scheduler/live/fact.h"
#include "scheduler/live/snapshot.h"

namespace stasis::scheduler {

struct StoredFact {
  uint64_t number = 0;  // ascending, from 1
  Time at = 0;          // milliseconds since 1970
  Fact fact;
};

// Thread-safe.
class Store {
 public:
  // As Database::Open(). kFailedPrecondition: another scheduler has it open.
  static Result<std::unique_ptr<Store>> Open(const std::string& path);

  // What the cluster is called in the idempotency keys of its orders; made when the store is.
  const std::string& cluster_id() const { return cluster_id_; }
  // For what else belongs into the same file.
  Database& database() { return *database_; }
  // A number higher than that of every start before, and at least `least`; on stable storage when it returns.
  Result<uint64_t> BeginReign(uint64_t least);
  // What the facts up to its number have led to; nothing: they are all there.
  Result<std::optional<Snapshot>> LoadSnapshot() const;
  // Texts that were saved with snapshots, by number.
  struct Event {
    uint64_t number = 0;
    std::string text;
  };
  Result<std::vector<Event>> LoadEvents() const;
  // In place of the facts up to its number, and of the snapshot before, on which it is based
  // (Cluster::Save()). Of all events the newest `most` stay.
  Status SaveSnapshot(const Snapshot& snapshot, const std::vector<Event>& events, size_t most);
  // All facts that are newer, in order. kCorrupt names the one that cannot be read.
  Status ForEach(const std::function<Status(const StoredFact&)>& take) const;
  // All of them or none. Numbers ascend.
  Status Append(const std::vector<StoredFact>& facts);

 private:
  Status SaveJobs(const Snapshot& snapshot);
  Store(std::unique_ptr<Database> database, std::string cluster_id)
      : database_(std::move(database)), cluster_id_(std::move(cluster_id)) {}

  const std::unique_ptr<Database> database_;
  const std::string cluster_id_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_STORE_H_

// The scheduler without its sockets: what has happened is stored, taken and decided on, and everybody can ask
// how things are. The gRPC service is a thin shell around it, the agents' driver is one more user.
//
// Thread-safe; all calls answer from memory but those that record something, which return when it is on
// stable storage.
#ifndef SCHEDULER_DAEMON_CORE_H_
#define SCHEDULER_DAEMON_CORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "scheduler/daemon/store.h"
#include "scheduler/daemon/views.h"
#include "scheduler/live/cluster.h"
#include "stasis/v1/scheduler.pb.h"

namespace stasis::scheduler {

class SchedulerCore {
 public:
  struct Options {
    Cluster::Options cluster;
    std::string policy = "astraea";
    // So long after their end jobs are on record, until the next snapshot; and after so many facts there is
    // one.
    Time keep_ended = 7 * 24 * 3600 * kSecond;
    uint64_t compact_after = 20000;
    // Milliseconds since 1970; goes on when the clock is set back, but may begin before the last fact.
    std::function<Time()> now;
    // Called once, from any thread, when what was decided could not be stored: nothing is recorded any more.
    std::function<void(const Status&)> broken = [](const Status&) {};
    // Called when no snapshot could be stored: all facts stay, and it is tried again later.
    std::function<void(const Status&)> not_compacted = [](const Status&) {};
    // Called when the policy's decisions did not come to rest: nothing more is decided for a while.
    std::function<void()> restless = [] {};
    // For who counts: of what happens from now on, before the cluster takes it; and how long a decision took.
    // Called with the core's lock.
    std::function<void(const Cluster& before, const StoredFact& fact)> happens = [](const Cluster&,
                                                                                    const StoredFact&) {};
    std::function<void(Duration took)> decided = [](Duration) {};
  };
  // Takes all that is in the store, and begins a reign. `store` outlives the object.
  static Result<std::unique_ptr<SchedulerCore>> Open(Store& store, Options options);
  SchedulerCore(const SchedulerCore&) = delete;
  SchedulerCore& operator=(const SchedulerCore&) = delete;

  const std::string& cluster_id() const { return cluster_id_; }
  uint64_t reign() const { return reign_; }
  // The last fact of earlier reigns: what came after it no agent has been asked for before this one.
  uint64_t before_reign() const { return before_reign_; }

  // ---- What the service is asked for. What depends on the cluster is checked here (kNotFound,
  // kAlreadyExists, kFailedPrecondition, kInvalidArgument); lengths, characters and ranges of single fields
  // are checked by the caller.

  v1::ClusterInfoReply Info() const;
  // An empty name is made from the program's. A key that was taken before: the first one's job; with another
  // request kInvalidArgument.
  Result<v1::QueuedJob> Submit(const v1::SubmitRequest& request);
  Result<v1::QueueReply> Queue(const v1::QueueRequest& request) const;
  Result<v1::QueuedJob> Cancel(const std::string& job);
  v1::TenantsReply Tenants() const;
  Result<v1::Tenant> SetTenant(const v1::SetTenantRequest& request);
  v1::NodesReply Nodes() const;
  Result<v1::ClusterNode> Drain(const v1::DrainRequest& request);
  Result<v1::ClusterNode> Undrain(const std::string& node);
  Result<v1::ClusterNode> SetMaintenance(const v1::SetMaintenanceRequest& request);
  // Without dry_run the moves are decided on, too.
  Result<v1::DefragmentReply> Defragment(const v1::DefragmentRequest& request);

  // What has happened after `after`, oldest first, at most `most`. Older ones than the newest 10,000 are not
  // there any more.
  std::vector<v1::ClusterEvent> EventsAfter(uint64_t after, size_t most) const;
  uint64_t last_event() const;
  // `told` is called after each event, from the thread that recorded it and without a lock of this object; it
  // must not block, and record nothing. It is not running any more once the returned object has gone.
  std::shared_ptr<void> Subscribe(std::function<void()> told);

  // ---- For who carries the orders out

  // Checks, stores and takes it, then decides. The number of the fact.
  Result<uint64_t> Record(const Fact& fact);
  // What running jobs' processes have told of their progress.
  void Tell(const std::map<std::string, Cluster::Progress>& jobs);
  // Decides if it is time to, and stores a snapshot in place of facts if they are many. After what time to
  // call again although nothing is recorded by then.
  Duration Tick();
  std::vector<Order> Ready() const;
  // Calls `look` with the cluster as it is; nothing changes meanwhile.
  void Look(const std::function<void(const Cluster&)>& look) const;
  // The same, for who wants to know how things are at this time.
  void LookNow(const std::function<void(const Cluster&, Time now)>& look) const;

 private:
  struct Watcher {
    std::mutex mutex;  // held while it is told
    std::function<void()> told;
  };
  using Lock = std::unique_lock<std::mutex>;

  SchedulerCore(Store& store, Options options, std::unique_ptr<Policy> policy);
  Status Begin();
  Status LoadSnapshot();
  Status Compact();
  Status Forget();
  // All of these with the lock.
  Time Now() const;
  Views ViewsNow() const { return Views(cluster_, Now()); }
  Status StoreAndTake(std::vector<Fact> facts);
  void TakeOne(const StoredFact& stored);
  Status Decide();
  Status RecordLocked(const Fact& fact);
  void KeepMaintenance();
  Status SetDraining(const std::string& node, bool draining, const std::string& reason, Time deadline = 0);
  std::string NameFor(const std::string& program) const;
  Result<std::vector<Fact>> PlanMoves(const v1::DefragmentRequest& request, v1::DefragmentReply* reply) const;
  // Gives the lock back, then tells the watchers.
  void Tell(Lock lock);

  Store& store_;
  const Options options_;
  std::string cluster_id_;
  uint64_t reign_ = 0, before_reign_ = 0;
  int64_t started_ms_ = 0;
  Time ahead_ = 0;  // of the clock

  mutable std::mutex mutex_;
  Cluster cluster_;
  uint64_t last_number_ = 0;
  uint64_t compacted_ = 0;                               // the number of the snapshot on stable storage
  uint64_t compact_next_ = 0;                            // from which fact on there is to be another one
  std::map<std::string, std::string> submitted_by_key_;  // names of jobs
  Status broken_;
  std::deque<v1::ClusterEvent> events_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
};

// Who takes agents in.
class Joining {
 public:
  virtual ~Joining() = default;
  // Returns at once: the agent is connected to in the background, and is a node of the cluster once it has
  // answered. Asked again for a node that is connected it does nothing. kInvalidArgument: the address cannot
  // be one; kFailedPrecondition: another agent has the name.
  virtual Status Join(const v1::JoinRequest& request) = 0;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_CORE_H_

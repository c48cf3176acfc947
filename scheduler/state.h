// The cluster as a policy sees it: jobs, tenants, devices at one moment.
//
// The simulator and the daemon keep one State each, tell it what happened, and let a policy decide over it.
// Policies read; only the methods here change anything. Deterministic: no clock, no randomness, no iteration
// over addresses. Not thread-safe.
#ifndef SCHEDULER_STATE_H_
#define SCHEDULER_STATE_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/devices.h"
#include "scheduler/ledger.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

struct Settings {
  ClusterShape shape;
  std::vector<TenantSpec> tenants;
  Time lease = 900 * kSecond;
  int64_t device_bytes = 0;  // memory of one; 0: not known, nothing is shared
  int window_leases = 24;
  Time starvation = 6 * 3600 * kSecond;
  Time settle = 60 * kSecond;  // so long two jobs share devices before their rates are believed
  // What moving a job costs it: seconds in which its devices do nothing, as a line over its bytes on each.
  Time move_fixed = 0;
  double move_bytes_per_second = 0;  // 0: bytes cost nothing
  Time MoveCost(int64_t bytes_per_gpu) const;
};

enum class JobPhase : uint8_t { kPending, kRunning, kPaused, kDone };

struct Job {
  JobSpec spec;
  JobPhase phase = JobPhase::kPending;
  Placement placement;         // while running
  int gpus = 0;                // that it runs on: spec.gpus, or as many as it was resized to; else none
  Time waiting_since = 0;      // while pending or paused
  Time lease_end = 0;          // of the first lease of this run; later ones follow it without a gap
  Time progress = 0;           // of spec.duration, up to `progress_at`
  Time progress_at = 0;        // while running: from here on it advances by `rate`
  double rate = 1;             // progress in a unit of time, as measured
  JobId packed_with = kNoJob;  // runs on the same devices
  bool guest = false;          // of the two, the one that came to the other; the devices are the other's
  Time packed_since = 0;
  std::vector<JobId> tried;  // with which sharing did not pay; sorted
  bool known = true;         // how it advances alone is; else nobody could tell whether sharing pays
  int pauses = 0, migrations = 0;
  Time first_start = kNever, finished = kNever;
  Ledger::Account account;
  double fairness = 1;   // F_j when it finished
  Time kept_until = 0;   // until then it refuses to leave its devices, or to come to any
  bool evicted = false;  // while it waits: it comes back from an image and not from a pause
};

class State {
 public:
  explicit State(Settings settings);

  const Settings& settings() const { return settings_; }
  Time now() const { return now_; }
  const Devices& devices() const { return devices_; }
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  const std::vector<Job>& jobs() const { return jobs_; }
  const Job& job(JobId id) const { return jobs_[id]; }
  // Live jobs by phase; within a list in no meaningful order that is nevertheless always the same.
  const std::vector<JobId>& running() const { return running_; }
  // Pending and paused jobs of a tenant.
  const std::vector<JobId>& waiting(TenantId tenant) const { return waiting_[tenant]; }
  size_t waiting_count() const { return waiting_count_; }

  // The cluster changes. A node comes with at most as many devices as the shape's have; quotas follow.
  NodeId AddNode(int devices);
  TenantId AddTenant(const TenantSpec& tenant);
  void SetWeight(TenantId tenant, double weight);
  // Memory of each; 0: not known, nothing is shared.
  void SetDeviceBytes(int64_t bytes) { settings_.device_bytes = bytes; }

  // Moves the clock; never backwards.
  void AdvanceTo(Time now);
  // kInvalidArgument: more devices than the cluster has, no such tenant, not a positive number of devices or
  // duration.
  Result<JobId> Submit(const JobSpec& spec);
  // Carries an action out. `stall`: how long the job makes no progress although it holds its devices; a lease
  // that begins begins after that.
  // CHECKs that the action is possible.
  void Apply(const Action& action, Time stall);
  // It has ended, whether it ran or waited.
  void Finish(JobId id);
  // It is not there yet, and nobody knows for how long: its lease begins with BeginLease().
  void HoldLease(JobId id) { jobs_[id].lease_end = kNever; }
  void BeginLease(JobId id);
  // The running job has been seen to advance by so much in a unit of time.
  void SetRate(JobId id, double rate);
  void SetKnown(JobId id, bool known) { jobs_[id].known = known; }
  // The two that share devices do so only from now on.
  void BeginSharing(JobId id);
  // Its devices have gone, and what it had done since `kept_progress`: it waits to be restarted.
  void Evict(JobId id, Time kept_progress);
  // A job that waits has done no more than this.
  void SetProgress(JobId id, Time progress) { jobs_[id].progress = progress; }
  // The running job has refused to be paused or moved, and is not asked again before then.
  void Keep(JobId id, Time until) { jobs_[id].kept_until = until; }
  bool IsKept(const Job& job) const { return now_ < job.kept_until; }
  // Drops jobs that have ended: those with true. The others keep their order and get the next ids from 0 on.
  void Forget(const std::vector<bool>& gone);
  void SetNodeUsable(NodeId node, bool usable) { devices_.SetUsable(node, usable); }

  // Whether a lease of the running job ended after `since` and not after now. One that ended while nobody
  // waited was followed by the next without anybody's doing, and does not count.
  bool LeaseEndedSince(const Job& job, Time since) const;
  // The first end of a lease of the running job after now.
  Time NextLeaseEnd(const Job& job) const;

  // Of spec.duration; what runs now included.
  Time ProgressOf(const Job& job) const;

  // ---- As it is kept, for who stores it: what follows from it is left out

  struct Saved {
    struct Node {
      int devices = 0;
      bool usable = true;
    };
    Time now = 0;
    std::vector<Node> nodes;
    std::vector<TenantSpec> tenants;
    std::vector<Ledger::Tenant> accounts;
    std::vector<Job> jobs;
    std::vector<JobId> running;
    std::vector<std::vector<JobId>> waiting;
    Time waited_since = 0;
  };
  // As it was at `now`, which is not before the last change.
  Saved Save(Time now) const;
  // Of a state without nodes and tenants. kCorrupt: it cannot be; then this one must not be used any more.
  Status Restore(Saved saved);

 private:
  bool CanBe(const Saved& saved) const;
  Status TakeDevices();
  void Begin(JobId id, Time stall);
  void Place(Job& job, const Placement& placement, Time stall);
  void Unplace(Job& job);
  void Pack(JobId guest, JobId host, Time stall);
  // The two share no longer; the one that stays has the devices for itself.
  void Part(Job& leaving);
  void SetTried(JobId a, JobId b);
  void Wait(Job& job, JobPhase phase);
  Time LeaseOf(const Job& job) const { return job.spec.lease != 0 ? job.spec.lease : settings_.lease; }
  Time LeaseEnd(const Job& job) const;

  Settings settings_;
  Time now_ = 0;
  Devices devices_;
  Ledger ledger_;
  std::vector<Job> jobs_;
  std::vector<JobId> running_;
  std::vector<std::vector<JobId>> waiting_;
  std::vector<size_t> index_;  // of a live job in the list of its phase
  size_t waiting_count_ = 0;
  Time waited_since_ = 0;  // since when there has been a job that waits
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_STATE_H_

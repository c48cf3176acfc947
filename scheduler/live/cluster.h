// A live cluster: what has happened to it, what its policy makes of that, and what its agents are to be told.
//
// The policy's State runs ahead: it holds a decision as done when it is made. Behind it are orders, which an
// agent carries out one after the other for each job, and for each device no one comes before everybody who
// is to leave it has left. An order that fails puts its job back to where it really is, and takes the devices
// away again from who was to have them.
//
// Knows no clock, socket or disk: the caller stores each fact before it hands it to Take(). The same facts
// give the same cluster, orders that have not ended included. Not thread-safe.
#ifndef SCHEDULER_LIVE_CLUSTER_H_
#define SCHEDULER_LIVE_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/live/fact.h"
#include "scheduler/live/snapshot.h"
#include "scheduler/policy.h"
#include "scheduler/state.h"

namespace stasis::scheduler {

enum class OrderKind : uint8_t {
  kRun,      // start the program on `node`
  kPause,    // on `node`, so that its devices can be used by others
  kResume,   // on `node`, where it is paused
  kMigrate,  // from `node`, where it runs or is paused, to `target`; on other devices of one node if they are
             // the same
  kRestore,  // on `target` from the image that `node` has
  kCancel,   // on `node`
};
const char* OrderKindName(OrderKind kind);

struct SavedCluster;  // scheduler/live/snapshot.cc

struct Order {
  uint64_t number = 0;  // of the fact that it comes from; as good as an idempotency key
  OrderKind kind = OrderKind::kRun;
  std::string job;
  std::string node;       // whose agent is asked
  std::string target;     // of kMigrate and kRestore
  std::vector<int> gpus;  // ordinals on the node where it is to run
  Time since = kNever;    // from when on it could be given
};

class Cluster {
 public:
  struct Options {
    Time lease = 900 * kSecond;
    int window_leases = 24;
    Time starvation = 6 * 3600 * kSecond;
    Time move_fixed = 1 * kSecond;
    double move_bytes_per_second = 1e9;
    Time image_wait = 600 * kSecond;  // for images on nodes that are not reached, before a job begins anew
    Time settle = 60 * kSecond;       // so long two jobs share devices before their rates are believed
    int max_failures = 20;            // of orders in a row that bring a job back, before it counts as failed
  };
  Cluster(const Options& options, std::unique_ptr<Policy> policy);

  // Whether a fact that somebody outside asks for can be: kInvalidArgument, kNotFound, kAlreadyExists,
  // kFailedPrecondition say why not.
  Status Check(const Fact& fact) const;
  // What has happened at `at` (milliseconds; an earlier one than the last counts as that). `number` ascends.
  // CHECKs what Check() refuses.
  void Take(uint64_t number, Time at, const Fact& fact);
  // What is to be done now, as facts for Take(): they must be taken before anything else happens.
  std::vector<Fact> Decide(Time now);
  // When to ask again although nothing has happened by then.
  Time wake() const { return wake_; }
  // Its policy did not come to rest the last time: nothing was decided any more, until wake().
  bool restless() const { return restless_; }

  // Orders that can be given: all before them have ended. Those that have been given and have not ended are
  // among them.
  std::vector<Order> Ready() const;
  // One that has not ended; what has to be asked for is certain only once it is ready.
  std::optional<Order> FindOrder(uint64_t number) const;

  // What the processes of a running job have told of its progress: `rate` a second over the time that ends
  // now.
  struct Progress {
    double rate = 0;
    std::string unit;
    Time over = 0;
  };
  // The job shows it from now on. What the policy should know of it comes back as a fact for Take(); that is
  // seldom, and nothing where it was measured in two situations.
  std::optional<RateMeasured> Tell(const std::string& job, const Progress& progress, Time now);

  // ---- In place of the facts that led to it

  // What the cluster is after the last fact. `since`: the number of an earlier snapshot that is still there,
  // or 0; what is in that one and has not changed is left out.
  Snapshot Save(uint64_t since) const;
  // Of a cluster that has taken nothing: as if it had taken all facts up to the snapshot's number. kCorrupt:
  // it cannot be; then this one must not be used any more.
  Status Restore(const Snapshot& snapshot);
  // The last fact that was taken.
  uint64_t last_number() const { return last_number_; }

  // ---- To look at

  // Where a job really is, as far as ended orders tell.
  enum class Where : uint8_t { kNowhere, kRunning, kPaused, kImage, kEnded };
  struct Entry {
    JobRequest request;
    JobId id = 0;
    Where where = Where::kNowhere;
    std::string node;              // of kRunning, kPaused, kImage ("": from the beginning)
    DeviceMask devices = 0;        // of kRunning
    std::vector<uint64_t> orders;  // not ended, in order
    bool lost = false;             // what it was doing is gone, and it has not come back yet
    bool cancelled = false;
    bool failed = false;  // of kEnded
    int exit_code = 0;
    int restarts = 0, failures = 0;
    int moves = 0;  // from its devices, or from where it was paused, to another node or other devices
    int program_failures = 0;         // of the restarts, those after its program has failed
    int late_pauses = 0;              // in a row that were given up, since they took too long
    std::vector<std::string> copies;  // other nodes that have an image, the one with the newest last
    struct Copy {
      Time made = 0;      // when
      Time progress = 0;  // of the job then
      bool last = false;  // it has done nothing since
    };
    std::vector<Copy> copy_facts;  // of `copies`
    Time before = 0;               // of its progress: not of this life, and so with no image
    std::string saved_from;        // the node from which it is being saved; "": none
    Time save_began = 0;
    Time save_took = 0;  // to bring its newest work to another node, the last time; 0: not known
    Time ended = 0;
    std::string message;    // what went wrong last
    std::string key;        // of its submission
    uint64_t number = 0;    // of the fact of its submission
    uint64_t ended_by = 0;  // the fact after which it had ended
    // Since when nobody has come to its devices or left them; only of kRunning.
    Time undisturbed = 0;
    // As facts tell it.
    std::string unit;
    double alone = 0;   // how fast it is when it has its devices for itself; 0: not known
    double beside = 0;  // and beside the one it shares them with now, or has last
    Time measured = 0;  // when the last of either was told
    // As its processes have told it last, in no fact.
    double rate = 0;
    std::string rate_unit;
  };
  struct Node {
    std::string name, address;
    int devices = 0;
    bool reachable = true, draining = false;
    std::string reason;
    std::string agent_id, kind;
    int64_t device_bytes = 0;
    Time maintenance_start = 0, maintenance_end = 0;
    Time deadline = 0;             // when it will be gone; 0: not known
    std::vector<SaveEnded> saves;  // what has become of its jobs since that is known
  };
  const State& state() const { return state_; }
  const std::map<std::string, TenantId>& tenants() const { return tenants_; }
  const std::map<std::string, Entry>& jobs() const { return jobs_; }
  const std::vector<Node>& nodes() const { return nodes_; }  // by NodeId
  const Entry* Find(const std::string& job) const;
  const Node* FindNode(const std::string& node) const;
  // The job that is on devices of the running job, too; "": none.
  std::string Beside(const Entry& entry) const;
  // Whether a job that is paused on a drained node is to become an image now: where the node will be gone,
  // one waits for its turn.
  bool IsToLeave(const Entry& entry) const;
  // Jobs of a node that will be gone whose work is not elsewhere yet; `begun`: they are being saved.
  struct Unsaved {
    std::string job;
    bool begun = false;
  };
  std::vector<Unsaved> UnsavedAt(const Node& node) const;
  std::string_view policy_name() const { return policy_->name(); }

 private:
  // An order before it is known what the job's agent will have to be asked for.
  struct Pending {
    ActionKind kind = ActionKind::kStart;
    bool cancel = false;
    std::string job;
    NodeId node = 0;         // where it goes to; of a pause: unused
    DeviceMask devices = 0;  // there
    std::set<uint64_t> after;
    Time ready = kNever;  // since when it waits for no other
  };

  Status Check(const TenantSet& fact) const;
  Status Check(const NodeJoined& fact) const;
  Status Check(const NodeChanged& fact) const;
  Status Check(const JobSubmitted& fact) const;
  Status Check(const Decided& fact) const;
  Status Check(const OrderEnded& fact) const;
  Status Check(const JobEnded& fact) const;
  Status Check(const JobLost& fact) const;
  Status Check(const JobCancelled& fact) const;
  Status Check(const MaintenanceSet& fact) const;
  Status Check(const ImageKept& fact) const;
  Status Check(const RateMeasured& fact) const;
  Status Check(const JobsForgotten& fact) const;
  Status Check(const SaveBegun& fact) const;
  Status Check(const SaveEnded& fact) const;
  Status CheckLive(const std::string& job) const;

  void Apply(uint64_t number, const TenantSet& fact);
  void Apply(uint64_t number, const NodeJoined& fact);
  void Apply(uint64_t number, const NodeChanged& fact);
  void Apply(uint64_t number, const JobSubmitted& fact);
  void Apply(uint64_t number, const Decided& fact);
  void Apply(uint64_t number, const OrderEnded& fact);
  void Apply(uint64_t number, const JobEnded& fact);
  void Apply(uint64_t number, const JobLost& fact);
  void Apply(uint64_t number, const JobCancelled& fact);
  void Apply(uint64_t number, const MaintenanceSet& fact);
  void Apply(uint64_t number, const ImageKept& fact);
  void Apply(uint64_t number, const RateMeasured& fact);
  void Apply(uint64_t number, const JobsForgotten& fact);
  void Apply(uint64_t number, const SaveBegun& fact);
  void Apply(uint64_t number, const SaveEnded& fact);

  // Of the policy's State.
  void Carry(const Action& action);
  void SetPlace(Entry& entry, Where where, const std::string& node, DeviceMask devices);
  void Disturb(const Entry& entry);
  void SetDeviceBytes();
  std::string PartnerOf(const Entry& entry) const;
  bool IsNews(const Entry& entry, const RateMeasured& measured, Time now) const;

  void AddOrder(uint64_t number, Pending pending);
  void Succeeded(Entry& entry, const Pending& pending);
  void Failed(Entry& entry, const Pending& pending, const std::string& message);
  void ForgetOrder(uint64_t number);
  void Undo(uint64_t number);
  void PutBack(const Entry& entry);
  void WakeForKept(const std::vector<JobId>& jobs);
  void End(Entry& entry, bool ok, int exit_code, const std::string& message);

  JobSpec SpecOf(const JobRequest& request, Time submit) const;
  Status RestoreJobs(const Snapshot& snapshot, State::Saved* state);
  Status RestoreOrders(const SavedCluster& saved);
  Order OrderOf(uint64_t number, const Pending& pending) const;
  std::vector<Fact> FactsOf(const Decision& decision) const;
  std::vector<Fact> LeaveDraining() const;
  bool ComesToRest(Time now);
  void AskAgainSoon(const Node& node);

  // ---- Nodes that will be gone (scheduler/live/notice.cc)
  std::vector<Fact> Leave(const Entry& entry) const;
  std::vector<Fact> SaveNext() const;
  std::vector<Fact> TellSaves() const;
  Time SaveDue(const Entry& entry) const;
  const Entry* NextToSave(const Node& node) const;
  const Entry::Copy* CopyElsewhere(const Entry& entry, const std::string& node) const;
  bool IsAt(const Entry& entry, const Node& node) const;
  bool IsSaved(const Entry& entry, const Node& node) const;
  bool AnyTakes(const Node& leaving) const;
  Time AtStake(const Entry& entry, const std::string& node) const;
  Time ProgressAt(const Job& job, Time at) const;
  std::string WhyNotSaved(const Entry& entry, const Node& node) const;
  void SetNotice(Node& node, Time deadline);
  void SaveTook(Entry& entry, Time took);
  void WakeForNotices();

  Placement PlacementOf(const std::vector<PlacedDevices>& devices) const;
  NodeId IdOf(const std::string& node) const { return node_ids_.at(node); }
  Entry& EntryOf(const std::string& job) { return jobs_.at(job); }
  const std::string& NameOf(JobId id) const { return names_[id]; }

  const Options options_;
  const std::unique_ptr<Policy> policy_;
  State state_;
  std::map<std::string, TenantId> tenants_;
  std::vector<Node> nodes_;
  std::map<std::string, NodeId> node_ids_;
  std::map<std::string, Entry> jobs_;
  std::vector<std::string> names_;                        // by JobId
  std::map<std::string, std::set<std::string>> running_;  // jobs that are kRunning, by node
  std::map<uint64_t, Pending> orders_;
  // Who has to be gone from a device before somebody else comes, by node: the orders by which they go.
  std::map<NodeId, std::vector<std::pair<DeviceMask, uint64_t>>> leaving_;
  uint64_t last_number_ = 0;
  Time last_at_ = 0;        // of the last fact
  Time forgotten_ = 0;      // jobs that ended before then are not there any more
  Time last_decided_ = -1;  // of the last step of a decision
  Time last_decision_ = -1;
  Time wake_ = kNever;
  bool changed_ = false;  // since the last decision
  size_t rounds_ = 0;     // decisions since something else has happened
  bool restless_ = false;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_CLUSTER_H_

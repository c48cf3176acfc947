// Makes agents do what the scheduler has decided, and tells it what becomes of that and of its jobs.
//
// A thread each for the loop, for what each node tells, and for each errand: an order that is being carried
// out, something to be put right at a node, or an image that is copied. At most one errand, copies aside, is
// under way for a job.
#ifndef SCHEDULER_DAEMON_DRIVER_H_
#define SCHEDULER_DAEMON_DRIVER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "scheduler/daemon/agent_link.h"
#include "scheduler/daemon/conclusion.h"
#include "scheduler/daemon/core.h"
#include "scheduler/daemon/errands.h"
#include "scheduler/daemon/image_keeper.h"
#include "scheduler/daemon/node_keeper.h"
#include "scheduler/daemon/steps.h"

namespace stasis::scheduler {

class Driver final : public Joining, public NodeKeeper::Host, private ImageKeeper::Host {
 public:
  struct Options {
    ConnectAgent connect;
    Duration node_timeout = std::chrono::seconds(30);
    Duration progress_window = std::chrono::seconds(30);
    Time checkpoint_interval = 0;  // of jobs that do not say; 0: none
    // So long a job may take to let go of its devices for others, before it is let run on; 0: for ever.
    Time pause_timeout = 0;
    // Called once, from any thread: another scheduler reigns, and nothing is asked of agents any more.
    std::function<void(const Status&)> fenced_off = [](const Status&) {};
  };
  // Connects to the nodes that are known. `core` outlives the object.
  Driver(SchedulerCore& core, Options options);
  ~Driver() override;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  Status Join(const v1::JoinRequest& request) override;

 private:
  struct Node {
    std::unique_ptr<NodeKeeper> keeper;
    std::string address;
    std::string agent_id, kind;
    std::shared_ptr<AgentLink> link;  // once it was met
    std::string peer_address;
    Pictures jobs;
  };
  using Alive = Errands::Alive;
  // How long an operation may go on, by the cluster's time; 0: for ever.
  struct Patience {
    Time longest = 0;
    bool over = false;  // it was given up
  };
  // What was done about something that was not right.
  struct Remedied {
    uint64_t revision = 0;                       // of the job at the node then
    int failed = 0;                              // times, at this revision
    MonotonicTime again = MonotonicTime::max();  // when it is tried again
  };

  // NodeKeeper::Host
  Status Met(const std::string& node, const v1::NodeInfo& info, const v1::DevicesResponse& devices,
             const std::shared_ptr<AgentLink>& link, const Pictures& jobs) override;
  void Told(const std::string& node, const v1::Job& job) override;
  void Progressed(const std::string& node, const v1::ProgressResponse& progress) override;
  void Parted(const std::string& node) override;
  void Lost(const std::string& node) override;

  // ImageKeeper::Host
  std::shared_ptr<AgentLink> LinkOf(const std::string& node) const override;
  std::string PeerAddress(const std::string& node) const override;
  std::vector<std::pair<std::string, v1::Job>> PicturesOf(const std::string& job) const override;
  Status Perform(const Step& step, const std::string& key, const Alive& alive) override;
  // Records what must not be lost; false: it is no fact any more.
  bool Record(const Fact& fact) override;
  bool Refresh(const std::string& node, const std::string& job) override;

  void Loop();
  void LeaveDrained();
  void HeedNotices();
  Duration PutRightAgain();
  bool StartJobErrand(const std::string& job, std::function<void()> work);

  void Carry(const Order& order, bool begun);
  bool ComesFromElsewhere(const Order& order, const Alive& alive);
  Status AwaitPeer(const std::string& node, const Alive& alive);
  Status CarryOut(const Order& order, const Alive& alive, Patience* patience, bool* image);
  Status PerformWith(const Step& step, const std::string& key, const Alive& alive, Patience* patience);
  std::optional<Status> GiveUp(AgentLink& link, const Step& step, const std::string& key, Time longest);
  Result<v1::Operation> Ask(AgentLink& link, const Step& step, const std::string& key);
  void SetSchedule(const Order& order);
  bool HasImage(const std::string& node, const std::string& job) const;
  bool IsKnown(const std::string& node, const std::string& job) const;
  void ReportEnd(const Order& order, const Status& outcome, bool image, bool late);
  bool CancelIsDone(const Order& order, const Alive& alive);

  void Examine(const std::string& node, const std::string& job);
  void ExamineAll(const std::string& node);
  void ExamineEverywhere(const std::string& job);
  Status PutRight(const std::string& node, const std::string& job, const std::string& key,
                  const AgentRequest& remedy);
  void HasFailed(const std::string& node, const std::string& job, uint64_t revision);
  Conclusion ConcludeOf(const std::string& node, const std::string& job, bool in_errand, uint64_t* revision);
  Result<Conclusion> ConcludeAgain(const std::string& node, const std::string& job);
  bool IsLeftAlone(const std::string& node, const std::string& job) const;
  Status Forget(const std::string& node, const std::string& job, const std::string& key);
  Status Admit(const std::string& node, const v1::NodeInfo& info, const v1::DevicesResponse& devices) const;
  Status EndStale(const std::string& node, const std::shared_ptr<AgentLink>& link, const Pictures& jobs);
  void RecordNode(const std::string& node, const v1::NodeInfo& info, const v1::DevicesResponse& devices);
  void LoseJobs(const std::string& node);
  void Halt(const Status& why);
  Time Now() const;
  StepSettings Settings() const;
  v1::Change ChangeOf(const std::string& key) const;
  void StartKeeper(const std::string& node, const std::string& address, const std::string& agent_id,
                   const std::string& kind, bool lost);

  SchedulerCore& core_;
  const Options options_;

  mutable std::mutex mutex_;
  std::map<std::string, Node> nodes_;

  std::mutex join_;     // of Join(): one after the other
  std::mutex examine_;  // what is concluded is recorded before the next conclusion
  std::map<std::pair<std::string, std::string>, Remedied> put_right_;  // by node and job; with examine_
  std::set<std::string> leaving_;                                      // nodes that will be gone; of the loop

  Errands errands_;  // over as soon as this object ends, or is fenced off
  ImageKeeper images_;
  std::shared_ptr<void> subscription_;
  std::thread loop_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_DRIVER_H_

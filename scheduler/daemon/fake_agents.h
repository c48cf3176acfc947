// Agents without processes: they hold jobs that do nothing, and can be made to go away, refuse and be slow.
#ifndef SCHEDULER_DAEMON_FAKE_AGENTS_H_
#define SCHEDULER_DAEMON_FAKE_AGENTS_H_

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "scheduler/daemon/agent_link.h"
#include "scheduler/daemon/steps.h"

namespace stasis::scheduler {

class FakeAgents {
 public:
  // An agent at "unix:/NODE", which others reach by its name.
  void Add(const std::string& node, int devices);
  ConnectAgent Connector();

  // Calls fail and streams break; its jobs live on.
  void SetDown(const std::string& node, bool down);
  // Operations of a verb fail, with this message; "": they do not.
  void Refuse(const std::string& verb, const std::string& message);
  // Operations of a verb, "pause", or of one job, "pause j", go on until they are let go.
  void Hold(const std::string& verb, bool hold);
  // Whether what is held can be given up; else it hangs.
  void SetObedient(bool obedient);
  // What becomes of questions after a job from now on: they arrive late, or their answers do.
  enum class Late { kNothing, kQuestions, kAnswers };
  void SetLate(const std::string& node, Late late);
  size_t Asked(const std::string& node);    // how often it was asked how an operation has ended
  size_t Waiting(const std::string& node);  // questions that have been asked and not answered
  // Whether all that has happened to its jobs has been told to who watches.
  bool AllTold(const std::string& node);
  // Its program ends by itself.
  void End(const std::string& node, const std::string& job, int exit_code, int signal = 0);
  // As if somebody had done it by hand.
  void SetCondition(const std::string& node, const std::string& job, v1::Condition condition);
  void SetMoved(const std::string& node, const std::string& job, const std::string& to);
  void SetImage(const std::string& node, const std::string& job, const std::string& image);
  // An image of the job that runs at `from`, which the scheduler has not asked for.
  void CopyByHand(const std::string& from, const std::string& to, const std::string& job,
                  const std::string& image);
  // Of a job that has ended, without images.
  void RecordOfAnotherLife(const std::string& node, const std::string& job, const std::string& program);
  // What its processes tell from now on where it runs.
  void SetRate(const std::string& job, double rate);
  void SetFence(const std::string& node, uint64_t fence);

  bool Lives(const std::string& node, const std::string& job);
  // How many images there were of all jobs when its newest was made.
  int64_t ImageAt(const std::string& node, const std::string& job);
  bool Runs(const std::string& node, const std::string& job);
  // "NODE DEVICE: JOB JOB" for each time that two jobs ran on one device.
  std::vector<std::string> Clashes();
  // Verbs of the operations that were started, "run j", in order.
  std::vector<std::string> Started(const std::string& node);
  // Waits for it, and says whether it has come.
  bool Await(const std::function<bool()>& condition);

 private:
  friend class FakeLink;
  struct Agent {
    std::string node;
    int devices = 0;
    bool down = false;
    uint64_t fence = 0, revision = 0, told = 0;
    Late late = Late::kNothing;
    size_t waiting = 0, asked = 0;
    std::map<std::string, std::vector<uint32_t>> places;  // devices by job
    std::map<std::string, v1::Job> jobs;
    std::map<std::string, int64_t> images;    // when the newest was made, by job
    std::map<std::string, std::string> keys;  // of operations
    std::map<std::string, v1::Operation> operations;
    std::vector<std::string> started;
  };

  // All of these with the lock.
  Result<v1::Operation> Begin(Agent& agent, const AgentRequest& request);
  Status Do(Agent& agent, const AgentRequest& request);
  Status Arrive(const Agent& from, Agent& target, const std::string& name, v1::Condition condition);
  Status Become(Agent& agent, const AgentRequest& request);
  void Finish(Agent& agent, v1::Operation& operation, const AgentRequest& request);
  v1::Job& Touch(Agent& agent, const std::string& job);
  void Live(Agent& agent, const std::string& job, v1::Condition condition);
  void LookForClashes(const Agent& agent);
  bool IsHeld(const AgentRequest& request) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Agent> agents_;
  std::map<std::string, std::string> refused_;
  std::set<std::string> held_;
  bool obedient_ = false;
  std::vector<std::string> clashes_;
  int64_t lives_ = 0, images_ = 0;  // that there were
  std::map<std::string, double> rates_;
  std::vector<std::pair<std::string, std::pair<std::string, AgentRequest>>> waiting_;  // node, operation
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_FAKE_AGENTS_H_

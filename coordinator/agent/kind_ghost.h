// Verbs that a task's ghost carries out, or the ghosts of all ranks of a job together.
#ifndef COORDINATOR_AGENT_KIND_GHOST_H_
#define COORDINATOR_AGENT_KIND_GHOST_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/agent/operations.h"
#include "coordinator/job_operation.h"
#include "coordinator/node/site.h"
#include "coordinator/node/task.h"

namespace stasis {

// What is asked, in both forms.
struct GhostAsk {
  Json task;  // docs/ghost-protocol.md, without "operation"
  JobRequest job;
  bool take_back = false;  // what was handed over to another node does not run there any more
  bool only_jobs = false;  // an option is given that a task alone does not have
};
using ReadGhostAsk = std::function<Result<GhostAsk>(const std::string& request)>;
// Called when a job that was handed over to another node is this one's again ("" for the node), and when it
// could not be brought back, and so is not.
using SetMovedTo = std::function<void(const std::string& job, const std::string& node)>;

class GhostKind final : public OperationKind {
 public:
  GhostKind(JobRequest::Verb verb, Site site, ReadGhostAsk read, SetMovedTo set_moved_to = {})
      : verb_(verb), site_(std::move(site)), read_(std::move(read)), set_moved_to_(std::move(set_moved_to)) {}
  Json Carry(OperationContext& context) override;
  Json Recover(OperationContext& context) override;
  bool preempts() const override { return verb_ == JobRequest::Verb::kCancel; }
  bool decides(const std::string& request) const override;

 private:
  Result<std::vector<std::string>> TasksOf(const std::string& job) const;
  Result<std::string> LiveTaskOf(const std::string& job) const;
  Result<Json> MarksToTake(const std::string& job) const;
  Status TakeBack(const std::string& job) const;
  Json OrGivenBack(const std::string& job, const Json& before, Json result) const;
  Json RecoverAsked(OperationContext& context, const GhostAsk& ask, const Json& before);
  Json CarryTask(OperationContext& context, const GhostAsk& ask, bool again);
  Json CarryJob(OperationContext& context, const GhostAsk& ask);
  Status CheckTask(const TaskPaths& paths, const GhostAsk& ask, bool again, std::string* remedy) const;
  Json Failed(const Status& status, const std::string& remedy = "") const;

  const JobRequest::Verb verb_;
  const Site site_;
  const ReadGhostAsk read_;
  const SetMovedTo set_moved_to_;
};

// A job's operation that is led from here; tells the context what it hears.
class LedJobOperation {
 public:
  LedJobOperation(OperationContext& context, const Site& site, JobRecord record);
  Json Run(JobRequest request);
  // JobOperation's.
  Result<std::vector<RankStand>> AwaitRest();
  const JobRecord& record() const { return record_; }

 private:
  JobOperation Make(int attempts);

  OperationContext& context_;
  const Site& site_;
  const JobRecord record_;
};

// What Recover() needs of a job, as it is before anything is done to it.
Result<Json> JobBefore(const Folders& folders, const std::string& job);
// Brings an operation on a job to its end that was led by an agent that is gone; `before` is JobBefore().
Json RecoverJob(LedJobOperation& led, const JobRequest& request, const Json& before, const Folders& folders);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_KIND_GHOST_H_

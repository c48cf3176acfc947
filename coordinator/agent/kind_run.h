// Starting a program: a task alone, or one for each rank of a job.
#ifndef COORDINATOR_AGENT_KIND_RUN_H_
#define COORDINATOR_AGENT_KIND_RUN_H_

#include <functional>
#include <string>

#include "coordinator/agent/operations.h"
#include "coordinator/node/job_start.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

class RunKind final : public OperationKind {
 public:
  using SetSchedule = std::function<Status(const std::string&, const v1::Schedule&, const Actor&)>;
  RunKind(Site site, SetSchedule set_schedule)
      : site_(std::move(site)), set_schedule_(std::move(set_schedule)) {}
  Json Carry(OperationContext& context) override;
  // A program that has begun goes on; one that waited for its first instruction when the agent was killed has
  // ended by itself, and is started.
  Json Recover(OperationContext& context) override;

 private:
  Json Start(OperationContext& context, const v1::RunRequest& request);
  Json StartTask(OperationContext& context, const v1::RunRequest& request, const TaskPlan& plan);
  Json StartJob(OperationContext& context, const v1::RunRequest& request, const TaskPlan& plan);
  Json Succeed(OperationContext& context, const v1::RunRequest& request);
  Json RolledBack(OperationContext& context, const v1::RunRequest& request);
  Json TaskFields(const std::string& name) const;
  Json JobFields(const std::string& name) const;

  const Site site_;
  const SetSchedule set_schedule_;
};

// How far the start of a task has come that an operation was killed in.
enum class StartStand {
  kNothing,  // there is at most a folder, and nothing runs
  kForeign,  // of that name is something else
  kStarted,  // its program has been executed, and may have ended since
};
// Waits until what was about to start has started or ended. kTimeout: it does neither.
Result<StartStand> StandOfStart(const TaskPaths& paths, const std::string& token);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_KIND_RUN_H_

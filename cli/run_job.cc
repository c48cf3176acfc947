#include "cli/run_job.h"

#include <fmt/format.h>

#include <cstdio>

#include "cli/foreground.h"
#include "cli/job_foreground.h"
#include "cli/run_verb.h"
#include "coordinator/node/job_start.h"

namespace stasis {
namespace {

Result<std::vector<JobNode>> NodesOf(const Options& options) {
  if (options.nodes.empty()) return std::vector<JobNode>{ThisNode(options.ranks, options.gpus)};
  Result<std::vector<JobNode>> nodes = ReadNodes(options.nodes);
  if (!nodes.ok()) {
    // 3 would say that there is no such task.
    return Status(StatusCode::kInvalidArgument, std::string(nodes.status().message()));
  }
  int ranks = 0;
  for (const JobNode& node : *nodes) ranks += node.ranks;
  if (options.ranks > 0 && ranks != options.ranks) {
    return Errorf(StatusCode::kInvalidArgument, "--ranks %d, but the nodes in %s have %d", options.ranks,
                  options.nodes.c_str(), ranks);
  }
  return nodes;
}

Result<JobClaim> ClaimName(const Options& options, const Folders& folders, int ranks) {
  if (!options.name.empty()) return JobClaim::Make(folders, options.name, ranks);
  return ClaimNumbered<JobClaim>(NameStem(options.program[0]), [&](const std::string& name) {
    return JobClaim::Make(folders, name, ranks);
  });
}

Json RanksJson(const JobRecord& record, const JobClaim& claim, const std::vector<PendingTask>& tasks) {
  Json ranks = Json::array();
  for (int rank = 0; rank < record.ranks(); rank++) {
    ranks.push_back({{"rank", rank},
                     {"task", claim.rank(rank).name},
                     {"node", record.NodeOf(rank).name},
                     {"pid", tasks[static_cast<size_t>(rank)].init().pid},
                     {"log", claim.rank(rank).File("output.log")}});
  }
  return ranks;
}

std::string JobText(const JobRecord& record) {
  std::string text =
      fmt::format("job {}: {} rank{}", record.name, record.ranks(), record.ranks() == 1 ? "" : "s");
  if (record.nodes.size() > 1) text += fmt::format(" on {} nodes", record.nodes.size());
  return text;
}

std::vector<TaskPaths> TasksOf(const JobRecord& record, const JobClaim& claim) {
  std::vector<TaskPaths> tasks;
  for (int rank = 0; rank < record.ranks(); rank++) tasks.push_back(claim.rank(rank));
  return tasks;
}

int Start(const JobRecord& record, JobClaim claim, const Options& options, const TaskPlan& plan,
          Context& context) {
  Reporter& reporter = context.reporter;
  reporter.set_task(record.name);
  Result<SignalSource> signals = SignalsOf(options);
  if (!signals.ok()) return reporter.Fail(signals.status());
  ForegroundJob job;
  job.name = record.name;
  job.tasks = TasksOf(record, claim);
  job.expect_managed = plan.unmanaged.empty();
  job.checkpoint_on = options.checkpoint_on;
  job.forget = options.forget;
  if (options.grace) job.grace = *options.grace;
  Result<JobFollower> follower = JobFollower::Create(job.tasks);
  if (!follower.ok()) return reporter.Fail(follower.status());
  for (const std::string& note : PlanNotes(plan, JobText(record))) reporter.Note(note);
  Result<std::vector<PendingTask>> tasks = StartRanks(record, claim, plan, context);
  Status started = tasks.status();
  // The record last: a job is there as a whole or not at all.
  if (started.ok()) started = WriteJobRecord(context.folders.state, record);
  if (started.ok()) started = LetGoAll(*tasks);
  if (!started.ok()) return FailRun(started, "", reporter);
  Json ranks = RanksJson(record, claim, *tasks);
  claim.Keep();
  job.fields = {{"job", record.name},
                {"device", plan.device.kind},
                {"driver", plan.device.driver.path},
                {"master_port", record.master_port}};
  if (options.detach) {
    job.fields["ranks"] = ranks;
    job.fields["state"] = TaskConditionName(TaskCondition::kRunning);
    return reporter.Done(job.fields, record.name);
  }
  for (const PendingTask& task : *tasks) job.starts.push_back({task.init(), 0});
  return StayWithJob(job, *follower, *signals, context);
}

}  // namespace

int FreePortMain() {
  Result<int> port = FindFreePort();
  if (!port.ok()) {
    std::fprintf(stderr, "%s\n", port.status().ToString().c_str());
    return kExitFailed;
  }
  std::printf("%d\n", *port);
  return kExitOk;
}

int RunJob(const Options& options, Context& context, const TaskPlan& plan) {
  Result<std::vector<JobNode>> nodes = NodesOf(options);
  if (!nodes.ok()) return FailRun(nodes.status(), "", context.reporter);
  Result<JobRecord> record = PlanJob(*std::move(nodes), options.master_port, plan, context);
  if (!record.ok()) return FailRun(record.status(), "", context.reporter);
  Result<JobClaim> claim = ClaimName(options, context.folders, record->ranks());
  if (!claim.ok()) {
    bool clash = claim.status().code() == StatusCode::kAlreadyExists;
    return FailRun(claim.status(), clash ? ClashRemedy(context.folders, options.name) : "", context.reporter);
  }
  record->name = claim->name();
  return Start(*record, std::move(*claim), options, plan, context);
}

}  // namespace stasis

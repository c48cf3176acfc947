#include "coordinator/agent/kind_run.h"

#include <fmt/format.h>

#include "base/files.h"
#include "coordinator/job_result.h"
#include "coordinator/node/job.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/task_claim.h"
#include "coordinator/node/task_start.h"

namespace stasis {
namespace {

Json Failed(const Status& status, const std::string& remedy = "") {
  return FailureJson("run", status, remedy);
}

// Paths are those of whoever asks, not of the agent.
std::string From(const std::string& folder, const std::string& path) {
  return path.starts_with('/') ? path : folder + "/" + path;
}

std::string SearchPathFrom(const std::string& folder, std::string_view path) {
  std::string absolute;
  while (!path.empty()) {
    size_t end = std::min(path.find(':'), path.size());
    absolute += (absolute.empty() ? "" : ":") + From(folder, std::string(path.substr(0, end)));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return absolute;
}

Result<RunSpec> SpecOf(const v1::RunRequest& request, const std::string& token) {
  if (request.argv().empty()) return Status(StatusCode::kInvalidArgument, "no program is named");
  if (!request.folder().starts_with('/'))
    return Status(StatusCode::kInvalidArgument, "the working folder is not absolute");
  RunSpec spec;
  spec.argv = {request.argv().begin(), request.argv().end()};
  spec.environment = {request.environment().begin(), request.environment().end()};
  spec.folder = request.folder();
  if (!request.device().empty()) spec.device = request.device();
  if (!request.strategy().empty()) spec.strategy = request.strategy();
  if (!request.managed().empty()) spec.managed = request.managed();
  spec.gpus = {request.gpus().begin(), request.gpus().end()};
  spec.operation = token;
  std::string path = SearchPathFrom(spec.folder, EnvironmentValue(spec.environment, "PATH"));
  ASSIGN_OR_RETURN(spec.executable, FindProgram(spec.argv[0], path, spec.folder));
  return spec;
}

// Before anything of that name exists: what there is of it after a kill is ours.
Status RememberName(OperationContext& context, const Folders& folders, const std::string& name) {
  const char* by = Exists(JobFolder(folders, name))          ? "job"
                   : Exists(TaskPaths(folders, name).folder) ? "task"
                                                             : nullptr;
  if (by != nullptr)
    return Status(StatusCode::kAlreadyExists, fmt::format("there is a {} {} already", by, name));
  return context.Remember({{"name", name}});
}

template <typename Claim, typename Make>
Result<Claim> ClaimFor(OperationContext& context, const v1::RunRequest& request, const Folders& folders,
                       Make make) {
  auto claim = [&](const std::string& name) -> Result<Claim> {
    RETURN_IF_ERROR(RememberName(context, folders, name));
    return make(name);
  };
  if (!request.name().empty()) {
    RETURN_IF_ERROR(CheckTaskName(request.name()));
    return claim(request.name());
  }
  return ClaimNumbered<Claim>(NameStem(request.argv(0)), claim);
}

Json FailedClaim(const Status& status, const std::string& name, const Folders& folders) {
  bool clash = status.code() == StatusCode::kAlreadyExists;
  return Failed(status, clash && !name.empty() ? ClashRemedy(folders, name) : "");
}

}  // namespace

Json RunKind::Carry(OperationContext& context) {
  v1::RunRequest request;
  if (!request.ParseFromString(context.request()))
    return Failed(Status(StatusCode::kCorrupt, "the request cannot be read"));
  if (request.has_schedule() && !set_schedule_)
    return Failed(Status(StatusCode::kUnsupported, "this agent keeps no schedules"));
  return Start(context, request);
}

Json RunKind::Start(OperationContext& context, const v1::RunRequest& request) {
  Result<RunSpec> spec = SpecOf(request, context.token());
  if (!spec.ok()) return Failed(spec.status());
  context.Progress("look at the program and the driver", 0, 0);
  Result<TaskPlan> plan = [&] {
    ScopedSpan span(context, "plan");
    return PlanTask(*std::move(spec), site_);
  }();
  if (!plan.ok()) {
    bool missing = plan.status().code() == StatusCode::kNotFound;
    // NOT_FOUND would say that there is no such program.
    Status status =
        missing ? Status(StatusCode::kUnavailable, std::string(plan.status().message())) : plan.status();
    return Failed(status, missing ? "`stasis doctor` shows what is missing" : "");
  }
  context.Progress("start", 0, 0);
  ScopedSpan span(context, "start");
  return request.ranks() > 0 ? StartJob(context, request, *plan) : StartTask(context, request, *plan);
}

Json RunKind::StartTask(OperationContext& context, const v1::RunRequest& request, const TaskPlan& plan) {
  Result<TaskClaim> claim =
      ClaimFor<TaskClaim>(context, request, site_.folders,
                          [&](const std::string& name) { return TaskClaim::Make(site_.folders, name); });
  if (!claim.ok()) return FailedClaim(claim.status(), request.name(), site_.folders);
  TaskStart start{claim->paths(), plan.spec.gpus, {}, std::nullopt};
  context.SetJob(start.paths.name);
  Status written = WriteTaskFile(start, plan);
  if (!written.ok()) return Failed(written);
  for (const std::string& note : PlanNotes(plan, "task " + start.paths.name)) context.Note(note);
  Result<PendingTask> task = stasis::StartTask(start, plan, site_);
  Status started = task.status();
  if (started.ok()) started = task->LetGo();
  if (!started.ok()) return Failed(started);
  claim->Keep();
  return Succeed(context, request);
}

Json RunKind::StartJob(OperationContext& context, const v1::RunRequest& request, const TaskPlan& plan) {
  int ranks = static_cast<int>(request.ranks());
  Result<JobRecord> record =
      PlanJob({ThisNode(ranks, plan.spec.gpus)}, static_cast<int>(request.master_port()), plan, site_);
  if (!record.ok()) return Failed(record.status());
  Result<JobClaim> claim = ClaimFor<JobClaim>(context, request, site_.folders, [&](const std::string& name) {
    return JobClaim::Make(site_.folders, name, ranks);
  });
  if (!claim.ok()) return FailedClaim(claim.status(), request.name(), site_.folders);
  record->name = claim->name();
  context.SetJob(record->name);
  std::string what = fmt::format("job {}: {} rank{}", record->name, ranks, ranks == 1 ? "" : "s");
  for (const std::string& note : PlanNotes(plan, what)) context.Note(note);
  Result<std::vector<PendingTask>> tasks = StartRanks(*record, *claim, plan, site_);
  Status started = tasks.status();
  // The record last: a job is there as a whole or not at all.
  if (started.ok()) started = WriteJobRecord(site_.folders.state, *record);
  if (started.ok()) started = LetGoAll(*tasks);
  if (!started.ok()) return Failed(started);
  claim->Keep();
  return Succeed(context, request);
}

Json RunKind::Succeed(OperationContext& context, const v1::RunRequest& request) {
  Json result = request.ranks() > 0 ? JobFields(context.job()) : TaskFields(context.job());
  result["ok"] = true;
  result["verb"] = "run";
  result["state"] = TaskConditionName(TaskCondition::kRunning);
  result["notes"] = Json::array();
  if (!request.has_schedule()) return result;
  Status scheduled = set_schedule_ ? set_schedule_(context.job(), request.schedule(), context.actor())
                                   : Status(StatusCode::kUnsupported, "this agent keeps no schedules");
  if (!scheduled.ok()) AddNote("it runs without its schedule: " + scheduled.ToString(), &result);
  return result;
}

Json RunKind::TaskFields(const std::string& name) const {
  TaskPaths paths(site_.folders, name);
  Result<Json> task = ReadJson(paths.File("task.json")), process = ReadJson(paths.File("process.json"));
  Json fields = {{"log", paths.File("output.log")}};
  if (process.ok()) fields["pid"] = IntegerField(*process, "init_pid");
  if (!task.ok()) return fields;
  fields["device"] = TextField(*task, "device");
  fields["driver"] = TextField(*task, "driver");
  return fields;
}

Json RunKind::JobFields(const std::string& name) const {
  Json fields = {{"job", name}, {"ranks", Json::array()}};
  Result<JobRecord> record = ReadJobRecord(site_.folders.state, name);
  for (int rank = 0; record.ok() && rank < record->ranks(); rank++) {
    Json one = TaskFields(record->TaskOf(rank));
    fields["device"] = TextField(one, "device");
    fields["driver"] = TextField(one, "driver");
    fields["ranks"].push_back({{"rank", rank},
                               {"task", record->TaskOf(rank)},
                               {"node", record->NodeOf(rank).name},
                               {"pid", IntegerField(one, "pid")},
                               {"log", TextField(one, "log")}});
  }
  if (record.ok()) fields["master_port"] = record->master_port;
  return fields;
}

}  // namespace stasis

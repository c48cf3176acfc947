// `stasis ps`: what is on record, as this process reads it or as the agent tells it.
#include <ctime>
#include <set>

#include "cli/agent_client.h"
#include "cli/agent_verbs.h"
#include "cli/ps_table.h"
#include "cli/verbs.h"
#include "coordinator/agent/picture.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

void NoteDamage(const std::string& name, const Status& status, Context& context) {
  const std::string remedy = RemedyOfDamage(name, status);
  context.reporter.Note(status.ToString() + (remedy.empty() ? "" : "; " + remedy));
}

void ReadJob(const std::string& name, Context& context, std::vector<v1::Job>* jobs) {
  Result<JobFacts> job = ReadJobFacts(context.folders, name);
  if (job.ok()) {
    jobs->push_back(PictureOfJob(context.folders, *job, DeriveJobView(job->ranks)));
  } else if (job.status().code() != StatusCode::kNotFound) {
    NoteDamage(name, job.status(), context);
  }
}

void ReadTask(const std::string& name, Context& context, std::vector<v1::Job>* jobs) {
  TaskPaths paths(context.folders, name);
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (facts.ok()) {
    jobs->push_back(PictureOfTask(paths, *facts, DeriveCondition(*facts)));
  } else if (facts.status().code() != StatusCode::kNotFound) {
    // Not being made or removed at this moment, but somebody else's, or damaged.
    NoteDamage(name, facts.status(), context);
  }
}

// The tasks of ranks are shown with their job.
std::set<std::string> TasksOfJobs(const std::vector<std::string>& jobs, const Folders& folders) {
  std::set<std::string> tasks;
  for (const std::string& name : jobs) {
    Result<JobRecord> record = ReadJobRecord(folders.state, name);
    for (int rank = 0; record.ok() && rank < record->ranks(); rank++) tasks.insert(record->TaskOf(rank));
  }
  return tasks;
}

std::vector<v1::Job> ReadAll(Context& context) {
  std::vector<v1::Job> pictures;
  std::vector<std::string> jobs = ListJobs(context.folders.state);
  std::set<std::string> ranks = TasksOfJobs(jobs, context.folders);
  for (const std::string& name : jobs) ReadJob(name, context, &pictures);
  for (const std::string& name : ListTasks(context.folders)) {
    if (ranks.count(name) == 0) ReadTask(name, context, &pictures);
  }
  return pictures;
}

Result<std::vector<v1::Job>> ReadOne(const std::string& name, Context& context) {
  std::vector<v1::Job> pictures;
  if (IsJob(context.folders, name)) {
    RETURN_IF_ERROR(ReadJobFacts(context.folders, name).status());
    ReadJob(name, context, &pictures);
  } else {
    RETURN_IF_ERROR(ReadTaskFacts(TaskPaths(context.folders, name)).status());
    ReadTask(name, context, &pictures);
  }
  return pictures;
}

int Report(const Options& options, const std::vector<v1::Job>& jobs, Context& context) {
  bool one = !options.name.empty();
  PsTable table = MakePsTable(jobs, options.all || one, options.show_ranks || one, std::time(nullptr));
  return context.reporter.Done({{"tasks", table.tasks}, {"jobs", table.jobs}}, table.text);
}

}  // namespace

int PsVerb(const Options& options, Context& context) {
  if (options.name.empty()) return Report(options, ReadAll(context), context);
  Status good = CheckTaskName(options.name);
  if (!good.ok()) return context.reporter.Fail(good);
  context.reporter.set_task(options.name);
  Result<std::vector<v1::Job>> jobs = ReadOne(options.name, context);
  return jobs.ok() ? Report(options, *jobs, context) : context.reporter.Fail(jobs.status());
}

int AgentPsVerb(const Options& options, Context& context) {
  if (!options.name.empty()) {
    Status good = CheckTaskName(options.name);
    if (!good.ok()) return context.reporter.Fail(good);
    context.reporter.set_task(options.name);
  }
  Result<AgentClient> client = AgentClient::Open(context.node);
  if (!client.ok()) return context.reporter.Fail(client.status());
  if (!options.name.empty()) {
    Result<v1::Job> job = FindJob(*client, options.name);
    return job.ok() ? Report(options, {*job}, context)
                    : context.reporter.Fail(job.status(), client->remedy());
  }
  v1::ListRequest request;
  request.set_ended(true);
  Result<v1::ListResponse> answer = client->Call(&v1::Agent::Stub::List, request);
  if (!answer.ok()) return context.reporter.Fail(answer.status(), client->remedy());
  for (const std::string& note : answer->notes()) context.reporter.Note(note);
  return Report(options, {answer->jobs().begin(), answer->jobs().end()}, context);
}

}  // namespace stasis

#include "coordinator/agent/job_reading.h"

#include "base/files.h"
#include "coordinator/agent/picture.h"
#include "coordinator/node/verdict.h"

namespace stasis {
namespace {

void NoteProcesses(const TaskFacts& facts, std::vector<ProcessIdentity>* processes) {
  if (facts.alive) processes->push_back(IdentityOf(facts.process));
  if (!facts.ghost_listens) return;
  Result<ProcessIdentity> ghost =
      IdentifyProcess(static_cast<pid_t>(IntegerField(facts.status, "ghost_pid")));
  if (ghost.ok()) processes->push_back(*ghost);
}

// Its ghost ends a task for a checkpoint, and says so only then.
Result<TaskView> ViewOf(const TaskFacts& facts) {
  Fd ghost;
  ASSIGN_OR_RETURN(std::optional<TaskView> view, Verdict(facts, &ghost));
  if (view) return *view;
  TaskView undecided = DeriveCondition(facts);
  undecided.condition = TaskCondition::kCheckpointing;
  undecided.signal = 0;
  return undecided;
}

Result<JobReading> ReadRanked(const Folders& folders, const std::string& name) {
  ASSIGN_OR_RETURN(JobFacts facts, ReadJobFacts(folders, name));
  JobReading reading;
  for (RankFacts& rank : facts.ranks) {
    if (!rank.on_record) continue;
    ASSIGN_OR_RETURN(rank.view, ViewOf(rank.facts));
    NoteProcesses(rank.facts, &reading.processes);
  }
  reading.job = PictureOfJob(folders, facts, DeriveJobView(facts.ranks));
  return reading;
}

std::string JobNamedBy(const Folders& folders, const Json& task) {
  std::optional<RankPlace> place = PlaceOf(task);
  bool known = place && CheckTaskName(place->job).ok() && Exists(JobFolder(folders, place->job));
  return known ? place->job : "";
}

}  // namespace

Result<JobReading> ReadJob(const Folders& folders, const std::string& name) {
  RETURN_IF_ERROR(CheckTaskName(name));
  if (IsJob(folders, name)) return ReadRanked(folders, name);
  TaskPaths paths(folders, name);
  ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(paths));
  std::string job = JobNamedBy(folders, facts.task);
  if (!job.empty()) return Status(StatusCode::kNotFound, name + " is a rank of job " + job);
  ASSIGN_OR_RETURN(TaskView view, ViewOf(facts));
  JobReading reading;
  NoteProcesses(facts, &reading.processes);
  reading.job = PictureOfTask(paths, facts, view);
  return reading;
}

std::vector<std::string> TasksOfJob(const Folders& folders, const std::string& name) {
  std::vector<std::string> tasks;
  if (!IsJob(folders, name)) return {name};
  Result<JobRecord> record = ReadJobRecord(folders.state, name);
  for (int rank = 0; record.ok() && rank < record->ranks(); rank++) tasks.push_back(record->TaskOf(rank));
  return tasks;
}

}  // namespace stasis

#include "cli/run_again.h"

#include <algorithm>

#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/removal.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

Result<bool> HasImage(const std::string& task, const Folders& folders) {
  Result<std::shared_ptr<Store>> store = OpenStore(folders);
  if (!store.ok() && store.status().code() == StatusCode::kNotFound) return false;
  if (!store.ok()) return store.status();
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(**store, task));
  return std::any_of(ids.begin(), ids.end(), IsCheckpointId);
}

Status RefuseLive(const std::string& name, const std::string& state) {
  return Errorf(StatusCode::kFailedPrecondition, "%s is %s", name.c_str(), state.c_str());
}

Status RefuseOther(const std::string& name) {
  return Errorf(StatusCode::kFailedPrecondition,
                "%s is on record as another program, or with other arguments", name.c_str());
}

Result<bool> TaskHasImage(const Options& options, const Folders& folders) {
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, options.name));
  if (!facts.ok() && facts.status().code() == StatusCode::kNotFound) return false;
  if (!facts.ok()) return facts.status();
  TaskCondition condition = DeriveCondition(*facts).condition;
  if (IsLive(condition)) return RefuseLive(options.name, TaskConditionName(condition));
  bool job = options.ranks > 0 || !options.nodes.empty();
  if (job || TextsField(facts->task, "argv") != options.program) return RefuseOther(options.name);
  return HasImage(options.name, folders);
}

Result<bool> JobHasImage(const Options& options, const Folders& folders) {
  ASSIGN_OR_RETURN(JobFacts facts, ReadJobFacts(folders, options.name));
  JobView view = DeriveJobView(facts.ranks);
  if (view.live) return RefuseLive(options.name, view.text);
  bool as_many = options.ranks == facts.record.ranks() || (options.ranks == 0 && !options.nodes.empty());
  if (!as_many || facts.record.argv != options.program) return RefuseOther(options.name);
  return !facts.last_image.empty();
}

}  // namespace

Result<bool> MakeWay(const Options& options, Context& context) {
  bool job = IsJob(context.folders, options.name);
  Result<bool> image = job ? JobHasImage(options, context.folders) : TaskHasImage(options, context.folders);
  if (!image.ok() || *image) return image;
  context.reporter.Note(options.name + " has no image here to go on from: it begins anew");
  std::string remedy;
  Result<Removed> removed = RemoveByName(options.name, true, context.folders, &remedy);
  if (!removed.ok() && removed.status().code() != StatusCode::kNotFound) return removed.status();
  return false;
}

Options RestoreAgain(const Options& options) {
  Options restore = options;
  restore.target = options.name;
  return restore;
}

}  // namespace stasis

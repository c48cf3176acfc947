#include "cli/run_again.h"

#include <algorithm>

#include "coordinator/node/image_names.h"
#include "coordinator/node/removal.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

Result<bool> HasImage(const Options& options, Context& context) {
  Result<std::shared_ptr<Store>> store = OpenStore(context.folders);
  if (!store.ok() && store.status().code() == StatusCode::kNotFound) return false;
  if (!store.ok()) return store.status();
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(**store, options.name));
  return std::any_of(ids.begin(), ids.end(), IsCheckpointId);
}

Status RefuseOther(const Options& options, const TaskFacts& facts) {
  if (IsLive(DeriveCondition(facts).condition))
    return Errorf(StatusCode::kFailedPrecondition, "%s is %s", options.name.c_str(),
                  TaskConditionName(DeriveCondition(facts).condition));
  if (TextsField(facts.task, "argv") == options.program) return Status();
  return Errorf(StatusCode::kFailedPrecondition,
                "%s is on record as another program, or with other arguments", options.name.c_str());
}

}  // namespace

Result<bool> MakeWay(const Options& options, Context& context) {
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(context.folders, options.name));
  if (!facts.ok() && facts.status().code() != StatusCode::kNotFound) return facts.status();
  if (facts.ok()) {
    RETURN_IF_ERROR(RefuseOther(options, *facts));
    ASSIGN_OR_RETURN(bool image, HasImage(options, context));
    if (image) return true;
  }
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

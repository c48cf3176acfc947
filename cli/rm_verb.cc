// `stasis rm`: a task is forgotten with all that belongs to it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "cli/image_names.h"
#include "cli/task.h"
#include "cli/verbs.h"

namespace stasis {
namespace {

uint64_t BytesBelow(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) bytes += it->file_size(ignored);
  }
  return bytes;
}

bool HasStoredImages(const TaskPaths& paths, const Folders& folders) {
  Result<std::vector<std::string>> files = ListFolder(StoreRoot(folders) + "/images/" + paths.name);
  return files.ok() && !files->empty();
}

// The room comes back with the collection; where that is not possible now, the next one does it.
uint64_t GiveBackRoom(Store& store, Context& context) {
  Result<GcReport> report = store.CollectGarbage();
  if (report.ok()) return report->bytes_before - std::min(report->bytes_before, report->bytes_after);
  context.reporter.Note("the room that its images take is given back by the next `stasis images gc`: " +
                        std::string(report.status().message()));
  return 0;
}

// What is stored for the task; `*bytes` grows by what that has freed.
Status RemoveImages(const TaskPaths& paths, uint64_t* bytes, size_t* count, Context& context) {
  if (!HasStoredImages(paths, context.folders)) return Status();
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenStore(context.folders));
  ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(*store, paths.name));
  for (const std::string& id : ids) {
    Status removed = RemoveImage(*store, paths.name, id);
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
  }
  *count = ids.size();
  if (!ids.empty()) *bytes += GiveBackRoom(*store, context);
  return Status();
}

int RemoveTask(const TaskPaths& paths, Context& context) {
  bool had_old = access(paths.old_images.c_str(), F_OK) == 0;
  uint64_t bytes = BytesBelow(paths.folder) + BytesBelow(paths.old_images);
  size_t images = 0;
  Status removed = RemoveImages(paths, &bytes, &images, context);
  if (!removed.ok()) return context.reporter.Fail(removed, "`stasis images verify` says what is wrong");
  std::error_code error;
  // The record last: what fails before leaves a task that can be removed again.
  for (const std::string& folder : {paths.old_images, paths.run, paths.folder}) {
    std::filesystem::remove_all(folder, error);
    if (error) return context.reporter.Fail(ErrnoStatus(error.value(), "remove " + folder));
  }
  bool had_images = had_old || images > 0;
  return context.reporter.Done(
      {{"bytes", bytes}, {"images", images}},
      fmt::format("removed {}{}, {}", paths.name, had_images ? " and its images" : "", SizeText(bytes)));
}

// The one task that the verb is about.
Result<TaskFacts> FindTask(const Options& options, Context& context, TaskPaths* paths) {
  RETURN_IF_ERROR(CheckTaskName(options.name));
  context.reporter.set_task(options.name);
  *paths = TaskPaths(context.folders, options.name);
  return ReadTaskFacts(*paths);
}

// Something is left of a task without a record.
bool IsLeftOver(const TaskPaths& paths, const Folders& folders) {
  return !paths.name.empty() &&
         (access(paths.folder.c_str(), F_OK) == 0 || access(paths.old_images.c_str(), F_OK) == 0 ||
          HasStoredImages(paths, folders));
}

}  // namespace

int RmVerb(const Options& options, Context& context) {
  TaskPaths paths(context.folders, "");
  Result<TaskFacts> facts = FindTask(options, context, &paths);
  bool left_over =
      !facts.ok() && facts.status().code() == StatusCode::kNotFound && IsLeftOver(paths, context.folders);
  if (!facts.ok() && !left_over) return context.reporter.Fail(facts.status());
  TaskCondition condition = facts.ok() ? DeriveCondition(*facts).condition : TaskCondition::kCreated;
  if (IsLive(condition)) {
    return context.reporter.Fail(
        Errorf(StatusCode::kFailedPrecondition, "%s is %s", paths.name.c_str(), TaskConditionName(condition)),
        "end it first: `stasis cancel " + paths.name + "`");
  }
  return RemoveTask(paths, context);
}

}  // namespace stasis

// `stasis rm`: a task, or a job, is forgotten with all that belongs to it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "cli/verbs.h"
#include "coordinator/job_record.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

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

struct Removed {
  uint64_t bytes = 0;
  size_t images = 0;
  bool had_old = false;  // images of format version 1
};

// The record last: what fails before leaves a task that can be removed again.
Status RemoveTask(const TaskPaths& paths, Removed* removed, Context& context) {
  removed->had_old = removed->had_old || Exists(paths.old_images);
  removed->bytes += BytesBelow(paths.folder) + BytesBelow(paths.old_images);
  RETURN_IF_ERROR(RemoveImages(paths, &removed->bytes, &removed->images, context));
  std::error_code error;
  for (const std::string& folder : {paths.old_images, paths.run, paths.folder}) {
    std::filesystem::remove_all(folder, error);
    if (error) return ErrnoStatus(error.value(), "remove " + folder);
  }
  return Status();
}

// The job's images first: without those of a rank they are of no use.
Status RemoveJob(const JobRecord& record, Removed* removed, Context& context) {
  ASSIGN_OR_RETURN(std::vector<JobImage> images, ListJobImages(context.folders.state, record.name));
  for (const JobImage& image : images) {
    RETURN_IF_ERROR(RemoveJobImage(context.folders.state, record.name, image.id));
  }
  for (int rank = 0; rank < record.ranks(); rank++) {
    RETURN_IF_ERROR(RemoveTask(TaskPaths(context.folders, record.TaskOf(rank)), removed, context));
  }
  removed->images = images.size();
  std::string folder = JobFolder(context.folders, record.name);
  removed->bytes += BytesBelow(folder);
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return error ? ErrnoStatus(error.value(), "remove " + folder) : Status();
}

int ReportRemoved(const std::string& name, const Status& status, const Removed& removed, Context& context) {
  if (!status.ok()) {
    bool damaged = status.code() == StatusCode::kCorrupt;
    return context.reporter.Fail(status, damaged ? "`stasis images verify` says what is wrong" : "");
  }
  bool had_images = removed.had_old || removed.images > 0;
  return context.reporter.Done(
      {{"bytes", removed.bytes}, {"images", removed.images}},
      fmt::format("removed {}{}, {}", name, had_images ? " and its images" : "", SizeText(removed.bytes)));
}

int FailLive(const std::string& name, const std::string& state, Context& context) {
  return context.reporter.Fail(
      Errorf(StatusCode::kFailedPrecondition, "%s is %s", name.c_str(), state.c_str()),
      "end it first: `stasis cancel " + name + "`");
}

int RmJob(const std::string& name, Context& context) {
  context.reporter.set_task(name);
  Result<Fd> lock = LockJob(context.folders.run, name);
  if (!lock.ok()) return context.reporter.Fail(lock.status());
  Result<JobFacts> job = ReadJobFacts(context.folders, name);
  if (!job.ok()) return context.reporter.Fail(job.status());
  JobView view = DeriveJobView(job->ranks);
  if (view.live) return FailLive(name, view.text, context);
  Removed removed;
  Status status = RemoveJob(job->record, &removed, context);
  return ReportRemoved(name, status, removed, context);
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
         (Exists(paths.folder) || Exists(paths.old_images) || HasStoredImages(paths, folders));
}

// What is left of a job that is not on record any more is nobody's but its own.
Status RefuseRankOfJob(const TaskPaths& paths, const TaskFacts& facts, const Folders& folders) {
  std::optional<RankPlace> place = PlaceOf(facts.task);
  if (!place || !IsJob(folders, place->job)) return Status();
  return RefuseRank(paths, facts.task, "rm");
}

}  // namespace

int RmVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return RmJob(options.name, context);
  TaskPaths paths(context.folders, "");
  Result<TaskFacts> facts = FindTask(options, context, &paths);
  bool left_over =
      !facts.ok() && facts.status().code() == StatusCode::kNotFound && IsLeftOver(paths, context.folders);
  if (!facts.ok() && !left_over) return context.reporter.Fail(facts.status());
  if (facts.ok()) {
    Status alone = RefuseRankOfJob(paths, *facts, context.folders);
    if (!alone.ok()) return context.reporter.Fail(alone, RankRemedy(facts->task, "rm"));
  }
  TaskCondition condition = facts.ok() ? DeriveCondition(*facts).condition : TaskCondition::kCreated;
  if (IsLive(condition)) return FailLive(paths.name, TaskConditionName(condition), context);
  Removed removed;
  Status status = RemoveTask(paths, &removed, context);
  return ReportRemoved(paths.name, status, removed, context);
}

}  // namespace stasis

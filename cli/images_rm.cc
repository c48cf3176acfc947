// `stasis images rm`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/images.h"
#include "cli/job_image_verbs.h"
#include "coordinator/node/image_figures.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

// The images that are named, each once, in the order given. Nothing is removed unless all of them are there.
Result<std::vector<ImageName>> NamedImages(const Options& options, Store& store, Context& context) {
  const Folders& folders = context.folders;
  std::vector<ImageName> names;
  for (const std::string& text : options.images) {
    ASSIGN_OR_RETURN(ImageName name, ParseImageName(text, folders));
    if (name.id.empty()) {
      return Status(StatusCode::kInvalidArgument, "'" + text + "' names no image: TASK/ID, as train/000001");
    }
    if (IsJob(folders, name.task)) {
      // A damaged one is there, and has to go.
      Status there = PartsOf(name, folders, nullptr).status();
      if (!there.ok() && there.code() != StatusCode::kCorrupt) return there;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      continue;
    }
    RETURN_IF_ERROR(RefuseOldImage(name, folders));
    RETURN_IF_ERROR(RefuseRankImage(name, context));
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(store, name.task));
    if (std::find(ids.begin(), ids.end(), name.id) == ids.end()) {
      return Status(StatusCode::kNotFound, "there is no image " + name.Text());
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

bool Runs(const std::string& task, const Context& context) {
  if (IsJob(context.folders, task)) {
    Result<JobFacts> job = ReadJobFacts(context.folders, task);
    return job.ok() && DeriveJobView(job->ranks).kind == JobCondition::kSame &&
           DeriveJobView(job->ranks).live;
  }
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(context.folders, task));
  if (!facts.ok()) return false;
  TaskCondition condition = DeriveCondition(*facts).condition;
  // A stranded task may have to be brought back, and a restore that goes on is about to need its image.
  return condition == TaskCondition::kRunning || condition == TaskCondition::kPaused ||
         condition == TaskCondition::kCheckpointing;
}

// What is encrypted is no worse for that nobody here can read it.
bool MayBeWhole(const std::shared_ptr<Store>& store, const std::string& task, const std::string& id) {
  Status status = ImageReader::Open(store, task, id).status();
  return status.ok() || status.code() == StatusCode::kPermissionDenied;
}

bool IsGood(const std::shared_ptr<Store>& store, const std::string& task, const std::string& id,
            const Folders& folders) {
  if (!IsJob(folders, task)) return MayBeWhole(store, task, id);
  Result<std::vector<ImageName>> parts = PartsOf({task, id}, folders, nullptr);
  return parts.ok() && std::all_of(parts->begin(), parts->end(), [&](const ImageName& part) {
           return MayBeWhole(store, part.task, part.id);
         });
}

Result<std::vector<std::string>> IdsOf(Store& store, const std::string& task, const Folders& folders) {
  if (!IsJob(folders, task)) return ListImages(store, task);
  return ListJobImageIds(folders.state, task);
}

// Removing `ids` would leave no good image of a task that had one.
bool RemovesLastGood(const std::shared_ptr<Store>& store, const std::string& task,
                     const std::set<std::string>& ids, const std::vector<std::string>& all,
                     const Folders& folders) {
  bool had = false;
  for (const std::string& id : all) {
    bool good = IsGood(store, task, id, folders);
    if (good && ids.count(id) == 0) return false;
    had = had || good;
  }
  return had;
}

// What a paused task has on disk instead of on its device.
Status CheckNotHeld(const ImageName& name, const Context& context) {
  if (IsCheckpointId(name.id)) return Status();
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(context.folders, name.task));
  const StatusCode code = facts.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kCorrupt) return Status();
  if (!facts.ok()) return facts.status();
  if (!IsLive(DeriveCondition(*facts).condition)) return Status();
  return Status(StatusCode::kFailedPrecondition,
                name.Text() + " is the device memory of the paused task itself, not a copy of it");
}

Status CheckNotLast(const std::shared_ptr<Store>& store, const std::vector<ImageName>& names,
                    const Context& context) {
  std::map<std::string, std::set<std::string>> by_task;
  for (const ImageName& name : names) by_task[name.task].insert(name.id);
  for (const auto& [task, ids] : by_task) {
    if (Runs(task, context)) continue;
    ASSIGN_OR_RETURN(std::vector<std::string> all, IdsOf(*store, task, context.folders));
    if (!RemovesLastGood(store, task, ids, all, context.folders)) continue;
    return Errorf(StatusCode::kFailedPrecondition,
                  "%s does not run, and no other good image of it would be left: there would be no way back",
                  task.c_str());
  }
  return Status();
}

int RemoveAll(const std::vector<ImageName>& names, Store& store, Context& context) {
  Json removed = Json::array();
  std::string text;
  for (const ImageName& name : names) {
    Status status = IsJob(context.folders, name.task) ? RemoveJobImageWithParts(name, store, context.folders)
                                                      : RemoveImage(store, name.task, name.id);
    // Somebody else was faster.
    if (!status.ok() && status.code() != StatusCode::kNotFound) {
      if (!text.empty()) context.reporter.Note("removed before that: " + text);
      return FailOfStore(status, context);
    }
    removed.push_back(name.Text());
    text += (text.empty() ? "" : ", ") + name.Text();
  }
  return context.reporter.Done({{"removed", removed}},
                               "removed " + text + "; `stasis images gc` gives the room back");
}

}  // namespace

int ImagesRmVerb(const Options& options, Context& context) {
  Result<std::shared_ptr<Store>> store = OpenStore(context.folders);
  if (!store.ok()) return FailOfStore(store.status(), context);
  TellNotes(**store, context);
  Result<std::vector<ImageName>> names = NamedImages(options, **store, context);
  if (!names.ok()) return FailOfStore(names.status(), context);
  for (const ImageName& name : *names) {
    Status free = CheckNotHeld(name, context);
    if (!free.ok())
      return context.reporter.Fail(free,
                                   "`stasis resume` or `stasis cancel " + name.task + "` gives it back");
  }
  if (!options.force) {
    Status spared = CheckNotLast(*store, *names, context);
    bool of_job = std::any_of(names->begin(), names->end(),
                              [&](const ImageName& name) { return IsJob(context.folders, name.task); });
    std::string remedy = "--force removes it all the same";
    if (!of_job) remedy += "; `stasis images export` keeps a copy";
    if (!spared.ok()) return context.reporter.Fail(spared, remedy);
  }
  return RemoveAll(*names, **store, context);
}

}  // namespace stasis

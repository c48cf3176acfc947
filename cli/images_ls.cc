// `stasis images ls`.
#include <fmt/format.h>

#include <ctime>

#include "cli/images.h"
#include "cli/job_image_verbs.h"
#include "coordinator/node/image_figures.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

// "running", "checkpointed"; empty when there is no record of the task.
std::string StateOf(const std::string& task, const Context& context) {
  if (IsJob(context.folders, task)) {
    Result<JobFacts> job = ReadJobFacts(context.folders, task);
    return job.ok() ? DeriveJobView(job->ranks).name : "damaged";
  }
  Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(context.folders, task));
  if (facts.ok()) return TaskConditionName(DeriveCondition(*facts).condition);
  return facts.status().code() == StatusCode::kNotFound ? "" : "damaged";
}

bool IsListed(const ImageFigures& image, const Options& options) {
  if (!options.name.empty() && image.name.task != options.name) return false;
  bool checkpoint = IsCheckpointId(image.name.id) && (image.has_task || !image.damage.empty());
  return checkpoint || options.all;
}

Json Describe(const ImageFigures& image, const std::string& state) {
  Json entry = {{"image", image.name.Text()},
                {"task", image.name.task},
                {"id", image.name.id},
                {"checkpoint", image.has_task && IsCheckpointId(image.name.id)},
                {"created", image.created},
                {"device_bytes", image.device_bytes},
                {"bytes", image.counts.bytes},
                {"zero_bytes", image.counts.zero_bytes},
                {"unique_bytes", image.counts.unique_bytes},
                {"stored_bytes", image.stored_bytes},
                {"frees_bytes", image.frees_bytes},
                {"manifest_bytes", image.counts.manifest_bytes},
                {"task_exists", !state.empty()},
                {"task_state", state},
                {"encrypted_to", image.sealed_to},
                {"damage", image.damage}};
  if (image.ranks > 0) entry["ranks"] = image.ranks;
  return entry;
}

std::string Row(const ImageFigures& image, const std::string& state) {
  std::string task = state.empty() ? "no such task" : state;
  if (image.ranks > 0) task += fmt::format(", {} ranks", image.ranks);
  if (!image.damage.empty()) {
    return fmt::format("{:<28} {:>7} {:>11} {:>11} {:>11} {:>11}  {}\n", image.name.Text(), "-", "-", "-",
                       "-", "-", "damaged; task: " + task);
  }
  if (!image.sealed_to.empty()) {
    return fmt::format("{:<28} {:>7} {:>11} {:>11} {:>11} {:>11}  {}\n", image.name.Text(), "-", "-", "-",
                       SizeText(image.stored_bytes), SizeText(image.frees_bytes),
                       "encrypted to key " + image.sealed_to + "; task: " + task);
  }
  int64_t age = image.has_task ? std::time(nullptr) - static_cast<int64_t>(image.created) : -1;
  return fmt::format("{:<28} {:>7} {:>11} {:>11} {:>11} {:>11}  {}\n", image.name.Text(), AgeText(age),
                     SizeText(image.device_bytes), SizeText(image.counts.bytes), SizeText(image.stored_bytes),
                     SizeText(image.frees_bytes), task);
}

std::string Heading() {
  return fmt::format("{:<28} {:>7} {:>11} {:>11} {:>11} {:>11}  {}\n", "IMAGE", "AGE", "DEVICE", "SIZE",
                     "STORED", "FREES", "TASK");
}

int ReportList(const std::vector<ImageFigures>& images, const Store* store, const Options& options,
               Context& context) {
  Json entries = Json::array();
  std::string table = Heading();
  for (const ImageFigures& image : images) {
    if (!image.damage.empty()) {
      context.reporter.Note(image.name.Text() + " is damaged: " + image.damage +
                            "; what the others would free is not known for certain");
    }
    if (!IsListed(image, options)) continue;
    std::string state = StateOf(image.name.task, context);
    entries.push_back(Describe(image, state));
    table += Row(image, state);
  }
  StoreCounts counts = store == nullptr ? StoreCounts() : store->counts();
  table += fmt::format("\n{} in packs, {} before compression\n", SizeText(counts.stored_bytes),
                       SizeText(counts.raw_bytes));
  std::string old = OldImagesNote(context.folders);
  if (!old.empty()) context.reporter.Note(old);
  Json totals = {{"root", StoreRoot(context.folders)},
                 {"chunks", counts.chunks},
                 {"raw_bytes", counts.raw_bytes},
                 {"stored_bytes", counts.stored_bytes}};
  return context.reporter.Done({{"images", entries}, {"store", totals}}, table);
}

}  // namespace

int ImagesLsVerb(const Options& options, Context& context) {
  if (!options.name.empty()) {
    Status good = CheckTaskName(options.name);
    if (!good.ok()) return context.reporter.Fail(good);
  }
  Result<std::shared_ptr<Store>> store = OpenStore(context.folders);
  bool none = !store.ok() && store.status().code() == StatusCode::kNotFound;
  if (!store.ok() && !none) return FailOfStore(store.status(), context);
  if (none) return ReportList({}, nullptr, options, context);
  TellNotes(**store, context);
  // The parts of a job's image are shown by the name of their rank only.
  std::map<std::string, ImageName> whole = ImagesOfJobs(context);
  if (!options.name.empty())
    std::erase_if(whole, [&](const auto& part) { return part.second.task != options.name; });
  Result<std::vector<ImageFigures>> images = ReadFigures(*store, whole);
  if (!images.ok()) return FailOfStore(images.status(), context);
  return ReportList(*images, store->get(), options, context);
}

}  // namespace stasis

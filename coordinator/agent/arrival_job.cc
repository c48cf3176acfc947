#include "coordinator/agent/arrival_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "coordinator/agent/earlier_stay.h"
#include "coordinator/job_operation.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/imported_task.h"
#include "coordinator/node/job.h"
#include "coordinator/node/job_start.h"
#include "coordinator/node/task.h"
#include "dedup/image.h"
#include "ghost/manifest.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

Status CheckComplete(StoreWriter& writer, const ImageManifest& manifest) {
  ASSIGN_OR_RETURN(std::vector<ChunkRef> chunks, DistinctChunks(manifest));
  size_t missing = 0;
  for (const ChunkRef& chunk : chunks) {
    ASSIGN_OR_RETURN(bool there, writer.Has(chunk.hash));
    missing += there ? 0 : 1;
  }
  if (missing == 0) return Status();
  return Errorf(StatusCode::kFailedPrecondition, "%zu of %zu chunks of the image have not come", missing,
                chunks.size());
}

Status WriteTaskRecords(const Site& site, const ArrivedJob& job, const std::vector<ImageManifest>& manifests,
                        const std::vector<std::string>& images) {
  for (size_t rank = 0; rank < job.tasks.size(); ++rank) {
    TaskPaths paths(site.folders, job.tasks[rank]);
    ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(manifests[rank].meta));
    ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest.task));
    // Of a stay that has ended: it would be taken for what happens from now on.
    RETURN_IF_ERROR(SetEarlierTaskAside(paths));
    RETURN_IF_ERROR(WriteImportedTask(paths, RecordOfTask(site, paths, manifest.task, config), images[rank]));
    RETURN_IF_ERROR(MarkCame(paths.folder, job.token));
    RETURN_IF_ERROR(MakeFolders(paths.ctl));
  }
  return Status();
}

Status WriteJobFiles(const Site& site, const std::vector<std::string>& images, JobRecord record) {
  std::vector<int> gpus = record.nodes.empty() ? std::vector<int>() : record.nodes.front().gpus;
  record.nodes = {ThisNode(record.ranks(), gpus)};
  RETURN_IF_ERROR(WriteJobRecord(site.folders.state, record));
  ASSIGN_OR_RETURN(std::vector<JobImage> before, ListJobImages(site.folders.state, record.name));
  JobImage image{"000001", static_cast<uint64_t>(time(nullptr)), images};
  if (!before.empty()) {
    ASSIGN_OR_RETURN(image.id, ImageIdAfter(before.back().id));
  }
  return WriteJobImage(site.folders.state, record.name, image);
}

// Images of an earlier stay remain, and so does its record.
void RemoveJobFiles(const Folders& folders, const std::string& job, const std::vector<std::string>& images) {
  Result<std::vector<JobImage>> there = ListJobImages(folders.state, job);
  if (there.ok() && !there->empty() && there->back().images == images)
    (void)RemoveJobImage(folders.state, job, there->back().id);
  (void)PutEarlierJobBack(folders, job);
}

void ForgetEarlierStay(const Folders& folders, const ArrivedJob& job) {
  if (job.ranked) ForgetEarlierJob(folders, job.name);
  for (const std::string& task : job.tasks) ForgetEarlierTask(TaskPaths(folders, task));
}

Result<Json> RestoreTask(const Site& site, const ArrivedJob& job, const std::string& image,
                         const std::vector<int>& gpus, uint32_t deadline_ms) {
  Json request = {
      {"verb", "restore"}, {"image", image}, {"deadline_ms", deadline_ms}, {"operation", job.token}};
  if (!gpus.empty()) request["gpus"] = gpus;
  NoInterrupt never;
  return AskGhost(TaskPaths(site.folders, job.name), site, request, never, [](const Json&) {});
}

Result<Json> RestoreRanks(const Site& site, const ArrivedJob& job, const std::vector<std::vector<int>>& gpus,
                          uint32_t deadline_ms) {
  ASSIGN_OR_RETURN(JobRecord record, ReadJobRecord(site.folders.state, job.name));
  JobRequest request;
  request.verb = JobRequest::Verb::kRestore;
  request.deadline = std::chrono::milliseconds(deadline_ms);
  std::vector<int> all;
  for (const std::vector<int>& each : gpus) all.insert(all.end(), each.begin(), each.end());
  // Each rank gets its share of a node's devices, one after the other.
  JobNode node = ThisNode(record.ranks(), all);
  if (!all.empty()) request.nodes = {node};
  JobPlace place{site.folders.state, site.folders.run, site.files.ghost};
  return JobOperation(place, record, JobWatcher()).Run(request);
}

// A ghost that has taken a request before this one was sent has read it by the second answer.
Result<Json> SettledStatus(const Site& site, const TaskPaths& paths) {
  NoInterrupt never;
  RETURN_IF_ERROR(AskGhost(paths, site, {{"verb", "status"}}, never, [](const Json&) {}).status());
  return AskGhost(paths, site, {{"verb", "status"}}, never, [](const Json&) {});
}

bool Runs(const TaskFacts& facts, const std::string& token) {
  if (TextField(facts.status, "last_operation") == token) {
    auto result = facts.status.find("last_result");
    return result != facts.status.end() && result->is_object() && BoolField(*result, "ok");
  }
  if (!facts.exit.is_null()) return true;
  const std::string state = TextField(facts.status, "state"), by = TextField(facts.status, "ended_by");
  if (state == "restoring" || by == "import") return false;
  // Otherwise than by a verb or by itself, which exit.json would tell, it has ended before it ran.
  if (state == "ended") return by == "cancel" || by == "checkpoint";
  return true;
}

Status CheckJobName(const Folders& folders, const ArrivedJob& job) {
  bool other = false;
  if (!job.ranked) {
    other = IsJob(folders, job.name);
  } else if (IsJob(folders, job.name)) {
    Result<JobRecord> here = ReadJobRecord(folders.state, job.name);
    other = !here.ok() || static_cast<size_t>(here->ranks()) != job.tasks.size();
  } else {
    other = Exists(TaskPaths(folders, job.name).File("task.json"));
  }
  if (!other) return Status();
  return Status(StatusCode::kAlreadyExists, "there is another job " + job.name + " here");
}

Status EndLeftovers(const TaskFacts& facts) {
  if (!facts.alive) return Status();
  Result<std::vector<pid_t>> tree = ProcessTree(IdentityOf(facts.process).pid);
  if (tree.status().code() == StatusCode::kNotFound) return Status();
  if (!tree.ok()) return tree.status();
  for (pid_t pid : *tree) (void)kill(pid, SIGKILL);
  return Status();
}

// Nothing, as of a record that never came to be, or was damaged; an error: it cannot be looked at.
Result<std::optional<TaskFacts>> FactsOf(const TaskPaths& paths) {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (facts.ok()) return std::optional(*std::move(facts));
  const StatusCode code = facts.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kCorrupt) return std::optional<TaskFacts>();
  return facts.status();
}

Result<bool> LookWhetherArrived(const Site& site, const ArrivedJob& job, const std::atomic<bool>& stop) {
  bool all = true;
  for (const std::string& task : job.tasks) {
    TaskPaths paths(site.folders, task);
    ASSIGN_OR_RETURN(std::optional<TaskFacts> facts, FactsOf(paths));
    if (!facts) return false;  // never begun: the record comes before the restore
    if (!AwaitGhost(site, paths, &stop)) return Status(StatusCode::kCancelled, "the agent ends");
    ASSIGN_OR_RETURN(facts, FactsOf(paths));
    all = all && facts && Runs(*facts, job.token);
  }
  if (all) return true;
  for (const std::string& task : job.tasks) {
    ASSIGN_OR_RETURN(const std::optional<TaskFacts> facts, FactsOf(TaskPaths(site.folders, task)));
    if (facts) RETURN_IF_ERROR(EndLeftovers(*facts));
  }
  return false;
}

}  // namespace

// It writes down how an operation has ended before or after it says that it has.
bool AwaitGhost(const Site& site, const TaskPaths& paths, const std::atomic<bool>* stop) {
  constexpr int kAskAgainMs = 1000;
  Fd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (watch.valid()) (void)inotify_add_watch(watch.get(), paths.folder.c_str(), IN_MOVED_TO);
  for (;;) {
    Result<Json> status = SettledStatus(site, paths);
    const bool asked = status.status().code() != StatusCode::kResourceExhausted;
    if (asked && (!status.ok() || TextField(*status, "operation").empty())) return true;
    if (stop != nullptr && *stop) return false;
    pollfd wait{watch.get(), POLLIN, 0};
    (void)poll(&wait, 1, kAskAgainMs);
    char events[4096];
    while (read(watch.get(), events, sizeof events) > 0) continue;
  }
}

Status CheckRoomFor(const Folders& folders, const ArrivedJob& job, const std::vector<TaskConfig>& of) {
  RETURN_IF_ERROR(CheckJobName(folders, job));
  for (size_t rank = 0; rank < job.tasks.size(); ++rank) {
    TaskPaths paths(folders, job.tasks[rank]);
    bool exists = false;
    RETURN_IF_ERROR(CheckOrigin(paths, of[rank], &exists));
    if (!exists) continue;
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(paths));
    TaskCondition condition = DeriveCondition(facts).condition;
    if (!IsLive(condition)) continue;
    return Status(StatusCode::kAlreadyExists,
                  paths.name + " is here already, and is " + TaskConditionName(condition));
  }
  return Status();
}

Json RecordOfTask(const Site& site, const TaskPaths& paths, const Json& task, const TaskConfig& config) {
  Json record = ImportedTaskJson(paths, task, config, site.files);
  if (!config.rank) return record;
  record["job"] = config.rank->job;
  record["rank"] = config.rank->rank;
  record["ranks"] = config.rank->ranks;
  return record;
}

std::string SumOf(std::span<const std::byte> manifest) {
  constexpr size_t kSumBytes = sizeof(Hash128);
  std::string text;
  if (manifest.size() < kSumBytes) return text;
  for (std::byte each : manifest.last(kSumBytes)) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

PreparedImages::PreparedImages(std::shared_ptr<Store> store, std::vector<std::string> tasks)
    : store_(std::move(store)), tasks_(std::move(tasks)) {}
PreparedImages::PreparedImages(PreparedImages&&) = default;
PreparedImages::~PreparedImages() = default;

Result<PreparedImages> PreparedImages::Prepare(const std::shared_ptr<Store>& store, StoreWriter& writer,
                                               const std::vector<std::string>& tasks,
                                               std::vector<ImageManifest> manifests) {
  for (const ImageManifest& manifest : manifests) RETURN_IF_ERROR(CheckComplete(writer, manifest));
  PreparedImages prepared(store, tasks);
  for (size_t rank = 0; rank < manifests.size(); ++rank) {
    ImageManifest& manifest = manifests[rank];
    // The chunks of all are the first one's to make visible; `writer` keeps them.
    std::unique_ptr<StoreWriter> nothing;
    if (rank > 0) {
      ASSIGN_OR_RETURN(nothing, StoreWriter::Begin(store));
    }
    ASSIGN_OR_RETURN(manifest.id, NextImageId(*store, tasks[rank]));
    manifest.task = tasks[rank];
    ASSIGN_OR_RETURN(std::unique_ptr<ImageSlot> slot, ImageSlot::Take(store, manifest.task, manifest.id));
    ASSIGN_OR_RETURN(std::vector<std::byte> bytes, writer.SerializeManifest(manifest));
    RETURN_IF_ERROR(slot->Prepare(rank == 0 ? &writer : nothing.get(), bytes));
    prepared.slots_.push_back(std::move(slot));
    prepared.ids_.push_back(manifest.id);
    prepared.sums_.push_back(SumOf(bytes));
  }
  return prepared;
}

Status PreparedImages::Publish() {
  Status status;
  size_t published = 0;
  while (status.ok() && published < slots_.size()) {
    status = slots_[published]->Publish();
    if (status.ok()) ++published;
  }
  if (status.ok()) return status;
  for (size_t rank = 0; rank < published; ++rank) (void)RemoveImage(*store_, tasks_[rank], ids_[rank]);
  return status;
}

Result<std::vector<std::string>> CommitImages(const std::shared_ptr<Store>& store, StoreWriter& writer,
                                              const ArrivedJob& job, std::vector<ImageManifest> manifests) {
  ASSIGN_OR_RETURN(PreparedImages images,
                   PreparedImages::Prepare(store, writer, job.tasks, std::move(manifests)));
  RETURN_IF_ERROR(images.Publish());
  return images.ids();
}

Status WriteRecords(const Site& site, const ArrivedJob& job, const std::vector<ImageManifest>& manifests,
                    const std::vector<std::string>& images, const std::optional<JobRecord>& record) {
  Status status;
  if (record) status = SetEarlierJobAside(site.folders, job.name, TaskPaths(site.folders, job.tasks.front()));
  if (status.ok()) status = WriteTaskRecords(site, job, manifests, images);
  if (status.ok() && record) status = WriteJobFiles(site, images, *record);
  if (!status.ok()) RemoveRecords(site, job, images);
  return status;
}

void RemoveRecords(const Site& site, const ArrivedJob& job, const std::vector<std::string>& images) {
  if (job.ranked) RemoveJobFiles(site.folders, job.name, images);
  for (const std::string& task : job.tasks) {
    TaskPaths paths(site.folders, task);
    (void)PutEarlierTaskBack(paths);
    (void)RemoveTree(paths.run);
  }
  Result<std::shared_ptr<Store>> store = OpenOrCreateStore(site.folders);
  if (!store.ok()) return;
  for (size_t rank = 0; rank < images.size(); ++rank)
    (void)RemoveImage(**store, job.tasks[rank], images[rank]);
  (void)(*store)->CollectGarbage();
}

Result<Json> RestoreArrived(const Site& site, const ArrivedJob& job, const std::vector<std::string>& images,
                            const std::vector<std::vector<int>>& gpus, uint32_t deadline_ms) {
  Result<Json> answer = job.ranked ? RestoreRanks(site, job, gpus, deadline_ms)
                                   : RestoreTask(site, job, images.front(), gpus.front(), deadline_ms);
  if (answer.ok() && BoolField(*answer, "ok")) ForgetEarlierStay(site.folders, job);
  return answer;
}

std::optional<bool> HasArrived(const Site& site, const ArrivedJob& job, const std::atomic<bool>& stop) {
  constexpr int kLookAgainMs = 1000;
  Result<bool> arrived = LookWhetherArrived(site, job, stop);
  // What cannot be looked at may run: nobody is told before it is known.
  while (!arrived.ok()) {
    if (stop) return std::nullopt;
    (void)poll(nullptr, 0, kLookAgainMs);
    arrived = LookWhetherArrived(site, job, stop);
  }
  if (*arrived) ForgetEarlierStay(site.folders, job);
  return *arrived;
}

}  // namespace stasis

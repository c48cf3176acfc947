#include "coordinator/agent/source_job.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>

#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/compatibility.h"
#include "coordinator/agent/kind_ghost.h"
#include "coordinator/job_images.h"
#include "coordinator/job_result.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "dedup/image.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;

constexpr int kKillMs = 30000;

// Ends a tree without letting any of it run: each has the signal before the first can be let go of.
Status KillTree(const ProcessIdentity& init) {
  Result<Fd> gone = OpenPidFd(init);
  if (!gone.ok()) return gone.status().code() == StatusCode::kNotFound ? Status() : gone.status();
  Result<std::vector<pid_t>> tree = ProcessTree(init.pid);
  if (!tree.ok()) return tree.status().code() == StatusCode::kNotFound ? Status() : tree.status();
  for (pid_t pid : *tree) (void)kill(pid, SIGKILL);
  pollfd wait{gone->get(), POLLIN, 0};
  if (poll(&wait, 1, kKillMs) > 0) return Status();
  return Errorf(StatusCode::kTimeout, "process %d does not end", init.pid);
}

void SetOptions(const v1::PauseOptions& options, Json* request) {
  if (options.deadline_ms() > 0) (*request)["deadline_ms"] = options.deadline_ms();
  if (options.wait_low_ms() > 0) (*request)["wait_low_ms"] = options.wait_low_ms();
}

void SetOptions(const v1::PauseOptions& options, JobRequest* request) {
  if (options.deadline_ms() > 0) request->deadline = std::chrono::milliseconds(options.deadline_ms());
  if (options.wait_low_ms() > 0) request->wait_low = std::chrono::milliseconds(options.wait_low_ms());
  if (options.attempts() > 0) request->attempts = static_cast<int>(options.attempts());
  request->cut = options.pause_protocol() != "timeout";
}

std::optional<Manifest> LastManifest(const Site& site, const std::string& task) {
  Result<std::unique_ptr<ImageReader>> image = OpenImage({task, ""}, site.folders);
  if (!image.ok()) return std::nullopt;
  Result<Manifest> manifest = ParseManifest((*image)->meta());
  if (!manifest.ok()) return std::nullopt;
  return *std::move(manifest);
}

uint64_t AllocatedBytes(const Json& status) {
  uint64_t bytes = 0;
  auto members = status.find("members");
  if (members == status.end() || !members->is_array()) return 0;
  for (const Json& member : *members) {
    if (member.is_object())
      bytes += static_cast<uint64_t>(std::max<int64_t>(0, IntegerField(member, "allocated_bytes")));
  }
  return bytes;
}

}  // namespace

Result<SourceJob> SourceJob::Open(const Site& site, const std::string& name, OperationContext& context,
                                  const char* verb) {
  RETURN_IF_ERROR(CheckTaskName(name));
  SourceJob job(site, name, context);
  if (!IsJob(site.folders, name)) {
    TaskPaths paths(site.folders, name);
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(paths));
    RETURN_IF_ERROR(RefuseRank(paths, facts.task, verb));
    job.tasks_ = {name};
    return job;
  }
  ASSIGN_OR_RETURN(job.record_, ReadJobRecord(site.folders.state, name));
  if (job.record_->nodes.size() != 1 || !job.record_->nodes.front().through.empty())
    return Status(StatusCode::kUnsupported, "the ranks of " + name + " are not all on this node");
  for (int rank = 0; rank < job.record_->ranks(); ++rank) job.tasks_.push_back(job.record_->TaskOf(rank));
  return job;
}

Result<SourceImage> SourceJob::FindImage(const std::string& id) const {
  if (ranked()) {
    ASSIGN_OR_RETURN(JobImage image, JobImages(site_.folders.state, *record_).Find(id));
    return SourceImage{image.id, image.images};
  }
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, OpenImage({name_, id}, site_.folders));
  return SourceImage{image->id(), {image->id()}};
}

Status SourceJob::CheckMovable(bool* paused) const {
  size_t running = 0, held = 0;
  std::string other;
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(PathsOf(rank)));
    TaskCondition condition = DeriveCondition(facts).condition;
    running += condition == TaskCondition::kRunning ? 1 : 0;
    held += condition == TaskCondition::kPaused ? 1 : 0;
    if (condition != TaskCondition::kRunning && condition != TaskCondition::kPaused)
      other = tasks_[rank] + " is " + TaskConditionName(condition);
  }
  *paused = held == tasks_.size();
  if (*paused || running == tasks_.size()) return Status();
  if (other.empty()) other = "some of its ranks are paused and some are not";
  return Status(StatusCode::kFailedPrecondition, name_ + " can not move: " + other);
}

Result<std::vector<Manifest>> SourceJob::Describe(uint64_t* device_bytes) {
  *device_bytes = 0;
  std::vector<Manifest> manifests;
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    NoInterrupt never;
    TaskPaths paths = PathsOf(rank);
    ASSIGN_OR_RETURN(Json status, AskGhost(paths, site_, {{"verb", "status"}}, never, [](const Json&) {}));
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(paths));
    std::optional<Manifest> last = LastManifest(site_, tasks_[rank]);
    uint64_t bytes = AllocatedBytes(status);
    if (bytes == 0 && last) bytes = last->DeviceBytes();
    *device_bytes += bytes;
    ASSIGN_OR_RETURN(Manifest manifest,
                     DescribeRunning(facts, paths, status, last ? &*last : nullptr, site_));
    manifests.push_back(std::move(manifest));
  }
  return manifests;
}

Json SourceJob::AskTask(Json request, const std::string& step) {
  request["operation"] = context_->token() + "." + step;
  const std::string verb = TextField(request, "verb");
  Result<Json> result = AskGhost(PathsOf(0), site_, request, context_->interrupt(),
                                 [&](const Json& event) { context_->TakeEvent("", event); });
  return result.ok() ? *std::move(result) : FailureJson(verb, result.status(), "");
}

Json SourceJob::AskJob(JobRequest request) {
  return LedJobOperation(*context_, site_, *record_).Run(std::move(request));
}

Json SourceJob::Pause(const v1::PauseOptions& options, const std::string& step) {
  JobRequest request;
  request.verb = Verb::kPause;
  SetOptions(options, &request);
  request.fields["residency"] = "device";
  if (ranked()) return AskJob(std::move(request));
  Json ask = {{"verb", "pause"}, {"residency", "device"}};
  SetOptions(options, &ask);
  return AskTask(std::move(ask), step);
}

Json SourceJob::Resume(const std::string& step) {
  JobRequest request;
  request.verb = Verb::kResume;
  return ranked() ? AskJob(std::move(request)) : AskTask({{"verb", "resume"}}, step);
}

Json SourceJob::Restore(const std::string& image, const std::string& step) {
  JobRequest request;
  request.verb = Verb::kRestore;
  request.image = image;
  return ranked() ? AskJob(std::move(request)) : AskTask({{"verb", "restore"}, {"image", image}}, step);
}

Json SourceJob::Checkpoint(const v1::PauseOptions& options, bool snapshot, const std::string& step,
                           SourceImage* image) {
  const char* mode = snapshot ? "auto" : "off";
  Json result;
  if (ranked()) {
    JobRequest request;
    request.verb = Verb::kCheckpoint;
    SetOptions(options, &request);
    request.fields["snapshot"] = mode;
    result = AskJob(std::move(request));
  } else {
    Json ask = {{"verb", "checkpoint"}, {"snapshot", mode}};
    SetOptions(options, &ask);
    result = AskTask(std::move(ask), step);
  }
  if (!BoolField(result, "ok")) return result;
  image->id = TextField(result, "image");
  image->tasks = {image->id};
  if (!ranked()) return result;
  Result<std::vector<JobImage>> images = ListJobImages(site_.folders.state, name_);
  if (!images.ok()) return FailureJson("checkpoint", images.status(), "");
  for (const JobImage& each : *images) {
    if (each.id == image->id) image->tasks = each.images;
  }
  return result;
}

Status SourceJob::Mark(const std::string& node) {
  for (size_t rank = 0; rank < tasks_.size(); ++rank) RETURN_IF_ERROR(MarkMoved(PathsOf(rank).folder, node));
  return Status();
}

Status SourceJob::Unmark() {
  Status status;
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    Status one = UnmarkMoved(PathsOf(rank).folder);
    if (status.ok()) status = std::move(one);
  }
  return status;
}

bool SourceJob::Marked() const {
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    if (MovedTo(PathsOf(rank).folder).empty()) return false;
  }
  return true;
}

Status SourceJob::AwaitRest(bool* paused, bool* ended) {
  std::vector<RankStand> stands;
  if (ranked()) {
    ASSIGN_OR_RETURN(stands, LedJobOperation(*context_, site_, *record_).AwaitRest());
  } else {
    AwaitGhost(site_, PathsOf(0));
    ASSIGN_OR_RETURN(TaskFacts facts, ReadTaskFacts(PathsOf(0)));
    TaskCondition condition = DeriveCondition(facts).condition;
    const bool stands_still = condition == TaskCondition::kPaused || condition == TaskCondition::kStranded;
    stands = {!IsLive(condition) ? RankStand::kEnded
              : stands_still     ? RankStand::kPaused
                                 : RankStand::kRunning};
  }
  *paused = std::any_of(stands.begin(), stands.end(), [](RankStand stand) {
    return stand == RankStand::kPaused || stand == RankStand::kInDoubt;
  });
  *ended =
      std::any_of(stands.begin(), stands.end(), [](RankStand stand) { return stand == RankStand::kEnded; });
  return Status();
}

bool SourceJob::Killed() const {
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    Result<TaskFacts> facts = ReadTaskFacts(PathsOf(rank));
    if (!facts.ok() || TextField(facts->status, "ended_by") == "cancel") continue;
    if (DeriveCondition(*facts).condition == TaskCondition::kKilled) return true;
  }
  return false;
}

Status SourceJob::EndPaused() {
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    Result<TaskFacts> facts = ReadTaskFacts(PathsOf(rank));
    if (facts.status().code() == StatusCode::kNotFound) continue;
    if (!facts.ok()) return facts.status();
    if (facts->alive) RETURN_IF_ERROR(KillTree(IdentityOf(facts->process)));
  }
  return Status();
}

void SourceJob::RemoveImage(const SourceImage& image) {
  if (image.empty()) return;
  if (ranked()) (void)RemoveJobImage(site_.folders.state, name_, image.id);
  Result<std::shared_ptr<Store>> store = OpenStore(site_.folders);
  if (!store.ok()) return;
  for (size_t rank = 0; rank < image.tasks.size(); ++rank)
    (void)stasis::RemoveImage(**store, tasks_[rank], image.tasks[rank]);
}

std::vector<pid_t> SourceJob::Ghosts() const {
  std::vector<pid_t> ghosts;
  for (size_t rank = 0; rank < tasks_.size(); ++rank) {
    Result<Json> status = ReadJson(PathsOf(rank).File("status.json"));
    if (status.ok()) ghosts.push_back(static_cast<pid_t>(IntegerField(*status, "ghost_pid")));
  }
  return ghosts;
}

}  // namespace stasis

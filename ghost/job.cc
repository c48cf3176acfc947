// Verbs: which plan, and what is checked before anything is touched.
#include "ghost/job.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/raw_log.h"
#include "ghost/criu.h"
#include "ghost/dumpable.h"
#include "ghost/place_devices.h"
#include "ghost/proc.h"

namespace stasis {

Job::Job(GhostArguments arguments, TaskPaths paths)
    : arguments_(arguments), paths_(std::move(paths)), guard_(std::move(arguments)) {}

Job::~Job() = default;

Result<std::unique_ptr<Job>> Job::Load(const GhostArguments& arguments) {
  TaskPaths paths = PathsOf(arguments.state_dir, arguments.run_dir, arguments.task);
  std::unique_ptr<Job> job(new Job(arguments, paths));
  ASSIGN_OR_RETURN(job->task_json_, ReadTaskJson(paths));
  ASSIGN_OR_RETURN(job->config_, ParseTaskConfig(job->task_json_));
  if (job->config_.name != arguments.task)
    return Status(StatusCode::kCorrupt, "task.json is of another task");
  Result<TaskProcess> process = ReadTaskProcess(paths);
  if (process.ok()) job->process_ = *process;
  job->phase_ = job->TaskAlive() ? Phase::kRunning : Phase::kAbsent;
  job->record_ = ReadTaskRecord(paths);
  return job;
}

bool Job::TaskAlive() const { return process_.init_pid > 1 && IsAlive(process_); }

TaskRecord Job::record() const {
  std::lock_guard lock(mutex_);
  return record_;
}

void Job::SetRecord(const std::string& state) {
  TaskRecord record;
  {
    std::lock_guard lock(mutex_);
    if (record_.state != state) record_.since = static_cast<uint64_t>(time(nullptr));
    record_.state = state;
    if (state != "ended") record_.ended_by.clear();
    record_.ghost_pid = getpid();
    record_.residency = state == "paused" ? ResidencyName(residency_) : "";
    record_.device_bytes =
        phase_ >= Phase::kHandedOver && phase_ <= Phase::kDeaf ? holdings_.device_bytes() : 0;
    record = record_;
  }
  Status status = WriteTaskRecord(paths_, record);
  if (!status.ok()) Log(LogLevel::kWarning, "status.json: " + status.ToString());
}

// A rank is moved together with the others of its job, or not at all.
Status Job::CheckRank(const Request& request, Answer* answer) const {
  const bool moves = request.verb != Verb::kStatus && (request.verb != Verb::kCancel || request.whole_task);
  if (!moves || request.job == config_.rank) return Status();
  if (!config_.rank)
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " is no rank of a job");
  const JobRank& mine = *config_.rank;
  const std::string verb = VerbName(request.verb);
  const std::string what = "task " + config_.name + " is rank " + std::to_string(mine.rank) + " of the " +
                           std::to_string(mine.ranks) + " of job " + mine.job;
  answer->remedy = verb + " the job: stasis " + verb + " " + mine.job;
  if (!request.job)
    return Status(StatusCode::kFailedPrecondition, what + ": no rank is moved without the others");
  return Status(StatusCode::kFailedPrecondition, what + ", not rank " + std::to_string(request.job->rank) +
                                                     " of the " + std::to_string(request.job->ranks) +
                                                     " of job " + request.job->job);
}

// --- before anything is touched

// Who has not looked at devices yet finds the task's when it does.
Status Job::CheckNamesForLater(const std::vector<int>& gpus) {
  if (gpus.empty()) return Status();
  PlaceRequest request;
  request.gpus = gpus;
  const size_t sees = config_.gpus.empty() ? gpus.size() : config_.gpus.size();
  for (size_t i = 0; i < sees; ++i) {
    request.devices.emplace_back().virtual_ordinal = static_cast<int>(i);
    request.now[static_cast<int>(i)] = static_cast<int>(i);
  }
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  ASSIGN_OR_RETURN(request.count, gpu->DeviceCount());
  request.may_share = true;
  return PlaceDevices(request).status();
}

Status Job::PlaceAll(const std::vector<int>& gpus) {
  if (std::none_of(holdings_.members.begin(), holdings_.members.end(),
                   std::mem_fn(&HeldMember::sees_devices)))
    return CheckNamesForLater(gpus);
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  ASSIGN_OR_RETURN(int count, gpu->DeviceCount());
  // A device that one process of the task uses is not left to chance for the others.
  std::set<std::string> used;
  for (const HeldMember& member : holdings_.members) {
    for (const TaskDevice& device : member.devices) {
      if (device.used) used.insert(device.uuid);
    }
  }
  for (HeldMember& member : holdings_.members) {
    if (!member.sees_devices()) continue;
    PlaceRequest request{member.devices, member.placements, gpus, count,
                         member.strategy == TaskStrategy::kReconstruct};
    for (TaskDevice& device : request.devices) device.used = used.count(device.uuid) != 0;
    Result<Placements> placements = PlaceDevices(request);
    if (placements.status().code() == StatusCode::kNotFound)
      op_.answer.remedy = "name devices that are there with --gpus: first for those that the program uses";
    RETURN_IF_ERROR(placements.status());
    if (member.strategy == TaskStrategy::kDriverCheckpoint && *placements != member.placed) {
      ASSIGN_OR_RETURN(int version, gpu->Version());
      RETURN_IF_ERROR(CheckMovesDevices(version));
    }
    member.placements = *std::move(placements);
  }
  return Status();
}

Status Job::BeginRestore() {
  if (phase_ != Phase::kAbsent) {
    op_.answer.remedy = "end it first: stasis cancel " + config_.name;
    return Status(StatusCode::kAlreadyExists,
                  "task " + config_.name + " is alive (process " + std::to_string(process_.init_pid) + ")");
  }
  RETURN_IF_ERROR(CheckCriuPrivileges());
  ASSIGN_OR_RETURN(criu_, FindCriu(arguments_.criu));
  RETURN_IF_ERROR(ChooseImage());
  RETURN_IF_ERROR(CheckImageFits());
  holdings_.Clear();
  for (ManifestMember& member : op_.manifest.members) {
    HeldMember held;
    held.nspid = member.nspid;
    held.strategy = member.strategy;
    held.driver_version = member.driver_version;
    held.devices = member.devices;
    held.placed_uuids = member.placed_uuids;
    for (const TaskDevice& device : member.devices)
      held.placements[device.virtual_ordinal] = device.physical_ordinal;
    held.placed = held.placements;
    for (const TaskExtent& extent : member.extents) held.extents.push_back({extent, 0, Fd(), false});
    held.ranges = member.ranges;
    holdings_.members.push_back(std::move(held));
  }
  RETURN_IF_ERROR(FindShared(&holdings_.members));
  return PlaceAll(op_.request.gpus);
}

Status Job::BeginCheckpoint() {
  if (!config_.pid_namespace) {
    op_.answer.remedy =
        "start the task as root, or with CAP_SYS_ADMIN: then it gets a PID namespace of its own";
    return Status(StatusCode::kFailedPrecondition,
                  "the task has no PID namespace of its own, so it could not be restored");
  }
  RETURN_IF_ERROR(CheckCriuPrivileges());
  Result<std::string> criu = FindCriu(arguments_.criu);
  if (!criu.ok()) op_.answer.remedy = "install CRIU: scripts/setup.sh";
  ASSIGN_OR_RETURN(criu_, std::move(criu));
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  RETURN_IF_ERROR(CheckDescriptors(tree, &op_.answer.remedy));
  ASSIGN_OR_RETURN(op_.manifest.criu, CriuVersion(criu_));
  ASSIGN_OR_RETURN(op_.store, OpenStore());
  ASSIGN_OR_RETURN(op_.image_id, NextImageId(*op_.store, config_.name));
  ASSIGN_OR_RETURN(op_.writer, ImageWriter::Create(op_.store, config_.name, op_.image_id));
  return Status();
}

Status Job::BeginMigrate() {
  bool moves = false;
  std::vector<HeldMember> before;
  for (const HeldMember& member : holdings_.members) op_.old_placements.push_back(member.placements);
  RETURN_IF_ERROR(PlaceAll(op_.request.gpus));
  for (size_t i = 0; i < holdings_.members.size(); ++i) {
    moves = moves || holdings_.members[i].placements != op_.old_placements[i];
  }
  if (std::none_of(holdings_.members.begin(), holdings_.members.end(),
                   std::mem_fn(&HeldMember::sees_devices)))
    return Status(StatusCode::kFailedPrecondition, "the task uses no device");
  if (!moves) return Status(StatusCode::kFailedPrecondition, "the task is on that device already");
  return Status();
}

Status Job::Begin(std::vector<Step>* plan) {
  const Request& request = op_.request;
  if (in_doubt_) return BeginInDoubt(plan);
  if (request.in_doubt != InDoubt::kNone)
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " is not in doubt");
  bool is_held = phase_ == Phase::kHeld;
  if (request.verb != Verb::kRestore && phase_ == Phase::kAbsent) {
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " has ended");
  }
  // What forbids it is found before anything is touched.
  if (phase_ == Phase::kRunning && request.verb != Verb::kRestore) RETURN_IF_ERROR(CheckNotStranded());
  if (phase_ == Phase::kRunning && request.verb != Verb::kRestore) {
    Status connected = ConnectMembers();
    // Whatever else there is to say of what runs, it is not to be resumed.
    if (!connected.ok() && (request.verb != Verb::kResume || stranded_)) return connected;
    if (!connected.ok()) op_.answer.remedy.clear();
  }
  switch (request.verb) {
    case Verb::kPause:
      if (is_held)
        return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " is already paused");
      residency_ = request.residency;
      want_freeze_ = request.freeze;
      *plan = PausePlan();
      if (residency_ == Residency::kDisk) {
        // What is wrong with it is found while the task still runs.
        ASSIGN_OR_RETURN(op_.store, OpenStore());
      }
      return Status();
    case Verb::kResume:
      if (!is_held) return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " is running");
      *plan = ResumePlan();
      if (request.gpus.empty()) return Status();
      if (Status status = BeginMigrate(); !status.ok()) {
        // Where it is already is no place to move to, and a fine one to resume at.
        return status.code() == StatusCode::kFailedPrecondition ? Status() : status;
      }
      plan->insert(plan->begin(), Step::kMove);
      return Status();
    case Verb::kCheckpoint:
      if (!is_held) residency_ = Residency::kDevice;
      *plan = CheckpointPlan(is_held, request.stop);
      return BeginCheckpoint();
    case Verb::kMigrate:
      *plan = MigratePlan(is_held);
      return BeginMigrate();
    case Verb::kRestore:
      *plan = RestorePlan();
      return BeginRestore();
    default:
      return Status(StatusCode::kInternal, "no plan for this verb");
  }
}

}  // namespace stasis

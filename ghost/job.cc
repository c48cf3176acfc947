// Verbs: which plan, what is checked before anything is touched, and the way back.
#include "ghost/job.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "base/files.h"
#include "base/raw_log.h"
#include "ghost/child.h"
#include "ghost/criu.h"
#include "ghost/dumpable.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr std::chrono::seconds kThawTime(30);

uint64_t Milliseconds(Duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

// Steps after whose failure some processes may already be where it leads; their opposites bear that.
bool MayBeHalfDone(Step step) {
  return step == Step::kRelease || step == Step::kDetach || step == Step::kDeafen;
}

// Steps that change which descriptors the ghost holds.
bool ChangesDescriptors(Step step) {
  return step == Step::kStore || step == Step::kLoad || step == Step::kMove || step == Step::kRevive;
}

void Log(LogLevel level, const std::string& text) { RawLog(level, "%s", text.c_str()); }

}  // namespace

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

// --- before anything is touched

Status Job::PlaceAll(const std::vector<int>& gpus) {
  for (HeldMember& member : holdings_.members) {
    if (gpus.size() > member.devices.size()) {
      return Errorf(StatusCode::kInvalidArgument, "the task sees %zu devices, %zu are named",
                    member.devices.size(), gpus.size());
    }
    Placements placements;
    std::vector<int> taken(gpus);
    for (size_t i = 0; i < gpus.size(); ++i) {
      if (std::count(gpus.begin(), gpus.end(), gpus[i]) != 1) {
        return Errorf(StatusCode::kInvalidArgument, "device %d is named twice", gpus[i]);
      }
      placements[member.devices[i].virtual_ordinal] = gpus[i];
    }
    // Devices that are not named stay where they are, or change places with one that moved there.
    std::vector<int> left;
    for (auto [ordinal, physical] : member.placements) {
      if (std::find(taken.begin(), taken.end(), physical) == taken.end()) left.push_back(physical);
    }
    for (size_t i = gpus.size(); i < member.devices.size(); ++i) {
      int ordinal = member.devices[i].virtual_ordinal;
      int physical = member.placements[ordinal];
      if (std::find(left.begin(), left.end(), physical) == left.end()) {
        if (left.empty()) return Status(StatusCode::kInvalidArgument, "too few devices are named");
        physical = left.front();
      }
      left.erase(std::find(left.begin(), left.end(), physical));
      placements[ordinal] = physical;
    }
    member.placements = std::move(placements);
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
  op_.image_id = op_.request.image;
  if (op_.image_id.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListImages(paths_.images));
    if (ids.empty()) return Status(StatusCode::kNotFound, "task " + config_.name + " has no image");
    op_.image_id = ids.back();
  }
  ASSIGN_OR_RETURN(op_.reader, FolderImageReader::Open(paths_.images, op_.image_id));
  ASSIGN_OR_RETURN(op_.manifest, ParseManifest(op_.reader->meta()));
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
    for (const ManifestExtent& e : member.extents) held.extents.push_back({e.extent, 0, e.offset, Fd()});
    holdings_.members.push_back(std::move(held));
  }
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
  RETURN_IF_ERROR(RemovePartialImages(paths_.images));
  ASSIGN_OR_RETURN(op_.image_id, NextImageId(paths_.images));
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
  if (holdings_.members.empty()) return Status(StatusCode::kFailedPrecondition, "the task uses no device");
  if (!moves) return Status(StatusCode::kFailedPrecondition, "the task is on that device already");
  ASSIGN_OR_RETURN(Gpu * gpu, OpenGpu());
  ASSIGN_OR_RETURN(int count, gpu->DeviceCount());
  for (int device : op_.request.gpus) {
    if (device >= count)
      return Errorf(StatusCode::kNotFound, "there is no device %d, only %d", device, count);
  }
  return Status();
}

Status Job::Begin(std::vector<Step>* plan) {
  const Request& request = op_.request;
  bool is_held = phase_ == Phase::kHeld;
  if (request.verb != Verb::kRestore && phase_ == Phase::kAbsent) {
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " has ended");
  }
  // What forbids it is found before anything is touched.
  if (phase_ == Phase::kRunning && request.verb != Verb::kResume && request.verb != Verb::kRestore) {
    RETURN_IF_ERROR(ConnectMembers());
  }
  switch (request.verb) {
    case Verb::kPause:
      if (is_held)
        return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " is already paused");
      residency_ = request.residency;
      want_freeze_ = request.freeze;
      *plan = PausePlan();
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

// --- walking

Json Job::Run(const Request& request, Progress& progress) {
  // Each start means that one more process has begun to use devices, which happens once in its life.
  constexpr int kStarts = 4;
  cancel_.Clear();
  bool newcomer = false;
  Json result = RunOnce(request, progress, &newcomer);
  for (int start = 1; start < kStarts && newcomer && cancel_.Check().ok(); ++start) {
    Log(LogLevel::kInfo, "a process began to use devices during the checkpoint, which starts over");
    result = RunOnce(request, progress, &newcomer);
  }
  return result;
}

size_t Job::MembersNow() const {
  Result<std::vector<pid_t>> tree = ProcessTree(process_.init_pid);
  return tree.ok() ? FindMembers(paths_.Ctl(), *tree).size() : 0;
}

Json Job::RunOnce(const Request& request, Progress& progress, bool* newcomer) {
  op_ = Operation();
  op_.request = request;
  op_.progress = &progress;
  op_.started_at = Clock::Real().Now();
  // The program may have ended by itself since.
  if (phase_ == Phase::kRunning && !TaskAlive()) phase_ = Phase::kAbsent;
  if (phase_ == Phase::kAbsent) {
    Result<TaskProcess> process = ReadTaskProcess(paths_);
    if (process.ok()) process_ = *process;
    if (TaskAlive()) phase_ = Phase::kRunning;
  }
  op_.goal = phase_;
  op_.active = true;
  std::vector<Step> plan;
  Status status = request.verb == Verb::kCancel ? CancelTask() : Begin(&plan);
  if (!status.ok()) {
    op_.answer.left = "unchanged";
    if (!op_.old_placements.empty()) Undo();
    if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) {
      members_.clear();
      holdings_.Clear();
    }
  } else if (!plan.empty()) {
    if (request.verb == Verb::kCheckpoint) SetRecord("checkpointing");
    if (request.verb == Verb::kRestore) SetRecord("restoring");
    status = Walk(plan);
    if (!status.ok() && op_.committed && op_.request.stop && phase_ == Phase::kAbsent) {
      // All that was asked for is done.
      op_.answer.notes.push_back(std::string(status.message()));
      status = Status();
    }
    if (!status.ok()) Undo();
  }
  // It has connected to its devices behind our back, which CRIU refuses.
  *newcomer = !status.ok() && request.verb == Verb::kCheckpoint && phase_ == Phase::kRunning &&
              op_.answer.left == "rolled-back" && MembersNow() > op_.members;
  Report(status);
  Json result = ResultJson(VerbName(request.verb), status, op_.answer);
  op_.active = false;
  if (guard_.running()) {
    Status told = Publish(std::nullopt, false);
    if (!told.ok()) Log(LogLevel::kError, "guardian: " + told.ToString());
  }
  op_ = Operation();
  gpu_.reset();
  return result;
}

Status Job::Take(Step step) {
  if (!Allows(step, phase_)) {
    return Errorf(StatusCode::kInternal, "step %s is not allowed in phase %s", StepName(step),
                  PhaseName(phase_));
  }
  Log(LogLevel::kInfo, std::string("step ") + StepName(step) + " in phase " + PhaseName(phase_));
  bool needs_guard = step == Step::kRelease || step == Step::kRevive || step == Step::kUnattach;
  if (needs_guard && !guard_.running()) RETURN_IF_ERROR(guard_.Start());
  if (guard_.running()) RETURN_IF_ERROR(Publish(step, needs_guard));
  Status status = Do(step);
  if (!status.ok() && !MayBeHalfDone(step)) return status;
  phase_ = After(step, phase_);
  if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) {
    guard_.Dismiss();
  } else if (guard_.running()) {
    Status told = Publish(std::nullopt, ChangesDescriptors(step));
    if (status.ok()) status = std::move(told);
  }
  return status;
}

Status Job::Walk(const std::vector<Step>& plan) {
  for (Step step : plan) {
    if (op_.progress) op_.progress->Begin(RowOf(step).what);
    RETURN_IF_ERROR(cancel_.Check());
    RETURN_IF_ERROR(FaultBefore(step));
    RETURN_IF_ERROR(Take(step));
    RETURN_IF_ERROR(FaultAfter(step));
  }
  return Status();
}

Status Job::Do(Step step) {
  switch (step) {
    case Step::kQuiesce:
      return Quiesce();
    case Step::kHandOver:
      return HandOver();
    case Step::kRelease:
      return Release(false);
    case Step::kUnattach:
      return Release(true);
    case Step::kDetach:
      return Detach();
    case Step::kStore:
      return Store();
    case Step::kFreeze: {
      if (!want_freeze_) return Status();
      ASSIGN_OR_RETURN(frozen_, FreezeTree(process_.init_pid, config_.name, Deadline::After(kThawTime)));
      return Status();
    }
    case Step::kThaw: {
      RETURN_IF_ERROR(ThawTree(frozen_, Deadline::After(kThawTime)));
      frozen_ = Frozen();
      return ConnectHeld();
    }
    case Step::kDeafen:
      return Deafen();
    case Step::kDump:
      return Dump();
    case Step::kCommit:
      return Commit();
    case Step::kEndTask:
      return EndTask(Duration::zero());
    case Step::kRevive:
      return Revive();
    case Step::kListen:
      return Listen();
    case Step::kMove:
      return Move();
    case Step::kLoad:
      return LoadMemory();
    case Step::kReattach:
      return Reattach();
    case Step::kAttach:
      return Attach();
    case Step::kReopen:
      return Reopen();
    case Step::kDrop:
      return Drop();
    case Step::kAbandon:
      Abandon();
      return Status();
  }
  return Status(StatusCode::kInternal, "unknown step");
}

void Job::TryBack(Phase goal) {
  Step step;
  while (WayBack(phase_, goal, &step)) {
    Status status = Take(step);
    if (status.ok()) continue;
    op_.answer.notes.push_back(std::string("undoing: ") + StepName(step) + ": " +
                               std::string(status.message()));
    Log(LogLevel::kError, "undo: " + std::string(StepName(step)) + ": " + status.ToString());
    return;
  }
}

void Job::Undo() {
  if (op_.answer.left.empty()) op_.answer.left = "rolled-back";
  op_.writer.reset();
  op_.snapshot.reset();
  if (!op_.old_extents.empty()) holdings_.PutBack(std::move(op_.old_extents));
  op_.old_extents.clear();
  for (size_t i = 0; i < op_.old_placements.size() && i < holdings_.members.size(); ++i) {
    holdings_.members[i].placements = op_.old_placements[i];
  }
  Phase goal = op_.goal;
  TryBack(goal);
  if (!TaskAlive() && phase_ != Phase::kAbsent) {
    op_.answer.left = "lost";
    TaskEnded();
  } else if (phase_ != goal && goal == Phase::kRunning) {
    // The program cannot run on, for instance because its device is gone: nothing is lost while it is held.
    TryBack(Phase::kHeld);
    op_.answer.left = phase_ == Phase::kHeld ? "paused" : "lost";
  } else if (goal == Phase::kHeld && phase_ == Phase::kHeld) {
    op_.answer.left = op_.request.verb == Verb::kResume ? "paused" : "rolled-back";
  } else if (goal == Phase::kAbsent) {
    op_.answer.left = "unchanged";
  }
}

void Job::FillAnswer() {
  Json& fields = op_.answer.fields;
  uint64_t total = Milliseconds(Clock::Real().Now() - op_.started_at);
  std::vector<int> gpus = record().gpus;
  switch (op_.request.verb) {
    case Verb::kPause:
      fields["residency"] = ResidencyName(residency_);
      fields["device_bytes"] = holdings_.bytes();
      fields["extents"] = holdings_.extent_count();
      fields["members"] = holdings_.members.size();
      fields["pause_ms"] = total;
      fields["frozen"] = FreezeKindName(frozen_.kind);
      return;
    case Verb::kResume:
      fields["resume_ms"] = total;
      fields["gpus"] = gpus;
      return;
    case Verb::kCheckpoint:
      fields["image"] = op_.image_id;
      fields["path"] = paths_.images + "/" + op_.image_id;
      fields["device_bytes"] = op_.manifest.DeviceBytes();
      fields["standstill_ms"] = Milliseconds(op_.standstill);
      fields["total_ms"] = total;
      fields["stopped"] = op_.request.stop;
      return;
    case Verb::kRestore:
      fields["image"] = op_.image_id;
      fields["init_pid"] = process_.init_pid;
      fields["pid"] = process_.pid;
      fields["total_ms"] = total;
      fields["gpus"] = gpus;
      for (const ManifestFile& file : op_.manifest.files)
        if (file.path == op_.manifest.log) fields["log_length"] = file.size;
      return;
    case Verb::kMigrate:
      fields["gpus"] = gpus;
      fields["standstill_ms"] = Milliseconds(op_.standstill);
      return;
    default:
      return;
  }
}

void Job::Report(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    record_.error = status.ok() ? "" : std::string(status.message());
    if (op_.committed) record_.last_image = op_.image_id;
  }
  if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) guard_.Dismiss();
  if (status.ok()) FillAnswer();
  SetRecord(phase_ == Phase::kHeld      ? "paused"
            : phase_ == Phase::kRunning ? "running"
            : phase_ == Phase::kAbsent  ? "ended"
                                        : "paused");
  if (!status.ok() && op_.committed) op_.answer.notes.push_back("image " + op_.image_id + " is complete");
  for (const SetAside& aside : op_.set_aside) op_.answer.notes.push_back(Note(aside));
  Log(status.ok() ? LogLevel::kInfo : LogLevel::kError,
      std::string(VerbName(op_.request.verb)) + ": " + status.ToString() +
          (status.ok() ? "" : " [" + op_.answer.left + "]"));
}

// --- the guardian

Json Job::StateJson(std::optional<Step> step) const {
  Json set_aside = Json::array();
  for (const SetAside& aside : op_.set_aside) set_aside.push_back({aside.path, aside.size, aside.tail_path});
  return {{"phase", PhaseName(phase_)},
          {"step", step ? StepName(*step) : ""},
          {"goal", PhaseName(op_.goal)},
          {"active", op_.active},
          {"residency", ResidencyName(residency_)},
          {"freeze", want_freeze_},
          {"restored", restored_},
          {"frozen", {FreezeKindName(frozen_.kind), frozen_.folder, frozen_.home, frozen_.root}},
          {"criu", criu_pid_},
          {"init_pid", process_.init_pid},
          {"set_aside", std::move(set_aside)},
          // While they are being filled by another thread there is nothing in them that an undo would want.
          {"holdings", step == Step::kRevive ? Holdings().Describe() : holdings_.Describe()}};
}

Status Job::Publish(std::optional<Step> step, bool with_fds) {
  std::vector<Fd> fds;
  if (with_fds) fds = holdings_.Descriptors();
  Status status = guard_.Publish(StateJson(step), with_fds ? &fds : nullptr);
  if (status.ok()) return status;
  // A guardian that was killed is replaced; the new one needs all there is.
  guard_.Forget();
  RETURN_IF_ERROR(guard_.Start());
  if (step != Step::kRevive) fds = holdings_.Descriptors();
  return guard_.Publish(StateJson(step), &fds);
}

void Job::GuardDied() {
  guard_.Forget();
  if (phase_ != Phase::kHeld) return;
  Log(LogLevel::kWarning, "the guardian has died; starting another");
  Status status = Publish(std::nullopt, true);
  if (!status.ok()) Log(LogLevel::kError, "guardian: " + status.ToString());
}

Status Job::Adopt(Adopted adopted) {
  JsonFields fields(adopted.state, "the guardian's state");
  Phase phase = Phase::kRunning, goal = Phase::kRunning;
  Step step = Step::kDrop;
  bool known = FindPhase(fields.String("phase"), &phase) && FindPhase(fields.String("goal"), &goal) &&
               FindResidency(fields.String("residency"), &residency_);
  std::string step_name = fields.String("step");
  known = known && (step_name.empty() || FindStep(step_name, &step));
  bool active = fields.Bool("active");
  want_freeze_ = fields.Bool("freeze");
  restored_ = fields.Bool("restored");
  criu_pid_ = static_cast<pid_t>(fields.Number("criu", 1 << 22));
  RETURN_IF_ERROR(fields.Finish());
  if (!known) return Status(StatusCode::kCorrupt, "the guardian's state is unreadable");
  const Json& frozen = adopted.state["frozen"];
  FindFreezeKind(frozen.at(0).get<std::string>(), &frozen_.kind);
  frozen_.folder = frozen.at(1).get<std::string>();
  frozen_.home = frozen.at(2).get<std::string>();
  frozen_.root = frozen.at(3).get<pid_t>();
  ASSIGN_OR_RETURN(holdings_, Holdings::Adopt(adopted.state["holdings"], std::move(adopted.fds)));
  Log(LogLevel::kWarning, std::string("took over in phase ") + PhaseName(phase) + ", step " + step_name);
  phase_ = phase;
  op_.goal = goal;
  // This process may die as its predecessor did.
  op_.active = active;
  RETURN_IF_ERROR(guard_.Start());
  RETURN_IF_ERROR(Publish(std::nullopt, true));
  Status status;
  if (phase == Phase::kHeld && !active) {
    members_.resize(holdings_.members.size());
  } else {
    status = Recover(goal, adopted.state);
  }
  op_ = Operation();
  gpu_.reset();
  if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) {
    guard_.Dismiss();
  } else {
    Status told = Publish(std::nullopt, true);
    if (status.ok()) status = std::move(told);
  }
  SetRecord(phase_ == Phase::kRunning ? "running" : phase_ == Phase::kAbsent ? "ended" : "paused");
  return status;
}

Status Job::Recover(Phase goal, const Json& state) {
  // The number may belong to somebody else by now.
  Result<ProcStat> criu = ReadProcStat(criu_pid_);
  if (criu_pid_ > 0 && criu.ok() && criu->name == "criu") {
    RETURN_IF_ERROR(WaitProcess(criu_pid_, Deadline::Never()));
  }
  criu_pid_ = 0;
  (void)RemovePartialImages(paths_.images);
  if (goal == Phase::kAbsent) {
    for (const Json& aside : state["set_aside"]) {
      op_.set_aside.push_back(
          {aside.at(0).get<std::string>(), aside.at(1).get<uint64_t>(), aside.at(2).get<std::string>()});
    }
    Abandon();
    phase_ = Phase::kAbsent;
    return Status();
  }
  if (!TaskAlive()) {
    TaskEnded();
    return Status();
  }
  (void)ThawTree(frozen_, Deadline::After(kThawTime));
  frozen_ = Frozen();
  // It may have been stopped by a dump, or frozen in a way that was not written down any more.
  ASSIGN_OR_RETURN(Frozen again, FreezeTree(process_.init_pid, config_.name, Deadline::After(kThawTime)));
  RETURN_IF_ERROR(ThawTree(again, Deadline::After(kThawTime)));
  RETURN_IF_ERROR(
      ThawTree({FreezeKind::kSigstop, "", "", process_.init_pid, false}, Deadline::After(kThawTime)));
  RETURN_IF_ERROR(FindRealPhase(goal));
  TryBack(goal);
  if (phase_ != goal && phase_ != Phase::kRunning) TryBack(Phase::kHeld);
  if (phase_ == Phase::kRunning) holdings_.Clear();
  return Status();
}

// Every member says itself where it stands; those that run have nothing to be undone.
Status Job::FindRealPhase(Phase goal) {
  members_.clear();
  members_.resize(holdings_.members.size());
  phase_ = Phase::kDeaf;
  RETURN_IF_ERROR(Listen());
  bool all_run = true;
  for (const auto& member : members_) all_run = all_run && member->hello().state == TaskState::kRunning;
  if (all_run && (goal == Phase::kRunning || !members_.empty())) {
    members_.clear();
    phase_ = Phase::kRunning;
    return Status();
  }
  phase_ = Phase::kStored;
  return Status();
}

// --- the end of a task

Status Job::CancelTask() {
  if (phase_ == Phase::kAbsent) {
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " has ended");
  }
  RETURN_IF_ERROR(ThawTree(frozen_, Deadline::After(kThawTime)));
  frozen_ = Frozen();
  RETURN_IF_ERROR(EndTask(op_.request.grace));
  phase_ = Phase::kAbsent;
  guard_.Dismiss();
  op_.answer.fields["what"] = "task";
  return Status();
}

void Job::TaskEnded() {
  (void)ThawTree(frozen_, Deadline::After(kThawTime));
  frozen_ = Frozen();
  holdings_.Clear();
  members_.clear();
  phase_ = Phase::kAbsent;
  guard_.Dismiss();
  SetRecord("ended");
}

// A frozen first process cannot take note of the program's end.
void Job::ThawForTheEnd(const std::string& why) {
  Log(LogLevel::kInfo, why + ": thawing the task");
  (void)ThawTree(frozen_, Deadline::After(kThawTime));
  frozen_.thawed = true;
}

void Job::DeliverSignals() {
  if (frozen_.kind == FreezeKind::kNone || frozen_.thawed) return;
  Result<ProcStat> program = ReadProcStat(process_.pid);
  if (!program.ok() || program->state == 'Z') return ThawForTheEnd("the program has been killed");
  constexpr int kEnding[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL};
  Result<std::vector<pid_t>> tree = ProcessTree(process_.init_pid);
  if (!tree.ok()) return;
  for (pid_t pid : *tree) {
    Result<ProcIds> ids = ReadProcIds(pid);
    if (!ids.ok()) continue;
    bool pending = false;
    for (int signal : kEnding) pending = pending || ((ids->pending_signals >> (signal - 1)) & 1);
    if (!pending) continue;
    return ThawForTheEnd("a signal waits for process " + Named(pid));
  }
}

Json Job::MemberStatus() {
  Json list = Json::array();
  if (phase_ != Phase::kRunning || !TaskAlive()) return list;
  Result<std::vector<pid_t>> tree = ProcessTree(process_.init_pid);
  if (!tree.ok()) return list;
  Deadline deadline = Deadline::After(std::chrono::seconds(1));
  for (const MemberSocket& socket : FindMembers(paths_.Ctl(), *tree)) {
    Result<std::unique_ptr<Member>> member = Member::Connect(socket.path, socket.pid, deadline);
    if (!member.ok()) continue;
    Result<Message> answer = (*member)->Call(TaskMessage::kStatus, {}, {}, deadline);
    if (!answer.ok()) continue;
    Result<TaskStatus> status = DecodeTaskStatus(answer->payload);
    if (!status.ok()) continue;
    list.push_back({{"pid", socket.pid},
                    {"nspid", socket.nspid},
                    {"state", TaskStateName(status->state)},
                    {"strategy", TaskStrategyName(StrategyOf(**member))},
                    {"threads", status->threads},
                    {"allocations", status->allocations},
                    {"allocated_bytes", status->allocated_bytes},
                    {"extents", status->extents},
                    {"extent_bytes", status->extent_bytes},
                    {"host_bytes", status->host_bytes},
                    {"active_bytes", status->active_bytes},
                    {"active_low_bytes", status->low_bytes},
                    {"active_high_bytes", status->high_bytes},
                    {"iterations", status->iterations},
                    {"ignored_notes", status->ignored_notes},
                    {"records", status->records}});
  }
  return list;
}

}  // namespace stasis

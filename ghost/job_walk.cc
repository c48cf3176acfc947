// Walking along a plan, and back when a step fails.
#include <signal.h>

#include <cerrno>

#include "base/files.h"
#include "ghost/job.h"
#include "ghost/proc.h"
#include "ghost/scratch.h"
#include "ghost/tcp_kernel.h"

namespace stasis {
namespace {

uint64_t Milliseconds(Duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

// Steps after whose failure some processes may already be where it leads; their opposites bear that.
bool MayBeHalfDone(Step step) {
  return step == Step::kGiveUp || step == Step::kRelease || step == Step::kDetach || step == Step::kDeafen;
}

// Steps that change which descriptors the ghost holds.
bool ChangesDescriptors(Step step) {
  return step == Step::kHandOver || step == Step::kDrop || step == Step::kStore || step == Step::kLoad ||
         step == Step::kMove || step == Step::kRevive;
}

}  // namespace

Json Job::Run(const Request& request, Progress& progress, Coordination* coordination) {
  // Each start means that one more process has begun to use devices, which happens once in its life.
  constexpr int kStarts = 4;
  cancel_.Clear();
  coordination_ = coordination;
  bool newcomer = false;
  Json result = RunOnce(request, progress, &newcomer);
  for (int start = 1; start < kStarts && newcomer && DecidesAlone() && cancel_.Check().ok(); ++start) {
    Log(LogLevel::kInfo, "a process began to use devices during the operation, which starts over");
    result = RunOnce(request, progress, &newcomer);
  }
  if (!request.operation.empty()) KeepResult(request.operation, result);
  return result;
}

void Job::KeepResult(const std::string& operation, const Json& result) {
  TaskRecord record;
  {
    std::lock_guard lock(mutex_);
    record_.last_operation = operation;
    record_.last_result = result;
    record = record_;
  }
  Status status = WriteTaskRecord(paths_, record);
  if (!status.ok()) Log(LogLevel::kWarning, "status.json: " + status.ToString());
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
  alone_ = AloneCoordination();
  // The program may have ended by itself since.
  if (phase_ == Phase::kRunning && !TaskAlive()) phase_ = Phase::kAbsent;
  if (phase_ == Phase::kAbsent) {
    Result<TaskProcess> process = ReadTaskProcess(paths_);
    if (process.ok()) process_ = *process;
    if (TaskAlive()) phase_ = Phase::kRunning;
  }
  op_.goal = phase_;
  op_.active = true;
  Status status = AwaitLeftDump();
  if (status.ok() && (phase_ == Phase::kRunning || phase_ == Phase::kAbsent)) Sweep();
  std::vector<Step> plan;
  if (status.ok()) status = request.verb == Verb::kCancel ? CancelTask() : Begin(&plan);
  if (!status.ok()) {
    Decisions().Fail(status);
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
    if (!status.ok()) {
      status = WhyItFailed(std::move(status));
      Decisions().Fail(status);
      Undo();
    }
  }
  // It has connected to its devices behind our back, which CRIU refuses.
  *newcomer = !status.ok() && request.verb != Verb::kCancel && op_.goal == Phase::kRunning &&
              phase_ == Phase::kRunning && op_.answer.left == "rolled-back" && MembersNow() > op_.members;
  Report(status);
  Json result = ResultJson(VerbName(request.verb), status, op_.answer);
  op_.active = false;
  if (guard_.running()) {
    Status told = Publish(std::nullopt, false);
    if (!told.ok()) Log(LogLevel::kError, "guardian: " + told.ToString());
  }
  EndSnapshot();
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
  // What has been given up, or released, waits for another ghost when this one dies.
  bool needs_guard =
      step == Step::kGiveUp || step == Step::kRelease || step == Step::kRevive || step == Step::kUnattach;
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
    RETURN_IF_ERROR(VoteAfter(step));
  }
  return Status();
}

Status Job::Freeze() {
  if (!want_freeze_) return Status();
  ASSIGN_OR_RETURN(frozen_, FreezeTree(process_.init_pid, config_.name, Deadline::After(kThawTime)));
  if (op_.undoing) return Status();
  // Who has begun to use devices since would keep what it has got of them, and nobody would know.
  Status status = CheckNoNewcomer();
  if (status.ok()) return status;
  RETURN_IF_ERROR(ThawTree(frozen_, Deadline::After(kThawTime)));
  frozen_ = Frozen();
  return status;
}

// Stopped processes are not let go of: they would be asked, and their answers waited for. Where they are
// frozen by being stopped, nobody can tell who else has stopped them, and they go on.
Status Job::Thaw() {
  for (const HeldMember& held : holdings_.members) {
    if (frozen_.kind == FreezeKind::kSigstop) break;
    Status status = CheckResponsiveOnceThawed(held.pid);
    if (status.code() == StatusCode::kFailedPrecondition) return status;
  }
  // For an image the processes must be able to move, and nobody who would keep them from using devices has
  // begun to: until they are resumed they are stopped, in the image as well.
  const bool stay = op_.request.verb == Verb::kCheckpoint && holdings_.empty();
  if (stay) RETURN_IF_ERROR(StopProcesses());
  if (!stay || frozen_.kind != FreezeKind::kSigstop)
    RETURN_IF_ERROR(ThawTree(frozen_, Deadline::After(kThawTime)));
  frozen_ = Frozen();
  return ConnectHeld();
}

Status Job::StopProcesses() {
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(process_.init_pid));
  for (const pid_t pid : tree) {
    if (kill(pid, SIGSTOP) != 0 && errno != ESRCH) return ErrnoStatus(errno, "stop process " + Named(pid));
  }
  return Status();
}

Status Job::Do(Step step) {
  switch (step) {
    case Step::kQuiesce:
      return Quiesce();
    case Step::kGiveUp:
      return GiveUp();
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
    case Step::kFreeze:
      return Freeze();
    case Step::kThaw:
      return Thaw();
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
    case Step::kRejoin:
      return Rejoin();
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
  op_.undoing = true;
  while (WayBack(phase_, goal, holdings_.extent_count() != 0, &step)) {
    Status status = Take(step);
    if (status.ok()) status = VoteOnTheWayBack(step);
    if (status.ok()) continue;
    op_.answer.notes.push_back(std::string("undoing: ") + StepName(step) + ": " +
                               std::string(status.message()));
    Log(LogLevel::kError, "undo: " + std::string(StepName(step)) + ": " + status.ToString());
    Decisions().Fail(status);
    return;
  }
}

void Job::Undo() {
  if (StaysInDoubt()) return;
  if (op_.answer.left.empty()) op_.answer.left = "rolled-back";
  EndSnapshot();
  op_.writer.reset();
  DropUnwantedImage();
  LetTcpGoOn(process_.init_pid, paths_.Dump() + "/" + kCriuFolder);
  (void)RemoveScratch(paths_.Dump());
  if (!op_.old_extents.empty()) holdings_.PutBack(std::move(op_.old_extents));
  op_.old_extents.clear();
  for (size_t i = 0; i < op_.old_placements.size() && i < holdings_.members.size(); ++i) {
    holdings_.members[i].placements = op_.old_placements[i];
  }
  Phase goal = BackTo();
  // Who has no processes any more has nothing that the others wait for.
  if (goal == Phase::kAbsent || TaskAlive()) {
    GiveUpForTheWayBack();
    TryBack(goal);
  }
  if (!TaskAlive() && phase_ != Phase::kAbsent) {
    op_.answer.left = "lost";
    TaskEnded();
  } else if (phase_ != goal && goal == Phase::kRunning) {
    // The program cannot run on, for instance because its device is gone: nothing is lost while it is held.
    TryBack(Phase::kHeld);
    op_.answer.left = phase_ == Phase::kHeld ? "paused" : "lost";
  } else if (goal == Phase::kHeld && phase_ == Phase::kHeld) {
    op_.answer.left = op_.request.verb == Verb::kResume || op_.goal != goal ? "paused" : "rolled-back";
  } else if (goal == Phase::kDrained) {
    op_.answer.left = "in-doubt";
  } else if (goal == Phase::kAbsent) {
    op_.answer.left = "unchanged";
  }
}

// Where the program was stopped, as its processes tell together.
void Job::FillActive() {
  Json& fields = op_.answer.fields;
  fields["active_bytes"] = holdings_.empty() ? op_.manifest.ActiveBytes() : holdings_.active_bytes();
  if (!op_.quiesced) return;
  fields["low_bytes"] = op_.quiesced->low_bytes;
  fields["high_bytes"] = op_.quiesced->high_bytes;
  fields["waited_ms"] = op_.quiesced->waited_ms;
  fields["at_low"] = op_.quiesced->at_low;
}

void Job::FillCheckpoint() {
  Json& fields = op_.answer.fields;
  ImageCounts counts = op_.writer->counts();
  uint64_t device = op_.manifest.DeviceBytes(), active = op_.manifest.ActiveBytes();
  fields["image"] = op_.image_id;
  fields["path"] = paths_.Image(op_.image_id);
  fields["device_bytes"] = device;
  FillActive();
  fields["active_bytes"] = active;
  // What an image would take that leaves nothing out and finds nothing again.
  fields["logical_bytes"] = counts.bytes - active + device;
  fields["image_bytes"] = counts.bytes;
  fields["zero_bytes"] = counts.zero_bytes;
  fields["deduplicated_bytes"] = counts.bytes - counts.zero_bytes - counts.new_bytes;
  fields["added_bytes"] = counts.added_bytes + counts.manifest_bytes;
  fields["other_ranks_bytes"] = counts.others_bytes;
  fields["copied_bytes"] = op_.saved->copied_bytes.load();
  fields["hashed_on_device_bytes"] = op_.saved->hashed_bytes;
  for (const std::string& note : op_.saved->notes) op_.answer.notes.push_back(note);
  fields["snapshot"] = op_.snapshot_place;
  fields["stopped"] = op_.request.stop;
}

void Job::FillAnswer() {
  Json& fields = op_.answer.fields;
  uint64_t total = Milliseconds(Clock::Real().Now() - op_.started_at);
  std::vector<int> gpus = record().gpus;
  switch (op_.request.verb) {
    case Verb::kPause:
      fields["residency"] = ResidencyName(residency_);
      fields["device_bytes"] = holdings_.bytes();
      FillActive();
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
      FillCheckpoint();
      fields["standstill_ms"] = Milliseconds(op_.standstill);
      fields["total_ms"] = total;
      return;
    case Verb::kRestore:
      fields["image"] = op_.image_id;
      FillRestore();
      fields["init_pid"] = process_.init_pid;
      fields["pid"] = process_.pid;
      fields["total_ms"] = total;
      fields["gpus"] = gpus;
      for (const ManifestFile& file : op_.manifest.files)
        if (file.path == op_.manifest.log) fields["log_length"] = file.size;
      return;
    case Verb::kMigrate:
      fields["gpus"] = gpus;
      fields["device_bytes"] = op_.moved_bytes;
      fields["standstill_ms"] = Milliseconds(op_.standstill);
      return;
    default:
      return;
  }
}

const char* Job::StateName() const {
  if (phase_ == Phase::kRunning) return stranded_ ? "paused" : "running";
  if (phase_ == Phase::kAbsent) return "ended";
  return in_doubt_ ? "in-doubt" : "paused";
}

void Job::Report(const Status& status) {
  if (phase_ != Phase::kDrained) in_doubt_ = false;
  {
    std::lock_guard lock(mutex_);
    record_.error = status.ok() ? "" : std::string(status.message());
    if (op_.committed) record_.last_image = op_.image_id;
  }
  if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) guard_.Dismiss();
  if (status.ok()) FillAnswer();
  SetRecord(StateName());
  if (!status.ok() && op_.committed) op_.answer.notes.push_back("image " + op_.image_id + " is complete");
  for (const SetAside& aside : op_.set_aside) op_.answer.notes.push_back(Note(aside));
  Log(status.ok() ? LogLevel::kInfo : LogLevel::kError,
      std::string(VerbName(op_.request.verb)) + ": " + status.ToString() +
          (status.ok() ? "" : " [" + op_.answer.left + "]"));
}

}  // namespace stasis

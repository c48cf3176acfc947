// What a ghost tells its guardian, and how the guardian goes on as the ghost.
#include "ghost/child.h"
#include "ghost/criu.h"
#include "ghost/job.h"
#include "ghost/proc.h"
#include "ghost/restored.h"
#include "ghost/tcp_kernel.h"

namespace stasis {

Json Job::StateJson(std::optional<Step> step) const {
  Json set_aside = Json::array();
  for (const SetAside& aside : op_.set_aside) set_aside.push_back({aside.path, aside.size, aside.tail_path});
  return {{"phase", PhaseName(phase_)},
          {"step", step ? StepName(*step) : ""},
          {"goal", PhaseName(op_.goal)},
          {"bond", BondName(in_doubt_ ? Bond::kCast : op_.bond)},
          {"active", op_.active},
          {"residency", ResidencyName(residency_)},
          {"freeze", want_freeze_},
          {"restored", restored_},
          {"frozen", {FreezeKindName(frozen_.kind), frozen_.folder, frozen_.home, frozen_.root}},
          {"criu", criu_pid_},
          {"criu_start_time", criu_start_time_},
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
  if (!held()) return;
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
  Bond bond = Bond::kNone;
  known = known && FindBond(fields.String("bond"), &bond);
  bool active = fields.Bool("active");
  want_freeze_ = fields.Bool("freeze");
  restored_ = fields.Bool("restored");
  criu_pid_ = static_cast<pid_t>(fields.Number("criu", 1 << 22));
  criu_start_time_ = fields.Number("criu_start_time");
  RETURN_IF_ERROR(fields.Finish());
  if (!known) return Status(StatusCode::kCorrupt, "the guardian's state is unreadable");
  const Json& frozen = adopted.state["frozen"];
  FindFreezeKind(frozen.at(0).get<std::string>(), &frozen_.kind);
  frozen_.folder = frozen.at(1).get<std::string>();
  frozen_.home = frozen.at(2).get<std::string>();
  frozen_.root = frozen.at(3).get<pid_t>();
  ASSIGN_OR_RETURN(holdings_,
                   Holdings::Adopt(adopted.state["holdings"], std::move(adopted.fds), config_.name));
  if (holdings_.on_disk()) {
    Result<std::shared_ptr<stasis::Store>> store = OpenStore();
    if (store.ok()) holdings_.UseStore(*std::move(store));
  }
  untidy_ = true;  // what the other one was writing
  Log(LogLevel::kWarning, std::string("took over in phase ") + PhaseName(phase) + ", step " + step_name);
  phase_ = phase;
  op_.goal = goal;
  // This process may die as its predecessor did.
  op_.active = active;
  op_.taken_over = active;
  op_.bond = bond;
  RETURN_IF_ERROR(guard_.Start());
  RETURN_IF_ERROR(Publish(std::nullopt, true));
  Status status;
  if (phase == Phase::kDrained && bond == Bond::kCast) status = AdoptInDoubt();
  if (bond == Bond::kEnding) {
    status = EndTask(Duration::zero());
    if (status.ok()) phase_ = Phase::kAbsent;
  } else if (phase == Phase::kHeld && !active) {
    members_.resize(holdings_.members.size());
  } else if (!in_doubt_) {
    // The coordinator that led the operation takes this ghost for lost.
    if (bond == Bond::kTogether && goal == Phase::kRunning) goal = Phase::kHeld;
    status = Recover(goal, adopted.state);
    // A program that has run on by itself may have come to its end meanwhile.
    if (!status.ok() && !TaskAlive()) {
      TaskEnded();
      status = Status();
    }
  }
  op_ = Operation();
  gpu_.reset();
  if (phase_ == Phase::kRunning || phase_ == Phase::kAbsent) {
    guard_.Dismiss();
  } else {
    Status told = Publish(std::nullopt, true);
    if (status.ok()) status = std::move(told);
  }
  SetRecord(StateName());
  return status;
}

Status Job::AwaitLeftCriu(Phase goal) {
  if (criu_pid_ <= 0) return Status();
  Result<ProcStat> criu = ReadProcStat(criu_pid_);
  if (criu.status().code() == StatusCode::kNotFound) return Status();
  // Whether it works in the task is not known then.
  RETURN_IF_ERROR(criu.status());
  // The number may belong to somebody else by now.
  if (criu->start_time != criu_start_time_) return Status();
  // What a restore has made so far ends in any case.
  if (goal == Phase::kAbsent) return WaitProcess(criu_pid_, Deadline::Never());
  AwaitDump(criu_pid_, process_.init_pid);
  return Status();
}

Status Job::Recover(Phase goal, const Json& state) {
  RETURN_IF_ERROR(AwaitLeftCriu(goal));
  criu_pid_ = 0;
  for (const std::string& folder : {paths_.Dump(), paths_.Revive()}) {
    RETURN_IF_ERROR(EndCriu(folder + "/" + kCriuFolder, Deadline::After(kThawTime)));
    LetTcpGoOn(process_.init_pid, folder + "/" + kCriuFolder);
  }
  Sweep();
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
  RETURN_IF_ERROR(FindRealPhase(&goal));
  TryBack(goal);
  if (phase_ != goal && phase_ != Phase::kRunning) TryBack(Phase::kHeld);
  if (phase_ == Phase::kRunning) holdings_.Clear();
  return Status();
}

// Every member says itself where it stands; those that run have nothing to be undone.
Status Job::FindRealPhase(Phase* goal) {
  members_.clear();
  members_.resize(holdings_.members.size());
  phase_ = Phase::kDeaf;
  RETURN_IF_ERROR(Listen());
  std::map<TaskState, size_t> states;
  for (const auto& member : members_) ++states[member->hello().state];
  size_t running = states[TaskState::kRunning];
  if (running == members_.size() && (*goal == Phase::kRunning || running != 0)) {
    members_.clear();
    phase_ = Phase::kRunning;
    return Status();
  }
  // What runs is not paused again, so the others are to follow it. Each step up takes those that need it.
  if (running != 0) *goal = Phase::kRunning;
  phase_ = Phase::kStored;
  if (*goal == Phase::kRunning) return Status();
  if (states[TaskState::kQuiesced] != 0) phase_ = Phase::kQuiesced;
  if (states[TaskState::kDrained] != 0) phase_ = Phase::kDrained;
  return Status();
}

}  // namespace stasis

// What the ranks of a job do together or not at all, and what becomes of a rank that hears nothing more.
#include <algorithm>

#include "ghost/job.h"

namespace stasis {
namespace {

// What all ranks have done before any goes on behind this step.
bool FindVote(Step step, Verb verb, Phase goal, VotePoint* point) {
  switch (step) {
    case Step::kQuiesce:
      *point = VotePoint::kDrained;
      return true;
    case Step::kFreeze:
      *point = VotePoint::kHeld;
      return verb == Verb::kPause;
    case Step::kMove:
      *point = VotePoint::kHeld;
      return verb == Verb::kMigrate && goal == Phase::kHeld;
    case Step::kDump:
      *point = VotePoint::kDumped;
      return true;
    case Step::kCommit:
      *point = VotePoint::kCommitted;
      return true;
    // Of a resume, in place of all that the others have to take back.
    case Step::kGiveUp:
      *point = VotePoint::kRevived;
      return verb == Verb::kResume;
    case Step::kAttach:
      *point = VotePoint::kRevived;
      return true;
    case Step::kRejoin:
      *point = VotePoint::kJoined;
      return true;
    default:
      return false;
  }
}

constexpr const char* kBondNames[] = {"none", "cast", "together", "over", "ending"};

}  // namespace

const char* BondName(Bond bond) { return kBondNames[static_cast<size_t>(bond)]; }

bool FindBond(const std::string& name, Bond* bond) {
  for (size_t i = 0; i < std::size(kBondNames); ++i) {
    if (name != kBondNames[i]) continue;
    *bond = static_cast<Bond>(i);
    return true;
  }
  return false;
}

// --- the way forth

Status Job::VoteAfter(Step step) {
  VotePoint point;
  if (DecidesAlone() || !FindVote(step, op_.request.verb, op_.goal, &point)) return Status();
  return Vote(point);
}

Status Job::Vote(VotePoint point) {
  if (DecidesAlone()) return Status();
  if (point == VotePoint::kDrained) RETURN_IF_ERROR(Hold());
  RETURN_IF_ERROR(FaultBefore(point));
  if (op_.progress) op_.progress->Begin(std::string("wait for the other ranks: ") + VotePointName(point));
  const Deadline patience = Deadline::After(op_.request.patience);
  Status status = coordination_->Vote(point, point == VotePoint::kDrained ? op_.still_by : patience);
  RETURN_IF_ERROR(TakeVote(point, std::move(status)));
  return FaultAfter(point);
}

Status Job::TakeVote(VotePoint point, Status status) {
  const bool lost = !status.ok() && CoordinatorLost();
  if (lost && point == VotePoint::kJoined) {
    // Its communicators are there, so those of all whom they reach are.
    op_.answer.notes.push_back("the coordinator of the job is gone; the task runs on");
    status = Status();
  }
  if (point == VotePoint::kDrained) {
    const bool in_doubt = lost && status.code() == StatusCode::kPeerDied;
    if (!status.ok() && !in_doubt) op_.bond = Bond::kNone;
    if (status.ok()) op_.bond = Bond::kTogether;
  }
  if (point == VotePoint::kJoined && status.ok()) op_.bond = Bond::kOver;
  // An image that may be one of the job's stays.
  if (point == VotePoint::kCommitted && !status.ok() && !lost) op_.unwanted = true;
  if (!status.ok())
    return lost ? status.WithContext(std::string("vote '") + VotePointName(point) + "'") : status;
  if (point == VotePoint::kCommitted && op_.request.stop) NoteEnding();
  return guard_.running() ? Publish(std::nullopt, false) : Status();
}

// The job's image counts, so the task ends, whoever its ghost is.
void Job::NoteEnding() {
  op_.bond = Bond::kEnding;
  {
    std::lock_guard lock(mutex_);
    record_.last_image = op_.image_id;
  }
  SetRecord("checkpointing");
}

// From now on the processes stand still even without this ghost, and whoever follows it knows why.
Status Job::Hold() {
  if (!guard_.running()) RETURN_IF_ERROR(guard_.Start());
  op_.bond = Bond::kCast;
  Status status = Publish(std::nullopt, true);
  if (status.ok()) status = HoldMembers();
  if (!status.ok()) op_.bond = Bond::kNone;
  return status;
}

// --- the way back

// What the coordinator is told, in place of what it has led to.
Status Job::WhyItFailed(Status status) const {
  if (DecidesAlone() || CoordinatorLost()) return status;
  if (op_.goal != Phase::kAbsent && phase_ != Phase::kAbsent && !TaskAlive())
    return Status(StatusCode::kPeerDied, "the task has ended");
  // Starting over alone would leave the others behind.
  const bool newcomer = op_.goal == Phase::kRunning && op_.members != 0 && MembersNow() > op_.members;
  if (newcomer && status.code() != StatusCode::kUnavailable)
    return Status(
        StatusCode::kUnavailable,
        "a process of the task has begun to use devices in the meantime: " + std::string(status.message()));
  return status;
}

// Where a failure leads back to.
Phase Job::BackTo() const {
  // Without a coordinator nobody makes communicators again; but nothing is lost while the task is held.
  const bool bound = op_.bond == Bond::kTogether && op_.goal == Phase::kRunning;
  return bound && CoordinatorLost() ? Phase::kHeld : op_.goal;
}

// The others have given their communicators up, so that all make them again.
void Job::GiveUpForTheWayBack() {
  if (op_.bond != Bond::kTogether || phase_ != Phase::kDrained) return;
  op_.undoing = true;
  Status status = Take(Step::kGiveUp);
  if (!status.ok()) Log(LogLevel::kError, "undo: give up: " + status.ToString());
}

Status Job::VoteOnTheWayBack(Step step) {
  if (step != Step::kRejoin || op_.bond != Bond::kTogether) return Status();
  return Vote(VotePoint::kJoined);
}

void Job::DropUnwantedImage() {
  if (!std::exchange(op_.unwanted, false)) return;
  Status status = RemoveImage(*op_.store, config_.name, op_.image_id);
  untidy_ = true;
  op_.committed = false;
  if (!status.ok()) op_.answer.notes.push_back("image " + op_.image_id + " is left: " + status.ToString());
}

// --- in doubt

bool Job::StaysInDoubt() {
  if (op_.bond != Bond::kCast || phase_ != Phase::kDrained) return false;
  in_doubt_ = true;
  op_.answer.left = "in-doubt";
  if (config_.rank) op_.answer.remedy = "resume the job: stasis resume " + config_.rank->job;
  return true;
}

Status Job::BeginInDoubt(std::vector<Step>* plan) {
  const Request& request = op_.request;
  if (config_.rank) op_.answer.remedy = "resume the job: stasis resume " + config_.rank->job;
  if (request.verb != Verb::kResume)
    return Status(StatusCode::kFailedPrecondition,
                  "task " + config_.name +
                      " stands still, and does not know whether the other ranks of its "
                      "job were told to give their communicators up");
  if (request.in_doubt == InDoubt::kNone)
    return Status(StatusCode::kFailedPrecondition,
                  "task " + config_.name + " is in doubt, and is not told what the others were told");
  if (!request.gpus.empty())
    return Status(StatusCode::kInvalidArgument, "a rank in doubt resumes where it is");
  RETURN_IF_ERROR(ConnectHeld());
  const bool go_on = request.in_doubt == InDoubt::kGoOn;
  op_.goal = go_on ? Phase::kDrained : Phase::kHeld;
  *plan = go_on ? std::vector<Step>{Step::kReopen}
                : std::vector<Step>{Step::kGiveUp, Step::kRejoin, Step::kReopen};
  return Status();
}

// A ghost that died may have cast its vote. Before that all processes were held.
Status Job::AdoptInDoubt() {
  members_.clear();
  members_.resize(holdings_.members.size());
  phase_ = Phase::kDrained;
  RETURN_IF_ERROR(ConnectHeld());
  in_doubt_ = std::all_of(members_.begin(), members_.end(),
                          [](const auto& member) { return member->hello().state == TaskState::kDrained; });
  return Status();
}

}  // namespace stasis

// The steps in which the processes of the task wait for each other, and for those of the other ranks' tasks:
// what is asked of them is asked of all at the same time.
#include <algorithm>

#include "ghost/job.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

// Answers that need no waiting for the program.
constexpr std::chrono::seconds kPromptTime(30);
// For the libraries to end what they have made.
constexpr std::chrono::seconds kGiveUpTime(120);
// For all ranks to make their communicators together.
constexpr std::chrono::seconds kRejoinTime(60);
// So long before the deadline of a pause a process gives up by itself, and says what it has waited for. By
// the deadline all run on, whether one has answered or not.
constexpr std::chrono::milliseconds kMostReserve(500);
// What a process may take beyond the time for its communicators.
constexpr std::chrono::seconds kGrace(5);
// A round of the search for the cut ends when nothing has moved for so long: what one process waits for
// another one learns in the next round.
constexpr std::chrono::milliseconds kQuiet(20);

uint32_t Milliseconds(Duration time) {
  auto count = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  return static_cast<uint32_t>(std::clamp<decltype(count)>(count, 0, UINT32_MAX));
}

// Of what is left until the deadline of a pause that takes `whole`.
uint32_t TimeOfProcesses(Duration left, Duration whole) {
  return Milliseconds(left - std::min<Duration>(whole / 10, kMostReserve));
}

std::vector<std::byte> Encode(uint32_t value) {
  PayloadWriter out;
  out.U32(value);
  return out.Take();
}

}  // namespace

std::vector<Member*> Job::AllMembers() const {
  std::vector<Member*> all;
  for (const auto& member : members_) all.push_back(member.get());
  return all;
}

// Who has ended is in no state. On the way back others may go on without it; else it is missed by name.
Result<std::vector<Member*>> Job::MembersIn(TaskState state) {
  std::vector<Member*> there;
  for (const auto& member : members_) {
    if (HasEnded(member->pid())) {
      if (op_.undoing) continue;
      return Status(StatusCode::kPeerDied, "process " + Named(member->pid()) + " of the task has ended");
    }
    ASSIGN_OR_RETURN(TaskState now, StateOf(*member));
    if (now == state) there.push_back(member.get());
  }
  return there;
}

Status Job::AskAll(const std::vector<Member*>& asked, TaskMessage type, const std::vector<std::byte>& payload,
                   const Deadline& deadline, const CancelFlag* cancel, std::vector<Message>* answers) {
  Status first;
  auto note = [&](const Member& member, Status status) {
    if (status.ok() || !first.ok()) return;
    first = std::move(status);
    if (asked.size() > 1) first = std::move(first).WithContext("process " + Named(member.pid()));
  };
  std::vector<Member*> heard;
  for (Member* member : asked) {
    Status sent = member->Send(type, payload, {}, deadline);
    if (sent.ok()) heard.push_back(member);
    note(*member, std::move(sent));
  }
  for (Member* member : heard) {
    std::vector<TaskBlocker> blockers;
    Result<Message> answer = member->Receive(deadline, cancel, &blockers);
    NoteBlockers(*member, blockers);
    note(*member, answer.status());
    if (answer.ok() && answers != nullptr) answers->push_back(*std::move(answer));
  }
  return first;
}

void Job::NoteBlockers(const Member& member, const std::vector<TaskBlocker>& found) {
  std::vector<Blocker> described = DescribeBlockers(member.pid(), found);
  op_.answer.blockers.insert(op_.answer.blockers.end(), described.begin(), described.end());
}

Status Job::Quiesce() {
  RETURN_IF_ERROR(ConnectMembers());
  op_.stopped_at = op_.asked_at = Clock::Real().Now();
  Status status = StandStill();
  if (status.ok()) return Status();
  if (status.code() == StatusCode::kTimeout) {
    op_.answer.remedy = "try again later, or with a longer --deadline";
  }
  // The end of the connections opens the gates.
  members_.clear();
  holdings_.Clear();
  return status;
}

Status Job::StandStill() {
  // The deadline is for standing still, after the waiting.
  op_.still_by = Deadline::After(op_.request.wait_low + op_.request.deadline);
  for (bool again = false;; again = true) {
    RETURN_IF_ERROR(FindCut(again));
    uint32_t time = TimeOfProcesses(op_.still_by.Remaining(), op_.request.deadline);
    std::vector<Message> answers;
    Status drained =
        AskAll(AllMembers(), TaskMessage::kDrain, Encode(time), op_.still_by, &cancel_, &answers);
    if (drained.ok()) {
      RETURN_IF_ERROR(CheckCut(answers));
      break;
    }
    // A capture has begun that only the program can end, which may change what the other ranks wait for.
    if (drained.code() != StatusCode::kUnavailable || !DecidesAlone()) return drained;
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    RETURN_IF_ERROR(
        GreetAgain(*members_[i], &holdings_.members[i]).WithContext("process " + Named(members_[i]->pid())));
  }
  return Status();
}

// All gates close before anybody is waited for.
Status Job::FindCut(bool again) {
  TaskClose close;
  const Duration whole = op_.request.deadline;
  close.deadline_ms = TimeOfProcesses(again ? op_.still_by.Remaining() : whole, whole);
  close.wait_low_ms = again ? 0 : Milliseconds(op_.request.wait_low);
  std::vector<std::byte> payload = stasis::Encode(close);
  TaskMessage type = TaskMessage::kClose;
  for (;;) {
    std::vector<Message> answers;
    RETURN_IF_ERROR(AskAll(AllMembers(), type, payload, op_.still_by, &cancel_, &answers));
    if (op_.request.pause_protocol == PauseProtocol::kTimeout) return Status();
    std::vector<CutReport> reports;
    for (const Message& answer : answers) {
      ASSIGN_OR_RETURN(CutReport report, DecodeCutReport(answer.payload));
      reports.push_back(std::move(report));
    }
    Result<Coordination::CutAnswer> cut = Decisions().Cut(reports, op_.still_by);
    if (!cut.ok()) {
      for (size_t i = 0; i < reports.size(); ++i) NoteBlockers(*members_[i], reports[i].missing);
      return cut.status();
    }
    if (cut->settled) return Status();
    RETURN_IF_ERROR(cancel_.Check());
    type = TaskMessage::kCut;
    payload = stasis::Encode(TaskCut{TimeOfProcesses(op_.still_by.Remaining(), whole), Milliseconds(kQuiet),
                                     std::move(cut->targets)});
  }
}

// Without a search for the cut the devices may be at rest in the middle of something: half of a message that
// is kept until the other half comes, a communicator that some ranks have and others do not.
Status Job::CheckCut(const std::vector<Message>& drained) {
  if (op_.request.pause_protocol != PauseProtocol::kTimeout) return Status();
  std::vector<CutReport> reports;
  for (const Message& answer : drained) {
    ASSIGN_OR_RETURN(CutReport report, DecodeCutReport(answer.payload));
    reports.push_back(std::move(report));
  }
  ASSIGN_OR_RETURN(Coordination::CutAnswer cut, Decisions().Cut(reports, op_.still_by));
  if (cut.settled) return Status();
  return Status(StatusCode::kTimeout, "the ranks have come to rest where some wait for others");
}

Status Job::HoldMembers() {
  return AskAll(AllMembers(), TaskMessage::kHold, {}, Deadline::After(kPromptTime), nullptr, nullptr);
}

Status Job::GiveUp() {
  ASSIGN_OR_RETURN(std::vector<Member*> asked, MembersIn(TaskState::kDrained));
  std::vector<Message> answers;
  RETURN_IF_ERROR(AskAll(asked, TaskMessage::kGiveUp, {}, Deadline::After(kGiveUpTime), nullptr, &answers));
  if (op_.undoing) return Status();
  std::vector<TaskQuiesced> quiesced;
  for (const Message& answer : answers) {
    ASSIGN_OR_RETURN(TaskQuiesced each, DecodeTaskQuiesced(answer.payload));
    quiesced.push_back(each);
  }
  NoteQuiesced(quiesced);
  return Status();
}

// The standstill begins with the first process that stands still.
void Job::NoteQuiesced(const std::vector<TaskQuiesced>& answers) {
  if (answers.empty()) return;
  TaskQuiesced all;
  all.at_low = true;
  uint32_t first = UINT32_MAX;
  for (const TaskQuiesced& each : answers) {
    all.active_bytes += each.active_bytes;
    all.low_bytes += each.low_bytes;
    all.high_bytes += each.high_bytes;
    all.waited_ms = std::max(all.waited_ms, each.waited_ms);
    all.at_low = all.at_low && each.at_low;
    first = std::min(first, each.waited_ms);
  }
  // What a process says of itself moves no clock of ours.
  op_.stopped_at =
      std::min<MonotonicTime>(op_.asked_at + std::chrono::milliseconds(first), Clock::Real().Now());
  op_.quiesced = all;
}

Status Job::Rejoin() {
  Status status = RejoinOnce();
  // What the processes' libraries hide on a device is not held: the snapshot may have taken its place.
  if (status.code() == StatusCode::kResourceExhausted && DecidesAlone() && op_.snapshot &&
      !op_.snapshot->DeviceBytes().empty()) {
    Status given_up = op_.snapshot->GiveUpDevice();
    (void)given_up;  // told when the snapshot is written
    status = RejoinOnce();
  }
  return status;
}

// Where it fails, no process has made any.
Status Job::RejoinOnce() {
  ASSIGN_OR_RETURN(std::vector<Member*> asked, MembersIn(TaskState::kQuiesced));
  std::vector<Message> answers;
  RETURN_IF_ERROR(AskAll(asked, TaskMessage::kComms, {}, Deadline::After(kPromptTime), nullptr, &answers));
  std::vector<CommReport> comms;
  for (const Message& answer : answers) {
    ASSIGN_OR_RETURN(std::vector<CommReport> some, DecodeCommReports(answer.payload));
    comms.insert(comms.end(), some.begin(), some.end());
  }
  CommRejoin rejoin;
  rejoin.deadline_ms = Milliseconds(kRejoinTime);
  ASSIGN_OR_RETURN(rejoin.ids, Decisions().Join(comms, Deadline::After(op_.request.patience)));
  RETURN_IF_ERROR(Fault(FaultPoint::kRejoinInside));
  Status status = AskAll(asked, TaskMessage::kRejoin, stasis::Encode(rejoin),
                         Deadline::After(kRejoinTime + kGrace), nullptr, nullptr);
  if (status.ok()) return status;
  // Those that have made theirs wait for peers that have not.
  std::vector<Member*> made;
  for (Member* member : asked) {
    Result<TaskState> state = StateOf(*member);
    if (state.ok() && *state == TaskState::kDrained) made.push_back(member);
  }
  Status again = AskAll(made, TaskMessage::kGiveUp, {}, Deadline::After(kGiveUpTime), nullptr, nullptr);
  if (!again.ok()) Log(LogLevel::kError, "give communicators up again: " + again.ToString());
  return status;
}

}  // namespace stasis

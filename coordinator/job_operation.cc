#include "coordinator/job_operation.h"

#include <poll.h>

#include <algorithm>
#include <random>

#include "base/files.h"
#include "coordinator/job_result.h"
#include "coordinator/moved_mark.h"

namespace stasis {
namespace {

// How long an operation whose coordinator is gone may take to come to its end.
constexpr Duration kEndTime = std::chrono::seconds(60);
constexpr Duration kLookAgain = std::chrono::milliseconds(50);
constexpr Duration kFirstBackOff = std::chrono::milliseconds(100), kLongestBackOff = std::chrono::seconds(5);
constexpr Duration kCancelTime = std::chrono::seconds(60);

int64_t Milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

bool IsPause(JobRequest::Verb verb) {
  return verb == JobRequest::Verb::kPause || verb == JobRequest::Verb::kCheckpoint ||
         verb == JobRequest::Verb::kMigrate;
}

// All ranks run on as if nothing had been, for a reason that may be gone the next time.
bool WorthAnother(const StarOutcome& outcome) {
  StatusCode code = outcome.failure.code();
  if (code != StatusCode::kTimeout && code != StatusCode::kUnavailable) return false;
  return std::all_of(outcome.ranks.begin(), outcome.ranks.end(), [](const RankOutcome& rank) {
    std::string left = LeftOf(rank);
    return left == "rolled-back" || left == "unchanged";
  });
}

// A rank's own share of a node's devices. It may have used others where it was, so that what it uses is named
// and not where each that it sees shall be.
std::vector<int> DevicesOf(const JobNode& node, int local_rank) {
  if (node.gpus.empty()) return {local_rank};
  size_t each = node.gpus.size() / static_cast<size_t>(node.ranks);
  auto first = node.gpus.begin() + static_cast<ptrdiff_t>(each * static_cast<size_t>(local_rank));
  return {first, first + static_cast<ptrdiff_t>(each)};
}

}  // namespace

const char* JobVerbName(JobRequest::Verb verb) {
  switch (verb) {
    case JobRequest::Verb::kPause:
      return "pause";
    case JobRequest::Verb::kResume:
      return "resume";
    case JobRequest::Verb::kCheckpoint:
      return "checkpoint";
    case JobRequest::Verb::kRestore:
      return "restore";
    case JobRequest::Verb::kMigrate:
      return "migrate";
    case JobRequest::Verb::kCancel:
      return "cancel";
  }
  return "unknown";
}

Json JobOperation::Failed(const Status& status, const std::string& remedy) const {
  return FailureJson(JobVerbName(request_.verb), status, remedy);
}

Json JobOperation::Run(const JobRequest& request) {
  request_ = request;
  Json result;
  bool cancel = request_.verb == JobRequest::Verb::kCancel;
  if (cancel && !request_.whole_job) {
    result = GiveUpOperation();
  } else if (Result<Fd> lock = LockJob(place_.run_dir, record_.name); lock.ok() || cancel) {
    if (lock.ok()) lock_ = *std::move(lock);
    images_ = std::make_unique<JobImages>(place_.state_dir, record_);
    result = RunLocked();
  } else {
    result =
        Failed(lock.status(), "wait for it, or give it up with: stasis cancel --operation " + record_.name);
  }
  star_.reset();
  lock_.Reset();
  result["job"] = record_.name;
  return result;
}

Result<std::vector<RankStand>> JobOperation::AwaitRest() {
  ASSIGN_OR_RETURN(lock_, LockJob(place_.run_dir, record_.name));
  Status stood = Reach();
  if (stood.ok()) stood = AwaitStands();
  star_.reset();
  lock_.Reset();
  if (!stood.ok()) return stood;
  return stands_;
}

std::vector<GhostPlace> JobOperation::Places() const {
  std::vector<GhostPlace> places;
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    places.push_back(
        {record_.TaskOf(rank), place_.state_dir, place_.run_dir, place_.ghost, record_.NodeOf(rank).through});
  }
  return places;
}

Status JobOperation::Reach() {
  Star::Options options;
  options.silence = request_.silence;
  options.interrupt = watcher_.interrupt;
  options.on_event = watcher_.on_event;
  star_ = std::make_unique<Star>(Places(), options);
  return star_->Connect();
}

bool JobOperation::Ended(int rank) const {
  return HasEnded(place_.state_dir + "/tasks/" + record_.TaskOf(rank));
}

Result<std::vector<RankStand>> JobOperation::AskStands() {
  Meeting::Options options;
  options.ranks = record_.ranks();
  Meeting meeting(options);
  StarOutcome outcome =
      star_->Run(std::vector<Json>(static_cast<size_t>(record_.ranks()), {{"verb", "status"}}), meeting);
  if (!outcome.failure.ok()) return outcome.failure;
  std::vector<RankStand> stands;
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    RankStand stand = StandOf(outcome.ranks[static_cast<size_t>(rank)].result);
    stands.push_back(stand != RankStand::kBusy && Ended(rank) ? RankStand::kEnded : stand);
  }
  return stands;
}

// Ranks whose coordinator was lost come to an end by themselves; no event tells when.
Status JobOperation::AwaitStands() {
  Deadline deadline = Deadline::After(kEndTime);
  for (;;) {
    ASSIGN_OR_RETURN(stands_, AskStands());
    std::vector<int> busy = RanksAt(stands_, RankStand::kBusy);
    if (busy.empty()) return Status();
    if (deadline.Expired()) {
      return Status(StatusCode::kFailedPrecondition,
                    "an operation on " + RanksText(busy) + " of job " + record_.name + " is still running");
    }
    pollfd nothing{-1, 0, 0};
    (void)poll(&nothing, 1, Deadline::After(kLookAgain).PollTimeout());
  }
}

// Nothing makes a rank run here that runs elsewhere, or may.
Json JobOperation::RefuseIfMoved() const {
  if (request_.verb != JobRequest::Verb::kRestore && request_.verb != JobRequest::Verb::kResume)
    return nullptr;
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    std::string remedy, task = record_.TaskOf(rank);
    Status here = RefuseMoved(task, place_.state_dir + "/tasks/" + task, &remedy);
    if (!here.ok()) return Failed(here, remedy);
  }
  return nullptr;
}

Json JobOperation::RunLocked() {
  if (Json moved = RefuseIfMoved(); !moved.is_null()) return moved;
  if (request_.verb == JobRequest::Verb::kRestore) return RestoreAll();
  if (request_.verb == JobRequest::Verb::kCancel) return CancelAll();
  return MoveAll();
}

Json JobOperation::RequestOf(int rank) const {
  Json request = request_.fields;
  request["verb"] = JobVerbName(request_.verb);
  request["job"] = {{"name", record_.name}, {"rank", rank}, {"ranks", record_.ranks()}};
  if (request_.verb == JobRequest::Verb::kCancel) return request;
  request["deadline_ms"] = Milliseconds(request_.deadline);
  if (IsPause(request_.verb)) request["pause_protocol"] = request_.cut ? "cut" : "timeout";
  if (request_.wait_low > Duration::zero()) request["wait_low_ms"] = Milliseconds(request_.wait_low);
  if (request_.stop) request["stop"] = true;
  if (!request_.gpus.empty()) request["gpus"] = request_.gpus;
  return request;
}

std::vector<Json> JobOperation::SameForAll() const {
  std::vector<Json> requests;
  for (int rank = 0; rank < record_.ranks(); ++rank) requests.push_back(RequestOf(rank));
  return requests;
}

Status JobOperation::BeforeGo(VotePoint point) {
  if (point != VotePoint::kCommitted) return Status();
  ASSIGN_OR_RETURN(JobImage image, images_->Commit());
  job_image_ = image.id;
  return Status();
}

// Where no rank was told to give anything up, those in doubt need nothing but to be let go.
Status JobOperation::PrepareResume(std::vector<Json>* requests) {
  bool together = !RanksAt(stands_, RankStand::kPaused).empty();
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    Json& request = (*requests)[static_cast<size_t>(rank)];
    RankStand stand = stands_[static_cast<size_t>(rank)];
    if (stand == RankStand::kRunning) request = nullptr;
    if (stand != RankStand::kInDoubt) continue;
    request["in_doubt"] = together ? "give-up" : "go-on";
    request.erase("gpus");
  }
  return Status();
}

Status JobOperation::Prepare(std::vector<Json>* requests, Meeting::Options* options, std::string* remedy) {
  options->ranks = record_.ranks();
  options->before_go = [this](VotePoint point) { return BeforeGo(point); };
  *requests = SameForAll();
  if (request_.verb == JobRequest::Verb::kResume) {
    RETURN_IF_ERROR(CheckResumable(record_.name, stands_, remedy));
    return PrepareResume(requests);
  }
  RETURN_IF_ERROR(CheckTogether(record_.name, stands_, request_.verb != JobRequest::Verb::kPause, remedy));
  bool paused = stands_[0] == RankStand::kPaused;
  if (!paused) options->drained_within = request_.deadline + request_.wait_low;
  if (request_.verb == JobRequest::Verb::kPause || paused) options->last = VotePoint::kHeld;
  if (request_.verb == JobRequest::Verb::kCheckpoint) options->last = VotePoint::kCommitted;
  return Status();
}

// Pause, checkpoint, migrate and resume.
Json JobOperation::MoveAll() {
  if (Status reached = Reach(); !reached.ok()) return Failed(reached);
  if (Status stood = AwaitStands(); !stood.ok()) return Failed(stood);
  std::vector<Json> requests;
  Meeting::Options options;
  std::string remedy;
  if (Status ready = Prepare(&requests, &options, &remedy); !ready.ok()) return Failed(ready, remedy);
  Result<int> orphans = images_->RemoveOrphans();
  if (!orphans.ok()) return Failed(orphans.status());
  Json result = RunAttempts(requests, options);
  if (*orphans > 0) {
    AddNote(
        "images of single ranks that an earlier operation has left were removed: " + std::to_string(*orphans),
        &result);
  }
  return result;
}

Json JobOperation::RunAttempts(const std::vector<Json>& requests, Meeting::Options options) {
  int most = IsPause(request_.verb) && options.drained_within ? std::max(1, request_.attempts) : 1;
  MonotonicTime begun = Clock::Real().Now();
  for (int attempt = 1;; ++attempt) {
    MonotonicTime started = Clock::Real().Now();
    if (Status noted = images_->NoteBefore(); !noted.ok()) return Failed(noted);
    Meeting meeting(options);
    StarOutcome outcome = star_->Run(requests, meeting);
    if (!outcome.failure.ok() && attempt < most && WorthAnother(outcome)) {
      if (watcher_.on_attempt) watcher_.on_attempt(attempt, std::string(outcome.failure.message()));
      if (BackOff(attempt)) continue;
      outcome.failure = Status(StatusCode::kCancelled, "given up on request, between two attempts");
      outcome.failed_rank = -1;
    }
    Json result = Finished(outcome);
    if (IsPause(request_.verb)) {
      result["attempts"] = attempt;
      result["first_try"] = attempt == 1 && outcome.failure.ok();
      result["protocol"] = request_.cut ? "cut" : "timeout";
    }
    MonotonicTime ended = Clock::Real().Now();
    result["total_ms"] = Milliseconds(ended - begun);
    if (request_.verb == JobRequest::Verb::kPause) result["pause_ms"] = Milliseconds(ended - started);
    return result;
  }
}

// Longer each time, and never the same in two jobs. False when the operation is given up meanwhile.
bool JobOperation::BackOff(int attempt) {
  std::mt19937_64 random(request_.seed + static_cast<uint64_t>(attempt));
  Duration longest = std::min(kFirstBackOff * (1 << std::min(attempt - 1, 10)), kLongestBackOff);
  Duration wait =
      longest / 2 + Duration(static_cast<int64_t>(
                        random() % static_cast<uint64_t>(std::max<int64_t>(1, (longest / 2).count()))));
  Deadline deadline = Deadline::After(wait);
  Interrupt* interrupt = watcher_.interrupt;
  pollfd stop{interrupt ? interrupt->fd() : -1, POLLIN, 0};
  while (!deadline.Expired()) {
    if (poll(&stop, 1, deadline.PollTimeout()) > 0 && interrupt->Take()) return false;
  }
  return true;
}

// Of a rank whose ghost is gone another one tells, or the one that takes its place.
std::vector<std::string> JobOperation::Lefts(const StarOutcome& outcome) {
  std::vector<std::string> lefts;
  bool unknown = false;
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    lefts.push_back(LeftOf(outcome.ranks[static_cast<size_t>(rank)]));
    bool lost = request_.verb != JobRequest::Verb::kRestore && Ended(rank);
    if (lost) lefts.back() = "lost";
    unknown = unknown || lefts.back().empty();
  }
  if (!unknown || outcome.abandoned) return lefts;
  bool asked = Reach().ok() && AwaitStands().ok();
  for (size_t rank = 0; rank < lefts.size(); ++rank) {
    if (!lefts[rank].empty()) continue;
    RankStand stand = asked ? stands_[rank] : RankStand::kInDoubt;
    lefts[rank] = stand == RankStand::kRunning  ? "rolled-back"
                  : stand == RankStand::kPaused ? "paused"
                  : stand == RankStand::kEnded  ? "lost"
                                                : "in-doubt";
  }
  return lefts;
}

Json JobOperation::Finished(const StarOutcome& outcome) {
  const char* verb = JobVerbName(request_.verb);
  if (outcome.abandoned) {
    return Failed(Status(StatusCode::kCancelled, "no longer waiting; each rank ends what it does by itself"),
                  "`stasis resume " + record_.name + "` lets all of its ranks run on");
  }
  Json result = outcome.failure.ok() ? SuccessJson(verb, outcome.ranks) : FailureJson(verb, outcome);
  if (!job_image_.empty()) result["image"] = job_image_;
  if (outcome.failure.ok()) return result;
  bool some_ran =
      request_.verb == JobRequest::Verb::kResume && !RanksAt(stands_, RankStand::kRunning).empty();
  SetLeft(record_.name, Lefts(outcome), &result);
  // Those that run make no communicators again.
  if (some_ran) {
    result["remedy"] = "if that stays so: `stasis cancel " + record_.name + "`, then `stasis restore " +
                       record_.name + "` brings all back from the last image";
  }
  if (!job_image_.empty()) AddNote("image " + job_image_ + " is complete", &result);
  return result;
}

std::vector<Json> JobOperation::RestoreRequests(const JobImage& image) const {
  std::vector<Json> requests = SameForAll();
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    Json& request = requests[static_cast<size_t>(rank)];
    const JobNode& node = record_.NodeOf(rank);
    request["image"] = image.images[static_cast<size_t>(rank)];
    if (request_.gpus.empty() && !request_.nodes.empty())
      request["gpus"] = DevicesOf(node, record_.LocalRankOf(rank));
    int first = rank - record_.LocalRankOf(rank);
    for (int peer = first; peer < first + node.ranks; ++peer) {
      request["peers"].push_back(
          {{"task", record_.TaskOf(peer)}, {"image", image.images[static_cast<size_t>(peer)]}});
    }
  }
  return requests;
}

Json JobOperation::RestoreAll() {
  JobRecord before = record_;
  if (!request_.nodes.empty()) record_.nodes = request_.nodes;
  if (record_.ranks() != before.ranks()) {
    return Failed(Errorf(StatusCode::kInvalidArgument, "job %s has %d ranks, the nodes named are for %d",
                         record_.name.c_str(), before.ranks(), record_.ranks()));
  }
  Result<JobImage> image = images_->Find(request_.image);
  if (!image.ok()) return Failed(image.status());
  if (Status reached = Reach(); !reached.ok()) return Failed(reached);
  if (Status stood = AwaitStands(); !stood.ok()) return Failed(stood);
  std::string remedy;
  Status ended = CheckEnded(record_.name, stands_, &remedy);
  if (!ended.ok()) return Failed(ended, remedy);
  Result<int> orphans = images_->RemoveOrphans();
  if (!orphans.ok()) return Failed(orphans.status());
  // Before it is so: ranks that go on without us are found there.
  Status written = request_.nodes.empty() ? Status() : WriteJobRecord(place_.state_dir, record_);
  if (!written.ok()) return Failed(written);
  Meeting::Options options;
  options.ranks = record_.ranks();
  Json result = RunAttempts(RestoreRequests(*image), options);
  bool ok = result["ok"].get<bool>();
  if (!ok && !request_.nodes.empty()) written = WriteJobRecord(place_.state_dir, before);
  if (!written.ok()) AddNote("the record of the job: " + std::string(written.message()), &result);
  result["image"] = image->id;
  return result;
}

// Each rank for itself, whatever is done to it: what cannot be ended does not keep the others alive.
Json JobOperation::CancelAll() {
  if (Status reached = Reach(); !reached.ok()) return Failed(reached);
  Result<std::vector<RankStand>> stands = AskStands();
  std::vector<Json> requests = SameForAll();
  if (stands.ok() && AllAt(*stands, RankStand::kEnded)) {
    return Failed(Status(StatusCode::kFailedPrecondition, "job " + record_.name + " has ended"));
  }
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    if (stands.ok() && (*stands)[rank] == RankStand::kEnded) requests[rank] = nullptr;
  }
  Meeting::Options options;
  options.ranks = record_.ranks();
  Meeting meeting(options);
  StarOutcome outcome = star_->Run(requests, meeting);
  // Some may have ended by themselves meanwhile.
  if (outcome.failure.code() == StatusCode::kFailedPrecondition && AwaitStands().ok() &&
      AllAt(stands_, RankStand::kEnded)) {
    outcome.failure = Status();
  }
  Json result = Finished(outcome);
  result["what"] = "task";
  return result;
}

// By the side of the coordinator that leads it: that one hears of it through the ghosts.
Json JobOperation::GiveUpOperation() {
  int given_up = 0;
  for (const GhostPlace& place : Places()) {
    Result<Fd> ghost = FindGhost(place);
    if (!ghost.ok()) continue;
    RankLink link(*std::move(ghost));
    Deadline deadline = Deadline::After(kCancelTime);
    if (!link.Ask({{"verb", "cancel"}, {"what", "operation"}}).ok()) continue;
    Result<std::optional<RankLink::Arrival>> answer = link.Next();
    while (answer.ok() && !*answer && !deadline.Expired()) {
      pollfd wait{link.fd(), POLLIN, 0};
      (void)poll(&wait, 1, deadline.PollTimeout());
      answer = link.Next();
    }
    if (answer.ok() && *answer && Succeeded((*answer)->json)) ++given_up;
  }
  if (given_up == 0) {
    return Failed(Status(StatusCode::kFailedPrecondition, "no operation runs on job " + record_.name));
  }
  return {{"ok", true}, {"verb", "cancel"}, {"what", "operation"}, {"signal", 0}, {"notes", Json::array()}};
}

}  // namespace stasis

#include "coordinator/star.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "base/parallel.h"

namespace stasis {
namespace {

// Each is another process that ended; so many in a row are no coincidence.
constexpr int kMaxStarts = 4;
constexpr size_t kStartThreads = 8;
// A ghost that is well answers a question for its state at once.
constexpr int kProbesInSilence = 4;

std::string NameOf(int rank) { return "rank " + std::to_string(rank); }

// The status that a ghost's failure tells.
Status FailureOf(const Json& result) {
  auto text = [&](const char* key) {
    auto found = result.find(key);
    return found != result.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  return Status(StatusCodeOf(text("code")), text("message"));
}

}  // namespace

StatusCode StatusCodeOf(const std::string& name) {
  for (int code = 1; code < static_cast<int>(StatusCode::kInternal); ++code) {
    if (name == StatusCodeName(static_cast<StatusCode>(code))) return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

bool Succeeded(const Json& result) {
  auto ok = result.find("ok");
  return ok != result.end() && ok->is_boolean() && ok->get<bool>();
}

Status Star::Connect() {
  peers_.clear();
  peers_.resize(places_.size());
  return ParallelFor(places_.size(), std::min(places_.size(), kStartThreads), [this](size_t rank, size_t) {
    Result<RankLink> link = RankLink::Connect(places_[rank]);
    if (!link.ok()) return std::move(link).status().WithContext(NameOf(static_cast<int>(rank)));
    peers_[rank].link = *std::move(link);
    return Status();
  });
}

StarOutcome Star::Run(const std::vector<Json>& requests, Meeting& meeting) {
  requests_ = &requests;
  meeting_ = &meeting;
  outcome_ = StarOutcome();
  outcome_.ranks.resize(places_.size());
  interrupts_ = 0;
  for (int rank = 0; rank < ranks(); ++rank) Ask(rank);
  while (!meeting.all_ended() && !outcome_.abandoned) {
    Deadline silence = CheckSilence();
    if (meeting.deadline().Expired()) Deliver(meeting.TimeOver());
    Deadline next = silence.when() < meeting.deadline().when() ? silence : meeting.deadline();
    if (!meeting.all_ended()) Wait(next);
  }
  outcome_.failure = meeting.failure();
  outcome_.failed_rank = meeting.failed_rank();
  for (int rank = 0; rank < ranks(); ++rank)
    outcome_.ranks[static_cast<size_t>(rank)].passed = meeting.passed(rank);
  return std::move(outcome_);
}

void Star::Ask(int rank) {
  Peer& peer = At(rank);
  peer.taken = peer.done = false;
  peer.heard = peer.probed = Clock::Real().Now();
  if ((*requests_)[static_cast<size_t>(rank)].is_null()) {
    peer.done = true;
    return Deliver(meeting_->Ended(rank, Status()));
  }
  if (!peer.link) return Lose(rank, Status(StatusCode::kUnavailable, "there is no connection to its ghost"));
  Result<uint64_t> asked = peer.link->Ask((*requests_)[static_cast<size_t>(rank)]);
  if (!asked.ok()) return Lose(rank, asked.status());
  peer.request = *asked;
}

void Star::Wait(Deadline deadline) {
  std::vector<pollfd> waits;
  std::vector<int> owners;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (!At(rank).link) continue;
    short events = At(rank).link->sending() ? POLLIN | POLLOUT : POLLIN;
    waits.push_back({At(rank).link->fd(), events, 0});
    owners.push_back(rank);
  }
  int interrupt = options_.interrupt ? options_.interrupt->fd() : -1;
  waits.push_back({interrupt, POLLIN, 0});
  if (poll(waits.data(), waits.size(), deadline.PollTimeout()) <= 0) return;
  for (size_t i = 0; i < owners.size(); ++i) {
    if (waits[i].revents == 0 || !At(owners[i]).link) continue;
    Status sent = At(owners[i]).link->Flush();
    if (sent.ok() || waits[i].revents & POLLIN) {
      Read(owners[i]);
    } else {
      Lose(owners[i], sent);
    }
  }
  if (waits.back().revents != 0) TakeInterrupt();
}

void Star::Read(int rank) {
  while (At(rank).link) {
    Result<std::optional<RankLink::Arrival>> arrival = At(rank).link->Next();
    if (!arrival.ok()) return Lose(rank, arrival.status());
    if (!*arrival) return;
    At(rank).heard = Clock::Real().Now();
    Handle(rank, **std::move(arrival));
  }
}

void Star::Handle(int rank, RankLink::Arrival arrival) {
  Peer& peer = At(rank);
  if (arrival.request != peer.request || peer.done) return;  // the answer to a probe
  peer.taken = true;
  switch (arrival.kind) {
    case RankLink::Kind::kEvent:
      if (options_.on_event) options_.on_event(rank, arrival.json);
      return;
    case RankLink::Kind::kQuestion:
      return Deliver(meeting_->Take(rank, arrival.question));
    case RankLink::Kind::kResult:
      peer.done = true;
      Status status = Succeeded(arrival.json) ? Status() : FailureOf(arrival.json);
      outcome_.ranks[static_cast<size_t>(rank)].result = std::move(arrival.json);
      return Deliver(meeting_->Ended(rank, status));
  }
}

void Star::Deliver(const Meeting::Answers& answers) {
  for (const Meeting::Answer& answer : answers) {
    Peer& peer = At(answer.rank);
    if (!peer.link) continue;
    Status sent = peer.link->Answer(peer.request, answer.answer);
    if (!sent.ok()) Lose(answer.rank, sent);
  }
}

// A ghost that has ended before it began: nothing has been done, and the next one can be asked.
bool Star::StartAgain(int rank) {
  Peer& peer = At(rank);
  if (peer.taken || peer.done || peer.starts >= kMaxStarts) return false;
  peer.starts++;
  Result<RankLink> link = RankLink::Connect(places_[static_cast<size_t>(rank)]);
  if (!link.ok()) return false;
  peer.link = *std::move(link);
  Ask(rank);
  return true;
}

void Star::Lose(int rank, const Status& status) {
  Peer& peer = At(rank);
  peer.link.reset();
  if (peer.done) return;
  if (status.code() == StatusCode::kPeerDied && StartAgain(rank)) return;
  bool died = status.code() == StatusCode::kPeerDied;
  Status why = died ? Status(StatusCode::kPeerDied, "its ghost has ended") : status;
  peer.done = true;
  outcome_.ranks[static_cast<size_t>(rank)].status = why;
  Deliver(meeting_->Ended(rank, why));
}

void Star::TakeInterrupt() {
  if (!options_.interrupt->Take()) return;
  if (++interrupts_ > 1) {
    outcome_.abandoned = true;
    return;
  }
  for (Peer& peer : peers_) {
    if (peer.link && !peer.done) (void)peer.link->Ask({{"verb", "cancel"}, {"what", "operation"}});
  }
  Deliver(meeting_->Fail(Status(StatusCode::kCancelled, "given up on request")));
}

// Asks those of whom nothing is heard. Returns when to look again.
Deadline Star::CheckSilence() {
  Duration pause = options_.silence / kProbesInSilence;
  MonotonicTime next = MonotonicTime::max();
  for (int rank = 0; rank < ranks(); ++rank) {
    Peer& peer = At(rank);
    if (peer.link && !peer.done && Clock::Real().Now() >= peer.heard + options_.silence) Read(rank);
    if (!peer.link || peer.done) continue;
    MonotonicTime now = Clock::Real().Now();
    const bool silent = now >= peer.heard + options_.silence;
    // Whoever was stopped itself has heard nothing, and asked nobody.
    if (silent && peer.probed > peer.heard && now >= peer.probed + pause) {
      auto seconds = std::chrono::duration<double>(options_.silence).count();
      Lose(rank, Errorf(StatusCode::kTimeout,
                        "it has not answered for %g s: its ghost is stopped or its node is gone", seconds));
      continue;
    }
    if (now >= std::max(peer.heard, peer.probed) + pause) {
      peer.probed = now;
      (void)peer.link->Ask({{"verb", "status"}});
    }
    next = std::min(next, std::max(peer.heard, peer.probed) + pause);
    if (!silent) next = std::min(next, peer.heard + options_.silence);
  }
  return next == MonotonicTime::max() ? Deadline::Never() : Deadline::At(next);
}

}  // namespace stasis

#include "ghost/cut.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stasis {
namespace {

using Peers = std::map<int32_t, uint64_t>;

uint64_t CountOf(const Peers& counts, int32_t peer) {
  const auto found = counts.find(peer);
  return found == counts.end() ? 0 : found->second;
}

// What the reports say of one communicator.
struct Comm {
  int32_t size = 0;
  std::string made_by;
  std::map<int32_t, const RankReport*> living;
  std::set<int32_t> over;
};
using Comms = std::map<CommKey, Comm>;

Comms Gather(std::span<const CutReport> reports) {
  Comms comms;
  for (const CutReport& report : reports) {
    for (const RankReport& rank : report.ranks) {
      Comm& comm = comms[rank.comm];
      comm.size = std::max(comm.size, rank.size);
      comm.made_by = rank.made_by;
      if (rank.over) {
        comm.over.insert(rank.rank);
      } else {
        comm.living[rank.rank] = &rank;
      }
    }
  }
  std::erase_if(comms, [](const auto& entry) { return entry.second.living.empty(); });
  return comms;
}

void Raise(Peers* counts, int32_t peer, uint64_t count) {
  if (count > CountOf(*counts, peer)) (*counts)[peer] = count;
}

// Every rank has to issue as many collectives as any other, and the other half of each message.
RankCounts TargetOf(const Comm& comm, int32_t rank) {
  RankCounts target = comm.living.at(rank)->issued;
  for (const auto& [peer, report] : comm.living) {
    target.collectives = std::max(target.collectives, report->issued.collectives);
    Raise(&target.sends, peer, CountOf(report->issued.receives, rank));
    Raise(&target.receives, peer, CountOf(report->issued.sends, rank));
  }
  return target;
}

std::string RankOf(const Comm& comm, int32_t rank) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(comm.size) + " (" + comm.made_by + ")";
}

std::string WhatLacks(const Comm& comm, int32_t rank, const RankCounts& issued, const RankCounts& target) {
  if (issued.collectives < target.collectives)
    return "collective #" + std::to_string(issued.collectives + 1) + " of " + RankOf(comm, rank);
  for (const auto& [peer, count] : target.sends)
    if (CountOf(issued.sends, peer) < count)
      return "ncclSend to rank " + std::to_string(peer) + " of " + RankOf(comm, rank);
  for (const auto& [peer, count] : target.receives)
    if (CountOf(issued.receives, peer) < count)
      return "ncclRecv from rank " + std::to_string(peer) + " of " + RankOf(comm, rank);
  return {};
}

// What ranks lack that has been issued elsewhere; fills in the targets.
std::vector<std::string> SetRankTargets(const Comms& comms, CutTargets* targets) {
  std::vector<std::string> missing;
  for (const auto& [key, comm] : comms) {
    for (const auto& [rank, report] : comm.living) {
      RankTarget target = {key, rank, TargetOf(comm, rank)};
      std::string lacks = WhatLacks(comm, rank, report->issued, target.issued);
      if (!lacks.empty()) missing.push_back(std::move(lacks));
      targets->ranks.push_back(std::move(target));
    }
  }
  return missing;
}

// The communicator is whole: its ranks are all here, and hold the same.
std::vector<std::string> DifferentWindows(const Comms& comms, const std::set<CommKey>& ended) {
  std::vector<std::string> missing;
  for (const auto& [key, comm] : comms) {
    const auto& [first, report] = *comm.living.begin();
    for (const auto& [rank, other] : comm.living) {
      if (other->windows == report->windows || ended.count(key) != 0) continue;
      missing.push_back("ncclCommWindowDeregister of " +
                        RankOf(comm, other->windows > report->windows ? rank : first));
      break;
    }
  }
  return missing;
}

// A rank that is neither there nor over, or -1.
int32_t RankNowhere(const Comm& comm) {
  for (int32_t rank = 0; rank < comm.size; ++rank)
    if (comm.living.count(rank) == 0 && comm.over.count(rank) == 0) return rank;
  return -1;
}

std::set<CommKey> AsSet(const std::vector<CommKey>& keys) { return {keys.begin(), keys.end()}; }

// True when nothing is being made or ended.
bool SetMeetings(std::span<const CutReport> reports, CutTargets* targets) {
  std::set<CommKey> open, used;
  for (const CutReport& report : reports) {
    open.insert(report.meetings.begin(), report.meetings.end());
    used.insert(report.used.begin(), report.used.end());
    targets->making = targets->making || report.making;
  }
  targets->used.assign(used.begin(), used.end());
  targets->meetings.assign(open.begin(), open.end());
  return open.empty() && !targets->making;
}

// A communicator of which no process holds a rank, although all have been asked for it, cannot be carried:
// that rank may be anywhere. Empty: every one is whole.
Status FindOutsiders(const Comms& comms, const CutTargets& told, const std::set<CommKey>& ended,
                     bool* whole) {
  std::set<CommKey> asked;
  for (const RankTarget& target : told.ranks) asked.insert(target.comm);
  Status status;
  for (const auto& [key, comm] : comms) {
    const int32_t missing = RankNowhere(comm);
    if (missing < 0 || ended.count(key) != 0) continue;
    *whole = false;
    if (asked.count(key) != 0 && status.ok())
      status = Errorf(StatusCode::kUnsupported,
                      "NCCL: %s: rank %d of %d is in none of the processes that are paused",
                      comm.made_by.c_str(), missing, comm.size);
  }
  return status;
}

// A call by its bare name is one that a thread is inside of; but a group that is open lacks its end.
std::string Named(const TaskBlocker& blocker) {
  if (blocker.tid == 0 || blocker.call == "ncclGroupEnd" || blocker.call.find(' ') != std::string::npos)
    return blocker.call + " is missing";
  return "thread " + std::to_string(blocker.tid) + " is still in " + blocker.call;
}

std::set<CommKey> Ended(const Comms& comms) {
  std::set<CommKey> ended;
  for (const auto& [key, comm] : comms)
    if (!comm.over.empty()) ended.insert(key);
  return ended;
}

std::vector<uint32_t> EventsOf(std::span<const CutReport> reports) {
  std::vector<uint32_t> events;
  for (const CutReport& report : reports) events.push_back(report.events);
  return events;
}

}  // namespace

void CutSearch::Take(std::span<const CutReport> reports, MonotonicTime now) {
  const CutTargets told = std::exchange(targets_, {});
  missing_.clear();
  refused_ = {};
  const Comms comms = Gather(reports);
  const std::set<CommKey> ended = Ended(comms);
  targets_.ended.assign(ended.begin(), ended.end());

  bool still = true;
  for (const CutReport& report : reports) {
    still = still && report.settled;
    if (report.settled) continue;
    for (const TaskBlocker& blocker : report.missing) missing_.push_back(Named(blocker));
  }
  std::vector<std::string> behind = SetRankTargets(comms, &targets_);
  std::vector<std::string> windows = DifferentWindows(comms, ended);
  still = still && behind.empty() && windows.empty();
  still = SetMeetings(reports, &targets_) && still;
  if (missing_.empty())
    for (std::string& call : behind) missing_.push_back(call + " is missing");
  if (missing_.empty())
    for (std::string& call : windows) missing_.push_back(call + " is missing");

  bool whole = true;
  Status outsiders = FindOutsiders(comms, told, ended, &whole);
  if (still) refused_ = std::move(outsiders);
  // What has ended is known to everybody before anything is given up.
  settled_ = still && whole && ended == AsSet(told.ended);

  std::vector<uint32_t> events = EventsOf(reports);
  if (events != events_ || settled_) moved_ = now;
  events_ = std::move(events);
  if (now - moved_ < kStill) return;
  targets_.admit_all = true;
  moved_ = now;
}

std::string CutSearch::Missing() const {
  if (!refused_.ok()) return std::string(refused_.message());
  if (!missing_.empty()) {
    const size_t more = missing_.size() - 1;
    return missing_.front() + (more == 0 ? "" : " (and " + std::to_string(more) + " more)");
  }
  return targets_.meetings.empty() && !targets_.making ? "the ranks do not come to rest"
                                                       : "a communicator is being made or ended";
}

namespace {

struct Joined {
  const CommReport* any = nullptr;
  std::set<int32_t> ranks;
  std::string id;
};

std::string Numbers(const std::vector<int32_t>& ranks) {
  constexpr size_t kNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  return ranks.size() <= kNamed ? text : text + " and " + std::to_string(ranks.size() - kNamed) + " more";
}

Status CheckJoined(const Joined& joined) {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < joined.any->size; ++rank)
    if (joined.ranks.count(rank) == 0) missing.push_back(rank);
  if (missing.empty()) return {};
  return Errorf(StatusCode::kFailedPrecondition, "NCCL: %s: %s of %d %s missing", joined.any->made_by.c_str(),
                Numbers(missing).c_str(), joined.any->size, missing.size() == 1 ? "is" : "are");
}

}  // namespace

Result<std::vector<CommId>> JoinComms(std::span<const CommReport> reports, const std::set<CommKey>& ended) {
  std::map<CommKey, Joined> comms;
  for (const CommReport& report : reports) {
    if (ended.count(report.comm) != 0) continue;
    Joined& joined = comms[report.comm];
    if (joined.any == nullptr) joined.any = &report;
    if (joined.any->size != report.size)
      return Errorf(StatusCode::kFailedPrecondition, "NCCL: %s: processes say that it has %d and %d ranks",
                    report.made_by.c_str(), joined.any->size, report.size);
    for (int32_t rank : report.ranks)
      if (!joined.ranks.insert(rank).second)
        return Errorf(StatusCode::kFailedPrecondition, "NCCL: %s: two processes have rank %d of %d",
                      report.made_by.c_str(), rank, report.size);
    if (!report.id.empty()) joined.id = report.id;
  }
  std::vector<CommId> ids;
  for (auto& [key, joined] : comms) {
    RETURN_IF_ERROR(CheckJoined(joined));
    ids.push_back({key, std::move(joined.id)});
  }
  return ids;
}

}  // namespace stasis

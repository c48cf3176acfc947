#include "intercept/libraries/nccl_cut.h"

#include <algorithm>

namespace stasis::nccl {
namespace {

using Kind = Operation::Kind;

uint64_t CountOf(const std::map<int, uint64_t>& counts, int peer) {
  const auto found = counts.find(peer);
  return found == counts.end() ? 0 : found->second;
}

// +1 for what is issued, -1 for what turned out not to be.
void Count(const Operation& operation, int64_t by) {
  if (operation.rank == nullptr) return;
  Counters& issued = operation.rank->issued;
  const uint64_t step = static_cast<uint64_t>(by);
  if (operation.kind == Kind::kSend) issued.sends[operation.peer] += step;
  if (operation.kind == Kind::kReceive) issued.receives[operation.peer] += step;
  if (operation.kind != Kind::kCollective) return;
  if (by > 0) operation.rank->names[issued.collectives % operation.rank->names.size()] = operation.call;
  issued.collectives += step;
}

void Issue(const CutThreadPtr& thread, const Operation& operation) {
  Count(operation, 1);
  if (operation.rank != nullptr) operation.rank->driver = thread;
}

// One count for every rank that has something in the group.
void CountGroup(const std::vector<Operation>& group, int64_t by) {
  std::vector<CutRank*> ranks;
  for (const Operation& operation : group) {
    if (operation.rank == nullptr || operation.kind == Kind::kLocal) continue;
    if (std::find(ranks.begin(), ranks.end(), operation.rank.get()) == ranks.end())
      ranks.push_back(operation.rank.get());
  }
  for (CutRank* rank : ranks) rank->issued.groups += static_cast<uint64_t>(by);
}

bool EndsGroups(const CutThread& thread) { return thread.call.kind == Kind::kGroupEnd && thread.depth == 1; }

// The calls a thread is inside of: those of the group it ends, or the one.
template <typename Function>
void ForEachInside(const CutThread& thread, Function function) {
  if (!thread.inside) return;
  if (EndsGroups(thread)) {
    for (const Operation& operation : thread.group) function(operation);
  } else if (thread.depth == 0) {
    function(thread.call);
  }
}

std::vector<CutRankPtr> LivingRanksOf(const Clique& clique) {
  std::vector<CutRankPtr> living;
  for (const std::weak_ptr<CutRank>& weak : clique.ranks) {
    CutRankPtr rank = weak.lock();
    if (rank != nullptr && !rank->over) living.push_back(std::move(rank));
  }
  return living;
}

// A rank of it is over: the others have nothing left to do but end it, too.
bool HasEnded(const Clique& clique) {
  return clique.over_elsewhere ||
         std::any_of(clique.ranks.begin(), clique.ranks.end(), [](const std::weak_ptr<CutRank>& weak) {
           const CutRankPtr rank = weak.lock();
           return rank == nullptr || rank->over;
         });
}

std::string Numbered(const char* call, uint64_t number, int rank) {
  return std::string(call) + " #" + std::to_string(number) + " of rank " + std::to_string(rank);
}

}  // namespace

void Cut::AddThread(const CutThreadPtr& thread) { threads_.push_back(thread); }

void Cut::RemoveThread(const CutThread& thread) {
  std::erase_if(threads_, [&thread](const CutThreadPtr& known) { return known.get() == &thread; });
}

CutThreadPtr Cut::FindThread(int tid) const {
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [tid](const CutThreadPtr& thread) { return thread->tid == tid; });
  return found == threads_.end() ? nullptr : *found;
}

void Cut::ForgetHeld() {
  for (const CutThreadPtr& thread : threads_) thread->held = thread->admitted = false;
}

CutRankPtr Cut::AddRank(uint64_t clique_key, int size, int rank, const char* made_by) {
  std::erase_if(cliques_, [](const auto& entry) { return entry.second.expired(); });
  std::shared_ptr<Clique> clique = cliques_[clique_key].lock();
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->key = clique_key;
    clique->size = size;
    clique->made_by = made_by;
    cliques_[clique_key] = clique;
  }
  clique->ever.insert(rank);
  auto added = std::make_shared<CutRank>();
  added->clique = clique;
  added->rank = rank;
  std::erase_if(clique->ranks, [](const std::weak_ptr<CutRank>& weak) { return weak.expired(); });
  clique->ranks.push_back(added);
  return added;
}

void Cut::SetOver(CutRank& rank) {
  rank.over = true;
  const Clique& clique = *rank.clique;
  if (!clique.shared()) return;
  const auto [gone, added] = gone_.try_emplace(clique.key, Gone{clique.size, clique.made_by, {}});
  gone->second.ranks.insert(rank.rank);
  if (added) gone_order_.push_back(clique.key);
  if (gone_order_.size() <= kMaxGone) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

void Cut::Reset() {
  threads_.clear();
  meetings_.clear();
  gone_.clear();
  gone_order_.clear();
}

void Cut::Hold(CutThread& thread, const Operation& operation) {
  thread.call = operation;
  thread.held = true;
  thread.admitted = false;
}

void Cut::Enter(const CutThreadPtr& thread, const Operation& operation) {
  thread->call = operation;
  thread->held = thread->admitted = false;
  thread->inside = true;
  if (operation.kind == Kind::kGroupStart || operation.kind == Kind::kLocal) return;
  if (operation.kind != Kind::kGroupEnd) {
    if (thread->depth > 0) return;
    return Issue(thread, operation);
  }
  if (thread->depth != 1) return;
  CountGroup(thread->group, 1);
  for (const Operation& queued : thread->group) Issue(thread, queued);
}

void Cut::Leave(CutThread& thread, bool success) {
  thread.inside = false;
  const Operation operation = std::move(thread.call);
  thread.call = {};
  if (operation.kind == Kind::kGroupStart) {
    if (success) ++thread.depth;
    return;
  }
  if (operation.kind != Kind::kGroupEnd) {
    if (thread.depth > 0 && success) thread.group.push_back(operation);
    if (thread.depth == 0 && !success) Count(operation, -1);
    return;
  }
  if (thread.depth == 0 || --thread.depth != 0) return;
  if (!success) {
    CountGroup(thread.group, -1);
    for (const Operation& queued : thread.group) Count(queued, -1);
  }
  thread.group.clear();
}

void Cut::OpenMeeting(uint64_t meeting, const char* call) {
  Meeting& open = meetings_[meeting];
  open.call = call;
  ++open.count;
}

void Cut::CloseMeeting(uint64_t meeting) {
  const auto found = meetings_.find(meeting);
  if (found != meetings_.end() && --found->second.count == 0) meetings_.erase(found);
}

bool Cut::MayPass(const CutThread& thread, const Operation& operation) {
  return thread.depth > 0 || operation.kind == Kind::kLocal;
}

bool Cut::Settled() const {
  if (!meetings_.empty()) return false;
  const bool busy = std::any_of(threads_.begin(), threads_.end(), [this](const CutThreadPtr& thread) {
    return thread->inside || thread->depth != 0 || thread->admitted || JoinsElsewhere(*thread);
  });
  if (busy) return false;
  const std::vector<CutRankPtr> ranks = LivingRanks();
  return std::none_of(ranks.begin(), ranks.end(), [this](const CutRankPtr& rank) { return Awaited(*rank); });
}

bool Cut::Admit() {
  bool any = false;
  for (const CutThreadPtr& thread : threads_) {
    if (!thread->held || thread->admitted || !IsWanted(*thread)) continue;
    thread->admitted = true;
    any = true;
  }
  return any;
}

bool Cut::AdmitAll() {
  bool any = false;
  for (const CutThreadPtr& thread : threads_) {
    if (!thread->held || thread->admitted) continue;
    thread->admitted = true;
    any = true;
  }
  return any;
}

bool Cut::IsWanted(const CutThread& thread) const {
  const Operation& call = thread.call;
  if (MayPass(thread, call) || JoinsElsewhere(thread)) return true;
  if (call.kind == Kind::kMeeting && call.meeting != 0 && MeetingIsOpen(call.meeting)) return true;
  if (call.kind == Kind::kMeeting && call.meeting == 0 && SomebodyMakesOne()) return true;
  if (call.kind == Kind::kMeeting && call.rank != nullptr && HasEnded(*call.rank->clique)) return true;
  if (call.rank != nullptr && Awaited(*call.rank)) return true;
  return DrivesAwaited(thread);
}

// Its awaited operation may come after the call it is held before, unless another thread has it at hand.
bool Cut::DrivesAwaited(const CutThread& thread) const {
  const std::vector<CutRankPtr> ranks = LivingRanks();
  return std::any_of(ranks.begin(), ranks.end(), [&](const CutRankPtr& rank) {
    return rank->driver.lock().get() == &thread && Awaited(*rank) && !HeldAt(*rank);
  });
}

bool Cut::HeldAt(const CutRank& rank) const {
  return std::any_of(threads_.begin(), threads_.end(), [&rank](const CutThreadPtr& thread) {
    return thread->held && thread->call.rank.get() == &rank;
  });
}

bool Cut::Awaited(const CutRank& rank) const {
  if (rank.over) return false;
  if (BehindInCollectives(rank) || BehindWithPeers(rank) || IsAwaitedElsewhere(rank)) return true;
  // Somebody is in a call that ends the communicator and has not found this rank there.
  bool met = false, inside = false;
  for (const CutThreadPtr& thread : threads_) {
    ForEachInside(*thread, [&](const Operation& operation) {
      if (operation.kind != Kind::kMeeting || operation.rank == nullptr) return;
      if (operation.rank.get() == &rank) inside = true;
      if (operation.rank->clique == rank.clique) met = true;
    });
  }
  return met && !inside;
}

bool Cut::BehindInCollectives(const CutRank& rank) const {
  if (rank.issued.collectives < rank.target.collectives) return true;
  const std::vector<CutRankPtr> others = LivingRanksOf(*rank.clique);
  return std::any_of(others.begin(), others.end(), [&rank](const CutRankPtr& other) {
    return rank.issued.collectives < other->issued.collectives;
  });
}

bool Cut::BehindWithPeers(const CutRank& rank) const {
  for (const auto& [peer, count] : rank.target.sends)
    if (CountOf(rank.issued.sends, peer) < count) return true;
  for (const auto& [peer, count] : rank.target.receives)
    if (CountOf(rank.issued.receives, peer) < count) return true;
  const std::vector<CutRankPtr> others = LivingRanksOf(*rank.clique);
  return std::any_of(others.begin(), others.end(), [&rank](const CutRankPtr& other) {
    return CountOf(rank.issued.receives, other->rank) < CountOf(other->issued.sends, rank.rank) ||
           CountOf(rank.issued.sends, other->rank) < CountOf(other->issued.receives, rank.rank);
  });
}

bool Cut::MeetingIsOpen(uint64_t meeting) const {
  if (meetings_.count(meeting) != 0) return true;
  bool open = false;
  for (const CutThreadPtr& thread : threads_) {
    ForEachInside(*thread, [&open, meeting](const Operation& operation) {
      if (operation.kind == Kind::kMeeting && operation.meeting == meeting) open = true;
    });
  }
  return open;
}

// Which communicator a held call makes is told by its parameters alone, which are not looked at.
bool Cut::SomebodyMakesOne() const {
  bool making = !meetings_.empty();
  for (const CutThreadPtr& thread : threads_) {
    ForEachInside(*thread, [&making](const Operation& operation) {
      if (operation.kind == Kind::kMeeting && operation.rank == nullptr) making = true;
    });
  }
  return making;
}

std::vector<CutRankPtr> Cut::LivingRanks() const {
  std::vector<CutRankPtr> living;
  for (const auto& [key, weak] : cliques_) {
    const std::shared_ptr<Clique> clique = weak.lock();
    if (clique == nullptr) continue;
    for (CutRankPtr& rank : LivingRanksOf(*clique)) living.push_back(std::move(rank));
  }
  return living;
}

std::vector<TaskBlocker> Cut::Missing() const {
  std::vector<TaskBlocker> missing;
  for (const CutRankPtr& rank : LivingRanks()) Name(*rank, &missing);
  for (const CutThreadPtr& thread : threads_) {
    if (thread->inside) {
      missing.push_back({thread->tid, thread->call.call});
    } else if (thread->depth != 0) {
      missing.push_back({thread->tid, "ncclGroupEnd"});
    }
  }
  for (const auto& [key, meeting] : meetings_) missing.push_back({0, meeting.call});
  return missing;
}

void Cut::Name(const CutRank& rank, std::vector<TaskBlocker>* missing) const {
  const CutThreadPtr driver = rank.driver.lock();
  const int tid = driver == nullptr ? 0 : driver->tid;
  uint64_t most = rank.target.collectives;
  const char* call = nullptr;
  for (const CutRankPtr& other : LivingRanksOf(*rank.clique)) {
    if (other->issued.collectives <= rank.issued.collectives) continue;
    most = std::max(most, other->issued.collectives);
    const bool kept = other->issued.collectives - rank.issued.collectives <= other->names.size();
    if (kept) call = other->names[rank.issued.collectives % other->names.size()];
  }
  if (rank.issued.collectives < most)
    missing->push_back(
        {tid, Numbered(call == nullptr ? "collective" : call, rank.issued.collectives + 1, rank.rank)});
  NamePeers(rank, tid, missing);
}

void Cut::NamePeers(const CutRank& rank, int tid, std::vector<TaskBlocker>* missing) const {
  const auto name = [&](const char* call, const char* word, int peer, uint64_t done, uint64_t wanted) {
    if (done < wanted)
      missing->push_back({tid, Numbered(call, done + 1, rank.rank) + word + std::to_string(peer)});
  };
  for (int peer = 0; peer < rank.clique->size; ++peer) {
    uint64_t sends = CountOf(rank.target.sends, peer), receives = CountOf(rank.target.receives, peer);
    for (const CutRankPtr& other : LivingRanksOf(*rank.clique)) {
      if (other->rank != peer) continue;
      sends = std::max(sends, CountOf(other->issued.receives, rank.rank));
      receives = std::max(receives, CountOf(other->issued.sends, rank.rank));
    }
    name("ncclSend", " to rank ", peer, CountOf(rank.issued.sends, peer), sends);
    name("ncclRecv", " from rank ", peer, CountOf(rank.issued.receives, peer), receives);
  }
}

void Cut::SetTargets(const CutTargets& targets) {
  meetings_elsewhere_ = {targets.meetings.begin(), targets.meetings.end()};
  making_elsewhere_ = targets.making;
  asked_.clear();
  for (const CutRankPtr& rank : LivingRanks()) rank->target = {};
  for (const RankTarget& target : targets.ranks) {
    asked_.insert(target.comm);
    const auto found = cliques_.find(target.comm);
    const std::shared_ptr<Clique> clique = found == cliques_.end() ? nullptr : found->second.lock();
    if (clique == nullptr) continue;
    for (const CutRankPtr& rank : LivingRanksOf(*clique))
      if (rank->rank == target.rank) rank->target = target.issued;
  }
  for (const CommKey key : targets.ended) {
    const auto found = cliques_.find(key);
    const std::shared_ptr<Clique> clique = found == cliques_.end() ? nullptr : found->second.lock();
    if (clique != nullptr) clique->over_elsewhere = true;
  }
}

// Held before a call that others are inside of, or may be, in other processes.
bool Cut::JoinsElsewhere(const CutThread& thread) const {
  if (!thread.held || thread.call.kind != Kind::kMeeting) return false;
  return thread.call.meeting == 0 ? making_elsewhere_ : meetings_elsewhere_.count(thread.call.meeting) != 0;
}

// As for a meeting here: who has not found its way into it goes on until it does.
bool Cut::IsAwaitedElsewhere(const CutRank& rank) const {
  const Clique& clique = *rank.clique;
  return meetings_elsewhere_.count(clique.key) != 0 && !clique.over_elsewhere && !MeetingIsOpen(clique.key);
}

CutReport Cut::Report() const {
  CutReport report;
  report.settled = Settled();
  ReportRanks(&report);
  std::set<CommKey> open;
  for (const auto& [key, meeting] : meetings_) open.insert(key);
  for (const CutThreadPtr& thread : threads_) {
    ForEachInside(*thread, [&open](const Operation& operation) {
      if (operation.kind == Kind::kMeeting && operation.meeting != 0) open.insert(operation.meeting);
    });
  }
  report.meetings.assign(open.begin(), open.end());
  report.making = SomebodyMakesOne();
  if (!report.settled) report.missing = Missing();
  return report;
}

void Cut::ReportRanks(CutReport* report) const {
  for (const CutRankPtr& rank : LivingRanks()) {
    const Clique& clique = *rank->clique;
    if (clique.shared())
      report->ranks.push_back({clique.key, clique.size, rank->rank, clique.made_by, rank->issued});
  }
  for (const CommKey key : asked_) {
    const auto gone = gone_.find(key);
    if (gone == gone_.end()) continue;
    for (const int rank : gone->second.ranks)
      report->ranks.push_back({key, gone->second.size, rank, gone->second.made_by, {}, true});
  }
}

}  // namespace stasis::nccl

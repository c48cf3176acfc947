#include "coordinator/agent/reclaims.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "base/log/log.h"
#include "base/quiet_thread.h"

namespace stasis {
namespace {

constexpr Duration kFirstWait = std::chrono::milliseconds(500);

// What only somebody who ends the job there changes.
bool IsForGood(const Status& refused) { return refused.code() == StatusCode::kFailedPrecondition; }

}  // namespace

Reclaims::Reclaims(Database& database, Connect connect, std::string node, Duration longest_wait,
                   Duration refused_wait)
    : table_(database),
      connect_(std::move(connect)),
      node_(std::move(node)),
      longest_wait_(longest_wait),
      refused_wait_(refused_wait),
      thread_(StartQuietThread([this] { Run(); })) {}

Reclaims::~Reclaims() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status Reclaims::Add(const Reclaim& reclaim) {
  RETURN_IF_ERROR(table_.Write(reclaim));
  std::lock_guard lock(mutex_);
  added_ = true;
  changed_.notify_all();
  return Status();
}

void Reclaims::Run() {
  Duration wait = kFirstWait;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, wait, [this] { return stop_ || added_; });
      if (stop_) return;
      wait = added_ ? std::min(kFirstWait, longest_wait_) : std::min(2 * wait, longest_wait_);
      added_ = false;
    }
    if (!TellAll()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || added_; });
  }
}

// True: there is nobody left to be told.
bool Reclaims::TellAll() {
  Result<std::vector<Reclaim>> all = table_.All();
  if (!all.ok()) return false;
  std::set<std::string> silent;  // addresses
  bool told = true;
  for (const Reclaim& reclaim : *all) {
    {
      std::lock_guard lock(mutex_);
      if (stop_) return false;
    }
    const auto refused = refused_.find(reclaim.token);
    const bool later = refused != refused_.end() && Clock::Real().Now() < refused->second;
    if (later || silent.count(reclaim.address) != 0) {
      told = false;
      continue;
    }
    Status done = Tell(reclaim);
    LogOnce(reclaim, done);
    refused_.erase(reclaim.token);
    if (done.ok()) continue;
    told = false;
    if (IsForGood(done)) refused_[reclaim.token] = Clock::Real().Now() + refused_wait_;
    if (done.code() == StatusCode::kUnavailable || done.code() == StatusCode::kTimeout)
      silent.insert(reclaim.address);
  }
  return told;
}

// What repeats itself is told once.
void Reclaims::LogOnce(const Reclaim& reclaim, const Status& told) {
  const std::string why = told.ok() ? "" : told.ToString();
  auto [before, first] = told_.emplace(reclaim.token, why);
  if (!first && before->second == why) return;
  before->second = why;
  nlohmann::json fields = {{"job", reclaim.job}, {"node", reclaim.node}, {"why", why}};
  if (told.ok()) {
    Log(LogLevel::kInfo, "reclaims", "a node has let go of a job", fields);
    told_.erase(before);
  } else if (IsForGood(told)) {
    fields["remedy"] = "where it is to end, `stasis cancel " + reclaim.job + "` on the node that runs it";
    Log(LogLevel::kError, "reclaims", "a node does not let go of a job, which may have two lives", fields);
  } else {
    Log(LogLevel::kWarning, "reclaims", "a node is to let go of a job, and is told again", fields);
  }
}

Status Reclaims::Tell(const Reclaim& reclaim) {
  ASSIGN_OR_RETURN(std::unique_ptr<PeerLink> peer, connect_(reclaim.address));
  v1::LetGoRequest request;
  request.set_token(reclaim.token);
  request.set_from_node(node_);
  ASSIGN_OR_RETURN(const v1::Outcome outcome, peer->LetGo(request));
  if (outcome.kind() != v1::OUTCOME_KIND_NOT_TAKEN)
    return Status(StatusCode::kAlreadyExists, "it is not known yet what becomes of it there");
  // What it has written down of it is of no use any more; where it is kept nothing comes of that.
  (void)peer->Settle(reclaim.token);
  return table_.Forget(reclaim.token);
}

}  // namespace stasis

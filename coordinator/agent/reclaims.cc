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

}  // namespace

Reclaims::Reclaims(Database& database, Connect connect, std::string node, Duration longest_wait)
    : table_(database),
      connect_(std::move(connect)),
      node_(std::move(node)),
      longest_wait_(longest_wait),
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
    if (silent.count(reclaim.address) != 0) continue;
    Status done = Tell(reclaim);
    LogOnce(reclaim, done);
    if (done.ok()) continue;
    told = false;
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
  Log(told.ok() ? LogLevel::kInfo : LogLevel::kWarning, "reclaims",
      told.ok() ? "a node has let go of a job" : "a node is to let go of a job, and is told again",
      {{"job", reclaim.job}, {"node", reclaim.node}, {"why", why}});
  if (told.ok()) told_.erase(before);
}

Status Reclaims::Tell(const Reclaim& reclaim) {
  ASSIGN_OR_RETURN(std::unique_ptr<PeerLink> peer, connect_(reclaim.address));
  v1::LetGoRequest request;
  request.set_token(reclaim.token);
  request.set_from_node(node_);
  ASSIGN_OR_RETURN(const v1::Outcome outcome, peer->LetGo(request));
  if (outcome.kind() != v1::OUTCOME_KIND_NOT_TAKEN)
    return Status(StatusCode::kFailedPrecondition, "it is being restored there");
  // What it has written down of it is of no use any more; where it is kept nothing comes of that.
  (void)peer->Settle(reclaim.token);
  return table_.Forget(reclaim.token);
}

}  // namespace stasis

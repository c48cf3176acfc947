// What comes from other nodes: the target's side of migrations and of copies of images. docs/migration.md.
//
// Knows no network: requests as messages, answers as messages. Thread-safe; calls block on disk and on
// restores.
#ifndef COORDINATOR_AGENT_INCOMING_H_
#define COORDINATOR_AGENT_INCOMING_H_

#include <atomic>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "base/worker_pool.h"
#include "coordinator/agent/arrival.h"
#include "coordinator/agent/arriving_copy.h"
#include "coordinator/agent/copy_shelf.h"
#include "coordinator/agent/handover_table.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

class Incoming {
 public:
  // What the agent before this one had taken, and whose outcome is not written down, is found out by a
  // thread; it is undecided meanwhile. All outlive the object. `clock`: for how long nothing was heard of a
  // token. `sweep`: how often silent ones are looked for, while any are on their way. `let_go`: for how long
  // LetGo() waits. `set_schedule` and `end_job` are called from several threads.
  static Result<std::unique_ptr<Incoming>> Start(const Site& site, Database& database, Registry& registry,
                                                 SetSchedule set_schedule, EndJob end_job,
                                                 const Clock& clock = Clock::Real(),
                                                 Duration sweep = std::chrono::seconds(10),
                                                 Duration let_go = kLetGoWait);
  ~Incoming();
  // What is not known yet of an arrival is left to the next agent: nothing waits for it any more.
  void Stop() { stopping_ = true; }

  // A refusal is no error: the reply has no token.
  Result<v1::OfferReply> Offer(const v1::OfferRequest& request);
  Result<v1::MissingReply> Missing(const v1::MissingRequest& request);
  Status Put(const v1::PutRequest& request);
  Status PutManifest(const v1::PutManifestRequest& request);
  Result<v1::Outcome> HandOver(const v1::HandOverRequest& request);
  Result<v1::Outcome> AskOutcome(const v1::AskOutcomeRequest& request);
  Result<v1::KeepReply> Keep(const v1::KeepRequest& request);
  // UNDECIDED: another call for the token is at it, or it takes longer than the wait, and goes on; or the job
  // is on its way here by another token.
  Result<v1::Outcome> LetGo(const v1::LetGoRequest& request);
  Status Settle(const v1::SettleRequest& request);
  // Whose token it is; "": nobody's that is on its way.
  std::string JobOf(const std::string& token);
  // The same also of what has come, until it is settled.
  std::string JobOnRecord(const std::string& token);

  // Of an offer that fits: takes chunks for `row.token` from now on. kAlreadyExists: the job is on its way.
  // Copies of it that are on their way are given up: they would be older.
  // `from`: the agent that offers it. Its own earlier offer of the job is void from now on where nothing was
  // handed over by it, as is another one's of which nothing was heard for a while.
  Status Accept(HandOverRow row, std::vector<Arriving> ranks, std::vector<std::vector<int>> gpus,
                const std::string& from = "");
  // The same of an image of it, by `job.token`. Takes the place of another one that is on its way.
  Status AcceptCopy(ArrivedJob job, std::vector<Arriving> ranks, std::vector<std::vector<int>> gpus);
  // Returns when all is found out that the agent before this one has left.
  void AwaitProbes();

 private:
  // Well below what the caller waits for an answer.
  static constexpr Duration kLetGoWait = std::chrono::seconds(20);
  using Copy = std::shared_ptr<ArrivingCopy>;

  Incoming(const Site& site, Database& database, Registry& registry, SetSchedule set_schedule, EndJob end_job,
           std::unique_ptr<CopyShelf> copies, const Clock& clock, Duration sweep, Duration let_go);
  void Sweep();
  Result<std::shared_ptr<Arrival>> Find(const std::string& token);
  Result<std::shared_ptr<Arrival>> FindForOutcome(const std::string& token);
  Copy FindCopy(const std::string& token);  // null: none
  // kNotFound: nothing is on its way by that token.
  Result<std::shared_ptr<Receiving>> FindReceiving(const std::string& token);
  void DropSilentLocked();
  // The answer to who asks for the end of `arrival`, once it is told; nothing: somebody else is at it.
  Result<std::optional<std::future<Result<v1::Outcome>>>> BeginLetGo(const std::shared_ptr<Arrival>& arrival,
                                                                     const v1::LetGoRequest& request);
  void VoidEarlierLocked(const std::string& job, const std::string& from);
  // What the rest of Accept() and AcceptCopy() needs: room, and no migration of the job.
  Status CheckWayLocked(const std::string& job) const;
  std::vector<Copy> TakeCopiesLocked(const std::string& job);

  const std::unique_ptr<CopyShelf> shelf_;
  HandOverTable table_;
  const Arrival::Parts parts_;
  const Duration sweep_, let_go_wait_;
  std::atomic<bool> stopping_ = false;
  std::thread prober_, sweeper_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_; maps are by token.
  bool stop_ = false;
  std::map<std::string, std::shared_ptr<Arrival>> arrivals_;
  std::map<std::string, Copy> copies_;
  std::map<std::string, std::shared_ptr<Arrival>> letting_go_;
  WorkerPool enders_;  // ends before what it works on
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_INCOMING_H_

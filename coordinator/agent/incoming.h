// What comes from other nodes: the target's side of a migration. docs/migration.md.
//
// Knows no network: requests as messages, answers as messages. Thread-safe; calls block on disk and on
// restores.
#ifndef COORDINATOR_AGENT_INCOMING_H_
#define COORDINATOR_AGENT_INCOMING_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/arrival.h"
#include "coordinator/agent/handover_table.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

class Incoming {
 public:
  // What the agent before this one had taken, and whose outcome is not written down, is found out by a
  // thread; it is undecided meanwhile. All outlive the object. `clock`: for how long nothing was heard of a
  // token.
  static Result<std::unique_ptr<Incoming>> Start(const Site& site, Database& database, Registry& registry,
                                                 const Clock& clock = Clock::Real());
  ~Incoming();

  // A refusal is no error: the reply has no token.
  Result<v1::OfferReply> Offer(const v1::OfferRequest& request);
  Result<v1::MissingReply> Missing(const v1::MissingRequest& request);
  Status Put(const v1::PutRequest& request);
  Status PutManifest(const v1::PutManifestRequest& request);
  Result<v1::Outcome> HandOver(const v1::HandOverRequest& request);
  Result<v1::Outcome> AskOutcome(const v1::AskOutcomeRequest& request);
  Status Settle(const v1::SettleRequest& request);

  // Of an offer that fits: takes chunks for `row.token` from now on. kAlreadyExists: the job is on its way.
  Status Accept(HandOverRow row, std::vector<Arriving> ranks, std::vector<std::vector<int>> gpus);
  // Returns when all is found out that the agent before this one has left.
  void AwaitProbes();

 private:
  Incoming(const Site& site, Database& database, Registry& registry, const Clock& clock);
  Result<std::shared_ptr<Arrival>> Find(const std::string& token);
  Result<std::shared_ptr<Arrival>> FindForOutcome(const std::string& token);
  void DropSilent();

  HandOverTable table_;
  const Arrival::Parts parts_;
  std::thread prober_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Arrival>> arrivals_;  // by token; guarded by mutex_
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_INCOMING_H_

// One job on its way from another node to this one: what has come of it, and whose it is.
#ifndef COORDINATOR_AGENT_ARRIVAL_H_
#define COORDINATOR_AGENT_ARRIVAL_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/compatibility.h"
#include "coordinator/agent/copy_shelf.h"
#include "coordinator/agent/handover.h"
#include "coordinator/agent/handover_table.h"
#include "coordinator/agent/receiving.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

// Of a job that has come: by which rules this agent checkpoints it and brings it back from now on.
using SetSchedule = std::function<Status(const std::string& job, const v1::Schedule& rules)>;
// Ends a job of this node as somebody who cancels it does; returns when it has ended. OK: it has.
using EndJob = std::function<Status(const std::string& job)>;

// Thread-safe.
class Arrival {
 public:
  struct Parts {
    Site site;
    HandOverTable* table = nullptr;
    Registry* registry = nullptr;
    CopyShelf* copies = nullptr;
    const Clock* clock = nullptr;
    const std::atomic<bool>* stop = nullptr;  // the agent ends: what is not known is left to the next one
    SetSchedule set_schedule;
    EndJob end_job;
  };

  // Of an offer that was accepted; `gpus` as in Fit.
  static Result<std::shared_ptr<Arrival>> Make(const Parts& parts, HandOverRow row,
                                               std::vector<Arriving> ranks,
                                               std::vector<std::vector<int>> gpus, std::string from = "");
  // Of one that the agent before this one has written down, or (kNone) that nothing is known of.
  static std::shared_ptr<Arrival> Recovered(const Parts& parts, HandOverRow row);

  const std::string& job() const { return row_.job; }
  const std::vector<std::string>& tasks() const { return row_.tasks; }
  const std::string& from() const { return from_; }  // the agent that offered it; "": not known
  // Nothing has been heard of it for so long.
  bool Silent(Duration how_long) const;
  // It is neither on its way nor being restored any more.
  bool Settled() const;
  // The next agent knows what is known here. Else whoever asks for the token has to find this object.
  bool Written() const;
  // Tries to write down what could not be before, as on a full disk; nothing where there is nothing such.
  void WriteAgain();
  // It runs here, or has run here.
  bool Runs() const;

  Receiving& receiving() { return receiving_; }
  v1::Outcome HandOver(const v1::HandOverRequest& request);
  v1::Outcome Ask(Duration wait);
  // The source, a node of that name, has taken it back: ends what has come, unless that was taken for this
  // node's own meanwhile. kFailedPrecondition: that does not end by asking again, as of what has moved on to
  // a third node; another error: it may still live. Not by two threads at once.
  Result<v1::Outcome> LetGo(const std::string& node);
  // Of a recovered one: finds out what became of it, and writes it down.
  void Probe();

 private:
  Arrival(const Parts& parts, HandOverRow row, Taker taker, std::vector<Arriving> ranks,
          std::vector<std::vector<int>> gpus);
  Status Prepare(const v1::HandOverRequest& request);
  void RemoveAgain();
  struct WhatCame {  // by this token
    bool any = false, live = false;
    std::string moved_on;  // which task, and where to
  };
  Result<WhatCame> MarkWhatCame(const std::string& node) const;
  Status EndWhatCame(const std::string& node);
  void Take(const v1::HandOverRequest& request);
  void Restore(uint32_t deadline_ms);
  void Conclude(bool runs, Json result);
  void TakeOverSchedule(Json* result);
  Status Write(Taker::Record record);
  v1::Outcome OutcomeNow() const;
  void GiveUp(const Status& why);

  const Parts parts_;
  Receiving receiving_;
  const std::vector<std::vector<int>> gpus_;
  std::string from_;  // constant once made
  HandOverRow row_;   // job, ranked, tasks are constant; result and record guarded by mutex_

  std::vector<std::string> images_;  // by rank, once committed; of who hands over

  std::mutex write_mutex_;  // of records, taken before mutex_: what is newer is written later
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Taker taker_;
  bool preparing_ = false;
  bool written_ = true;  // of the latest record
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_ARRIVAL_H_

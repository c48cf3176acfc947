// One job on its way from another node to this one: what has come of it, and whose it is.
#ifndef COORDINATOR_AGENT_ARRIVAL_H_
#define COORDINATOR_AGENT_ARRIVAL_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/compatibility.h"
#include "coordinator/agent/handover.h"
#include "coordinator/agent/handover_table.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "dedup/image_manifest.h"
#include "dedup/store.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

// Thread-safe.
class Arrival {
 public:
  struct Parts {
    Site site;
    HandOverTable* table = nullptr;
    Registry* registry = nullptr;
    const Clock* clock = nullptr;
  };

  // Of an offer that was accepted; `gpus` as in Fit.
  static Result<std::shared_ptr<Arrival>> Make(const Parts& parts, HandOverRow row,
                                               std::vector<Arriving> ranks,
                                               std::vector<std::vector<int>> gpus);
  // Of one that the agent before this one has written down, or (kNone) that nothing is known of.
  static std::shared_ptr<Arrival> Recovered(const Parts& parts, HandOverRow row);

  const std::string& job() const { return row_.job; }
  const std::vector<std::string>& tasks() const { return row_.tasks; }
  // Nothing has been heard of it for so long.
  bool Silent(Duration how_long) const;
  // It is neither on its way nor being restored any more.
  bool Settled() const;

  Result<std::string> Missing(std::string_view hashes);
  Status Put(std::string_view records);
  Status PutManifest(const v1::PutManifestRequest& request);
  v1::Outcome HandOver(const v1::HandOverRequest& request);
  v1::Outcome Ask(Duration wait);
  // Of a recovered one: finds out what became of it, and writes it down.
  void Probe();

 private:
  struct Received {
    std::vector<std::byte> manifest;
    uint64_t expected = 0;  // bytes; 0: nothing yet
  };

  Arrival(const Parts& parts, HandOverRow row, Taker taker, std::vector<Arriving> ranks,
          std::vector<std::vector<int>> gpus);
  // kFailedPrecondition: nothing is taken any more.
  Result<std::shared_ptr<StoreWriter>> HearOf();
  Status Prepare(const v1::HandOverRequest& request);
  Result<std::vector<ImageManifest>> Manifests() const;
  void Take(uint32_t deadline_ms);
  void Restore(uint32_t deadline_ms);
  void Conclude(bool runs, Json result);
  Status Write(Taker::Record record);
  v1::Outcome OutcomeNow() const;
  void GiveUp(const Status& why);

  const Parts parts_;
  const std::vector<Arriving> ranks_;
  const std::vector<std::vector<int>> gpus_;
  HandOverRow row_;  // job, ranked, tasks are constant; result and record guarded by mutex_

  std::shared_ptr<Store> store_;
  std::vector<std::string> images_;  // by rank, once committed; of who hands over

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  Taker taker_;
  MonotonicTime heard_{};
  bool preparing_ = false;
  std::shared_ptr<StoreWriter> writer_;  // null once it is not needed any more
  std::vector<Received> received_;       // by rank
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_ARRIVAL_H_

// One copy of an image on its way from another node to this one.
#ifndef COORDINATOR_AGENT_ARRIVING_COPY_H_
#define COORDINATOR_AGENT_ARRIVING_COPY_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/copy_shelf.h"
#include "coordinator/agent/receiving.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

// Thread-safe.
class ArrivingCopy {
 public:
  // Of an offer that was accepted; `gpus` as in Fit. `shelf` outlives it.
  static Result<std::shared_ptr<ArrivingCopy>> Make(CopyShelf& shelf, const Site& site, const Clock& clock,
                                                    ArrivedJob job, std::vector<Arriving> ranks,
                                                    std::vector<std::vector<int>> gpus);

  const ArrivedJob& job() const { return job_; }
  Receiving& receiving() { return receiving_; }
  // Once: asked again, or by another thread meanwhile, it answers the same.
  Result<v1::KeepReply> Keep(const v1::KeepRequest& request);
  // Nothing of it is kept any more, unless that is decided: then it has been when this returns.
  void GiveUp();
  bool Silent(Duration how_long) const;

 private:
  ArrivingCopy(CopyShelf& shelf, const Clock& clock, ArrivedJob job, std::vector<Arriving> ranks,
               std::vector<std::vector<int>> gpus)
      : shelf_(shelf), job_(std::move(job)), gpus_(std::move(gpus)), receiving_(clock, std::move(ranks)) {}
  Result<v1::KeepReply> TakeIn(const v1::KeepRequest& request);

  CopyShelf& shelf_;
  const ArrivedJob job_;
  const std::vector<std::vector<int>> gpus_;
  Receiving receiving_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool keeping_ = false;
  std::optional<Result<v1::KeepReply>> outcome_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_ARRIVING_COPY_H_

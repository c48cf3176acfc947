// What comes of an offer that was accepted: chunks for the store, and the manifest of each rank's image.
// Nothing of it counts before somebody commits it.
#ifndef COORDINATOR_AGENT_RECEIVING_H_
#define COORDINATOR_AGENT_RECEIVING_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/agent/compatibility.h"
#include "dedup/image_manifest.h"
#include "dedup/store.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

// Thread-safe.
class Receiving {
 public:
  // `ranks`: what was offered. It is sealed.
  Receiving(const Clock& clock, std::vector<Arriving> ranks);
  // Takes chunks and manifests for the store from now on.
  Status Begin(std::shared_ptr<Store> store);

  // kFailedPrecondition: sealed.
  Result<std::string> Missing(std::string_view hashes);
  Status Put(std::string_view records);
  Status PutManifest(const v1::PutManifestRequest& request);

  // Nothing more is taken. What has come stays.
  void Seal();
  // The same, and what has come is let go of.
  void Drop();

  const std::vector<Arriving>& ranks() const { return ranks_; }
  // By rank, each of the task that was offered. kFailedPrecondition: one has not come as a whole.
  Result<std::vector<ImageManifest>> Manifests() const;
  const std::shared_ptr<Store>& store() const { return store_; }
  // Null once it was dropped.
  std::shared_ptr<StoreWriter> writer() const;

  // The other side has been heard.
  void Touch();
  // Nothing has been heard for so long.
  bool Silent(Duration how_long) const;

 private:
  struct Received {
    std::vector<std::byte> manifest;
    uint64_t expected = 0;  // bytes; 0: nothing yet
  };
  Result<std::shared_ptr<StoreWriter>> Hear();

  const Clock& clock_;
  const std::vector<Arriving> ranks_;
  std::shared_ptr<Store> store_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  bool sealed_ = true;
  MonotonicTime heard_{};
  std::shared_ptr<StoreWriter> writer_;
  std::vector<Received> received_;  // by rank
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_RECEIVING_H_

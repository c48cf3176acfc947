// Copies of images of jobs that run on other nodes: images in this node's store, and a record of the job,
// which has ended here and can be restored from them. docs/migration.md, "Copies of images".
//
// A copy counts as a whole or not at all, whenever the agent is killed. Thread-safe; calls block on disk.
#ifndef COORDINATOR_AGENT_COPY_SHELF_H_
#define COORDINATOR_AGENT_COPY_SHELF_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/copy_table.h"
#include "coordinator/agent/receiving.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "dedup/store.h"

namespace stasis {

inline constexpr uint32_t kCopiesKept = 2;

class CopyShelf {
 public:
  // All outlive it. Brings what an agent before this one has begun to its end, or takes it back.
  static Result<std::unique_ptr<CopyShelf>> Start(const Site& site, Database& database, Registry& registry);

  struct Kept {
    std::string image;   // its id here, as a restore of the job takes it
    bool known = false;  // it was here already
  };
  // What has come, of `job`, becomes a copy, the newest; of older ones all but `keep` - 1 go. `record`: of a
  // ranked job. `gpus`: as in Fit. kAlreadyExists: another job has the name, or this one is live here;
  // kFailedPrecondition: a newer copy is here, or something works on the job. After an error it is as before.
  Result<Kept> Take(const ArrivedJob& job, const std::optional<JobRecord>& record,
                    const std::vector<std::vector<int>>& gpus, Receiving& receiving, uint32_t keep);

  // The job came here as a whole and did not stay: what says that it can be restored is written again.
  void Reinstate(const std::string& job);
  // The job has come here: its copies are of no use any more.
  void Forget(const std::string& job);

 private:
  CopyShelf(const Site& site, Database& database, Registry& registry)
      : site_(site), table_(database), registry_(registry) {}
  Status Recover();
  void Finish(Store& store, CopyRow row);
  // All of its images are in the store.
  bool IsStored(const Store& store, const CopyRow& row) const;
  // Those that are; forgets the others.
  Result<std::vector<CopyRow>> Stored(const Store& store, const std::string& job);
  // Records of the job that name it.
  Status Establish(const Store& store, const CopyRow& row);
  void Remove(Store& store, const CopyRow& row);
  void Keep(Store& store, const std::string& job, size_t keep);
  Result<CopyRow> Commit(const ArrivedJob& job, const std::optional<JobRecord>& record, Receiving& receiving,
                         std::vector<ImageManifest> manifests, uint64_t made);

  const Site site_;
  CopyTable table_;
  Registry& registry_;
  std::mutex mutex_;  // one at a time
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_COPY_SHELF_H_

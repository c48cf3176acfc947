// What a job that has arrived becomes on this node: images in the store, records of its tasks, and processes.
#ifndef COORDINATOR_AGENT_ARRIVAL_JOB_H_
#define COORDINATOR_AGENT_ARRIVAL_JOB_H_

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/interrupt.h"
#include "coordinator/job_record.h"
#include "coordinator/node/site.h"
#include "dedup/image_manifest.h"
#include "dedup/image_slot.h"
#include "dedup/store.h"
#include "ghost/task_config.h"

namespace stasis {

// A job by the names that it has on both nodes.
struct ArrivedJob {
  std::string token;  // by which ghosts know the restore
  std::string name;
  bool ranked = false;
  std::vector<std::string> tasks;  // by rank
};

// An interrupt that never comes.
class NoInterrupt : public Interrupt {
 public:
  int fd() const override { return -1; }
  bool Take() override { return false; }
};

// kAlreadyExists: another job has the name of this one or of one of its tasks, or it is here and lives. `of`:
// by rank, what the arriving tasks are.
Status CheckRoomFor(const Folders& folders, const ArrivedJob& job, const std::vector<TaskConfig>& of);

// One image for each task under its next id, of which everything but the name is on stable storage. Goes with
// the object unless it was published. Not thread-safe.
class PreparedImages {
 public:
  // All chunks must be in `writer`, which is finished by it. kFailedPrecondition: some are missing.
  static Result<PreparedImages> Prepare(const std::shared_ptr<Store>& store, StoreWriter& writer,
                                        const std::vector<std::string>& tasks,
                                        std::vector<ImageManifest> manifests);
  PreparedImages(PreparedImages&&);
  ~PreparedImages();

  const std::vector<std::string>& ids() const { return ids_; }
  // The sum that each manifest ends with (dedup/image_manifest.h).
  const std::vector<std::string>& sums() const { return sums_; }
  // After an error no image is left.
  Status Publish();

 private:
  PreparedImages(std::shared_ptr<Store> store, std::vector<std::string> tasks);

  std::shared_ptr<Store> store_;
  std::vector<std::string> tasks_, ids_, sums_;  // by rank
  std::vector<std::unique_ptr<ImageSlot>> slots_;
};

// Both; returns the ids.
Result<std::vector<std::string>> CommitImages(const std::shared_ptr<Store>& store, StoreWriter& writer,
                                              const ArrivedJob& job, std::vector<ImageManifest> manifests);

// Of the sum that a serialized manifest ends with.
std::string SumOf(std::span<const std::byte> manifest);

// What says of an imported task that it is one of `config`: ImportedTaskJson() and its rank.
Json RecordOfTask(const Site& site, const TaskPaths& paths, const Json& task, const TaskConfig& config);

// Records of ended tasks that can be restored from `images`, in place of those that an earlier stay has left.
// `record`: of a ranked job; its id is then the job's image. After an error none is left.
Status WriteRecords(const Site& site, const ArrivedJob& job, const std::vector<ImageManifest>& manifests,
                    const std::vector<std::string>& images, const std::optional<JobRecord>& record);
// The same backwards, with the images.
void RemoveRecords(const Site& site, const ArrivedJob& job, const std::vector<std::string>& images);

// Waits for what the ghost of a task is at. False: `stop` was set before.
bool AwaitGhost(const Site& site, const TaskPaths& paths, const std::atomic<bool>* stop = nullptr);

// In the form of a ghost's result; an error: none came, and how it ended is to be found out. `gpus`: by rank.
Result<Json> RestoreArrived(const Site& site, const ArrivedJob& job, const std::vector<std::string>& images,
                            const std::vector<std::vector<int>>& gpus, uint32_t deadline_ms);

// Whether it runs here, or has run here, once no ghost restores it any more; what is left of a restore that
// was broken off is ended. Blocks meanwhile, also while it cannot be looked at. Nothing: `stop` was set
// before it was known.
std::optional<bool> HasArrived(const Site& site, const ArrivedJob& job, const std::atomic<bool>& stop);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_ARRIVAL_JOB_H_

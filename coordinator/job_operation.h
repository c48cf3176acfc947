// The verbs on a job: each is done to all of its ranks or to none.
//
// Prints nothing, takes no signals, and may be used by several threads for different jobs; of one job one
// operation runs at a time, whichever process it is of.
#ifndef COORDINATOR_JOB_OPERATION_H_
#define COORDINATOR_JOB_OPERATION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "coordinator/job_images.h"
#include "coordinator/job_record.h"
#include "coordinator/rank_stand.h"
#include "coordinator/star.h"

namespace stasis {

struct JobPlace {
  std::string state_dir;
  std::string run_dir;
  std::string ghost;  // path of stasis-ghost
};

struct JobRequest {
  enum class Verb { kPause, kResume, kCheckpoint, kRestore, kMigrate, kCancel };
  Verb verb = Verb::kPause;
  Json fields = Json::object();                  // of each rank's request, beside those that follow
  Duration deadline = std::chrono::seconds(30);  // of one attempt
  Duration wait_low{};
  // pause, checkpoint, migrate: look for the cut through the ranks' collectives; else stop them anywhere and
  // let them run on when that has not worked by the deadline.
  bool cut = true;
  // How often a pause that did not come to be in time, and was undone, is tried.
  int attempts = 3;
  bool stop = false;           // checkpoint
  std::string image;           // restore: of the job; empty: the newest
  std::vector<int> gpus;       // resume, restore, migrate: of each rank; empty: where it was
  std::vector<JobNode> nodes;  // restore; empty: those of the record
  bool whole_job = true;       // cancel: else what runs on it is given up
  // A rank that does not even answer a question for its state for so long counts as lost.
  Duration silence = std::chrono::seconds(10);
  uint64_t seed = 0;  // of the pauses between attempts
};
const char* JobVerbName(JobRequest::Verb verb);

struct JobWatcher {
  // As a ghost's events (docs/ghost-protocol.md).
  std::function<void(int rank, const Json& event)> on_event;
  // An attempt has failed and another one follows.
  std::function<void(int attempt, const std::string& why)> on_attempt;
  Interrupt* interrupt = nullptr;
};

class JobOperation {
 public:
  JobOperation(JobPlace place, JobRecord record, JobWatcher watcher)
      : place_(std::move(place)), record_(std::move(record)), watcher_(std::move(watcher)) {}

  // From start to end; see docs/jobs.md for the result.
  Json Run(const JobRequest& request);
  // Where each rank stands when nothing works on it any more: for who finds a job whose coordinator is gone.
  // kFailedPrecondition: another operation runs, or what a lost coordinator has left does not end.
  Result<std::vector<RankStand>> AwaitRest();

 private:
  Json RunLocked();
  Json RefuseIfMoved() const;
  Json GiveUpOperation();
  Json CancelAll();
  Json RestoreAll();
  Json MoveAll();
  Json RunAttempts(const std::vector<Json>& requests, Meeting::Options options);
  Status Prepare(std::vector<Json>* requests, Meeting::Options* options, std::string* remedy);
  Status PrepareResume(std::vector<Json>* requests);

  Status Reach();
  Result<std::vector<RankStand>> AskStands();
  Status AwaitStands();
  bool Ended(int rank) const;
  std::vector<std::string> Lefts(const StarOutcome& outcome);
  Status BeforeGo(VotePoint point);
  bool BackOff(int attempt);

  Json RequestOf(int rank) const;
  std::vector<Json> SameForAll() const;
  std::vector<Json> RestoreRequests(const JobImage& image) const;
  std::vector<GhostPlace> Places() const;
  Json Failed(const Status& status, const std::string& remedy = "") const;
  Json Finished(const StarOutcome& outcome);

  const JobPlace place_;
  JobRecord record_;
  const JobWatcher watcher_;
  JobRequest request_;

  Fd lock_;
  std::unique_ptr<Star> star_;
  std::unique_ptr<JobImages> images_;
  std::vector<RankStand> stands_;
  std::string job_image_;  // that this operation has written
};

}  // namespace stasis

#endif  // COORDINATOR_JOB_OPERATION_H_

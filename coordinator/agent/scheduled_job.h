// One job's schedule: when it is checkpointed, and what is done when it fails. Decides only; who carries it
// out tells what became of it.
#ifndef COORDINATOR_AGENT_SCHEDULED_JOB_H_
#define COORDINATOR_AGENT_SCHEDULED_JOB_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/status.h"
#include "coordinator/agent/checkpoint_timer.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"
#include "stasis/v1/operation.pb.h"

namespace stasis {

// What is done next; kNothing most of the time.
enum class Step {
  kNothing,
  kCheckpoint,
  kEndRest,  // a rank has failed: the others are ended
  kRestore,  // from the newest image that is not in bad_images()
};

// What of a schedule outlives the agent's process.
struct ScheduleState {
  enum class Phase {
    kWatching,    // the job runs, or is about to
    kRestarting,  // it has failed and is to come back
    kGivenUp,     // it has failed and is left alone
    kEnded,       // as it should have, or on request
  };
  Phase phase = Phase::kWatching;
  int64_t job_created_ms = 0;  // of another job of that name it would be another one
  CheckpointCost cost;
  int64_t last_ms = 0;  // start of the last checkpoint, since 1970; 0: none
  uint32_t restarts = 0;
  uint32_t failures_in_a_row = 0;  // of the job, since its last image
  bool ends_rest = false;          // it was we who ended what was left of the job
  std::string last_error;
  std::string last_image;
  // The operation that was started last: its number here, and, until it has ended, what it is. `operation` is
  // empty while it is not known whether it was started.
  uint64_t sequence = 0;
  Step pending = Step::kNothing;
  std::string image;  // of kRestore
  std::string operation;

  Json ToJson() const;
  static ScheduleState FromJson(const Json& json);
};
const char* PhaseName(ScheduleState::Phase phase);

// Not thread-safe.
class ScheduledJob {
 public:
  // `rules` as RulesOf() gives them, checked. `now` is when the agent begins to look, or the schedule is
  // made.
  ScheduledJob(v1::Schedule rules, ScheduleState state, double default_mtbf_ms, Moment now);

  // Other rules for the same job: what was measured stays.
  void SetRules(v1::Schedule rules, const v1::Job& job, Moment now);

  // What is to be done now that the job is as `job` says.
  Step Next(const v1::Job& job, Moment now);
  // How long from `now` until Next() can answer otherwise though the job does not change; nothing: never.
  std::optional<Duration> Wait(Moment now);

  // The step is about to be started. `image` is that of a restore.
  void Begin(Step step, const std::string& image, Moment now);
  void Began(const std::string& operation) { state_.operation = operation; }
  // It could not be started.
  void NotBegun(const Status& status, Moment now);
  // There is none to restore.
  void NoImage();
  // Any operation on the job has ended, its own among them.
  void Ended(const v1::Operation& operation, Moment now);

  const v1::Schedule& rules() const { return rules_; }
  const ScheduleState& state() const { return state_; }
  const std::set<std::string>& bad_images() const { return bad_images_; }
  // The message that tells all of it.
  v1::Schedule Told(Moment now);

 private:
  Step NextOfFailed(const v1::Job& job, Moment now);
  void Revive(Moment now);
  void PlanRestart(Moment now);
  void GiveUp(const std::string& why);
  void CheckpointEnded(const v1::Operation& operation, const Json& result, Moment now);
  void OwnCheckpointFailed(const v1::Operation& operation, const Json& result, Moment now);
  void RestEnded(const v1::Operation& operation, const Json& result, Moment now);
  void RestoreEnded(const v1::Operation& operation, const Json& result, Moment now);
  void RestartFailed(const std::string& why, Moment now);
  int64_t NextMs(Moment now);
  int64_t RestartMs(Moment now) const;

  v1::Schedule rules_;
  ScheduleState state_;
  double default_mtbf_ms_;
  std::optional<CheckpointTimer> timer_;
  std::optional<MonotonicTime> count_from_;  // when the next run is seen; nothing: from then
  bool begun_ = false;                       // timer_ counts
  bool runs_ = false;                        // it was seen last to run
  std::optional<MonotonicTime> restart_;     // when, in phase kRestarting
  std::set<std::string> bad_images_;         // that could not be restored
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULED_JOB_H_

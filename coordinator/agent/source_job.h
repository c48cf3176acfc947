// A job of this node that is about to move to another one: what is done to it here, be it one task or several
// ranks.
#ifndef COORDINATOR_AGENT_SOURCE_JOB_H_
#define COORDINATOR_AGENT_SOURCE_JOB_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/agent/operations.h"
#include "coordinator/job_operation.h"
#include "coordinator/job_record.h"
#include "coordinator/node/site.h"
#include "coordinator/node/task.h"
#include "ghost/manifest.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// An image of all of a job.
struct SourceImage {
  std::string id;                  // of the job's image, or the task's
  std::vector<std::string> tasks;  // of each task, its id
  bool empty() const { return tasks.empty(); }
};

// Not thread-safe. What ghosts tell goes to `context`, whose interrupt gives up what runs.
class SourceJob {
 public:
  // kNotFound: no such job; kUnsupported: one whose ranks are on several nodes. `verb`: what is about to be
  // done, for people.
  static Result<SourceJob> Open(const Site& site, const std::string& name, OperationContext& context,
                                const char* verb = "migrate");

  const std::string& name() const { return name_; }
  bool ranked() const { return record_.has_value(); }
  const JobRecord& record() const { return *record_; }
  const std::vector<std::string>& tasks() const { return tasks_; }

  // The named one, or the newest. kNotFound.
  Result<SourceImage> FindImage(const std::string& id) const;
  // OK: all of it runs, or all is paused (`*paused`). kFailedPrecondition says what it is instead.
  Status CheckMovable(bool* paused) const;
  // In the order of tasks(), the needs of each as it is now (compatibility.h); `*device_bytes`: what they
  // have allocated.
  Result<std::vector<Manifest>> Describe(uint64_t* device_bytes);

  // In the form of a ghost's result. `step` tells this call from others of the operation.
  Json Pause(const v1::PauseOptions& options, const std::string& step);
  Json Resume(const std::string& step);
  Json Restore(const std::string& image, const std::string& step);
  // `*image`: what it has made. `snapshot`: of a running job.
  Json Checkpoint(const v1::PauseOptions& options, bool snapshot, const std::string& step,
                  SourceImage* image);

  // Marks that nothing makes it run here any more (coordinator/moved_mark.h), and takes the marks away.
  Status Mark(const std::string& node);
  Status Unmark();
  // All of it carries its mark. One that was marked and is not any more has been taken back.
  bool Marked() const;

  // When nothing works on it any more.
  Status AwaitRest(bool* paused, bool* ended);
  // Whether a task of it was ended by a signal that nobody here had asked for.
  bool Killed() const;
  // Ends what is paused, without an instruction of it being executed. OK where nothing is left.
  Status EndPaused();
  void RemoveImage(const SourceImage& image);
  // Processes of the ghosts.
  std::vector<pid_t> Ghosts() const;

 private:
  SourceJob(const Site& site, std::string name, OperationContext& context)
      : site_(site), name_(std::move(name)), context_(&context) {}
  Json AskTask(Json request, const std::string& step);
  Json AskJob(JobRequest request);
  TaskPaths PathsOf(size_t rank) const { return TaskPaths(site_.folders, tasks_[rank]); }

  Site site_;
  std::string name_;
  OperationContext* context_;
  std::optional<JobRecord> record_;
  std::vector<std::string> tasks_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SOURCE_JOB_H_

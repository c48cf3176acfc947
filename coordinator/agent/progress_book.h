// How fast the jobs of this node get on, asked of their processes when somebody wants to know.
#ifndef COORDINATOR_AGENT_PROGRESS_BOOK_H_
#define COORDINATOR_AGENT_PROGRESS_BOOK_H_

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "coordinator/agent/progress_window.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// Thread-safe; calls wait for the processes, each for a moment at most.
class ProgressBook {
 public:
  using Ask = std::function<Result<TaskProgress>(const v1::Rank& rank)>;
  // `ask`: how a running rank is asked. `clock` and the registry outlive it.
  ProgressBook(const Registry& registry, Ask ask, const Clock& clock = Clock::Real())
      : registry_(registry), ask_(std::move(ask)), clock_(clock) {}

  // kNotFound: there is no such job. One that does not run has no progress, and is left out.
  Result<v1::ProgressResponse> Answer(const v1::ProgressRequest& request);

 private:
  v1::JobProgress Look(const v1::Job& job, Duration window);
  void Look(const v1::Rank& rank, Duration window, v1::RankProgress* told, bool* iterations);
  void ForgetOldLocked();

  const Registry& registry_;
  const Ask ask_;
  const Clock& clock_;
  std::mutex mutex_;
  std::map<std::string, ProgressWindow> windows_;  // by task; guarded by mutex_
};

// Over the control sockets of all processes of the task that use CUDA. kUnavailable: there is none.
Result<TaskProgress> AskProgress(const Folders& folders, const v1::Rank& rank);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PROGRESS_BOOK_H_

#include "coordinator/agent/progress_book.h"

#include <algorithm>
#include <utility>

#include "ghost/member.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr auto kDefaultWindow = std::chrono::seconds(30);
// A process that a ghost is busy with answers nobody else.
constexpr auto kAnswerTime = std::chrono::milliseconds(500);

bool IsRunning(const v1::Rank& rank) {
  return rank.condition() == v1::CONDITION_RUNNING && rank.init_pid() > 0;
}

bool AnyRuns(const v1::Job& job) { return std::any_of(job.ranks().begin(), job.ranks().end(), IsRunning); }

uint32_t Milliseconds(Duration duration) {
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

}  // namespace

Result<v1::ProgressResponse> ProgressBook::Answer(const v1::ProgressRequest& request) {
  std::vector<JobPicture> jobs = registry_.List();
  if (request.jobs_size() > 0) {
    jobs.clear();
    for (const std::string& name : request.jobs()) {
      JobPicture job = registry_.Find(name);
      if (job == nullptr) return Status(StatusCode::kNotFound, "there is no job " + name);
      jobs.push_back(std::move(job));
    }
  }
  const Duration window = request.window_ms() == 0 ? Duration(kDefaultWindow)
                                                   : Duration(std::chrono::milliseconds(request.window_ms()));
  v1::ProgressResponse response;
  for (const JobPicture& job : jobs) {
    if (AnyRuns(*job)) *response.add_jobs() = Look(*job, window);
  }
  std::lock_guard lock(mutex_);
  ForgetOldLocked();
  return response;
}

v1::JobProgress ProgressBook::Look(const v1::Job& job, Duration window) {
  v1::JobProgress progress;
  progress.set_job(job.name());
  double sum = 0;
  int told = 0;
  bool iterations = false;
  for (const v1::Rank& rank : job.ranks()) {
    v1::RankProgress* each = progress.add_ranks();
    each->set_rank(rank.rank());
    // Its ghost is connected, and whoever else connects would stand in the way of the next one.
    if (!job.operation().empty()) {
      each->set_error("operation " + job.operation() + " works on it");
      continue;
    }
    if (!IsRunning(rank)) {
      each->set_error(rank.task() + " does not run");
      continue;
    }
    Look(rank, window, each, &iterations);
    if (each->over_ms() == 0) continue;
    sum += each->rate();
    ++told;
    progress.set_over_ms(told == 1 ? each->over_ms() : std::min(progress.over_ms(), each->over_ms()));
  }
  progress.set_unit(iterations ? "iterations" : "launches");
  if (told > 0) progress.set_rate(sum / told);
  return progress;
}

void ProgressBook::Look(const v1::Rank& rank, Duration window, v1::RankProgress* told, bool* iterations) {
  Result<TaskProgress> counted = ask_(rank);
  if (!counted.ok()) return told->set_error(std::string(counted.status().message()));
  told->set_iterations(counted->iterations);
  told->set_launches(counted->launches);
  *iterations = *iterations || counted->iterations > 0;
  std::lock_guard lock(mutex_);
  ProgressWindow& answers = windows_[rank.task()];
  answers.Add(clock_.Now(), *counted);
  const std::optional<ProgressWindow::Rate> rate = answers.RateOver(window);
  if (!rate) return;
  told->set_rate(rate->per_second);
  told->set_over_ms(std::max<uint32_t>(1, Milliseconds(rate->over)));
}

void ProgressBook::ForgetOldLocked() {
  const MonotonicTime now = clock_.Now();
  std::erase_if(windows_, [&](const auto& entry) {
    return entry.second.empty() || now - entry.second.newest() > kLongestProgressWindow;
  });
}

Result<TaskProgress> AskProgress(const Folders& folders, const v1::Rank& rank) {
  const Deadline deadline = Deadline::After(kAnswerTime);
  ASSIGN_OR_RETURN(std::vector<pid_t> tree, ProcessTree(rank.init_pid()));
  TaskProgress sum;
  bool any = false;
  for (const MemberSocket& socket : FindMembers(TaskPaths(folders, rank.task()).ctl, tree)) {
    ASSIGN_OR_RETURN(auto member, Member::Connect(socket.path, socket.pid, deadline));
    ASSIGN_OR_RETURN(Message answer, member->Call(TaskMessage::kProgress, {}, {}, deadline));
    ASSIGN_OR_RETURN(TaskProgress one, DecodeTaskProgress(answer.payload));
    sum.iterations += one.iterations;
    sum.launches += one.launches;
    any = true;
  }
  if (any) return sum;
  return Status(StatusCode::kUnavailable, "no process of " + rank.task() + " has used a device yet");
}

}  // namespace stasis

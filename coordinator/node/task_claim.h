// The name of a task or job that is being made, and the folders that go with it.
#ifndef COORDINATOR_NODE_TASK_CLAIM_H_
#define COORDINATOR_NODE_TASK_CLAIM_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "coordinator/job_record.h"
#include "coordinator/node/layout.h"

namespace stasis {

// A task's folders, made for it and removed again unless it was started.
class TaskClaim {
 public:
  // kAlreadyExists: there is a task or a job of that name, or the name is one of a job's rank.
  static Result<TaskClaim> Make(const Folders& folders, const std::string& name);
  TaskClaim(TaskClaim&& other) noexcept : paths_(std::exchange(other.paths_, std::nullopt)) {}
  TaskClaim& operator=(TaskClaim&&) = delete;
  ~TaskClaim();
  const TaskPaths& paths() const { return *paths_; }
  void Keep() { paths_.reset(); }

 private:
  friend class JobClaim;
  explicit TaskClaim(TaskPaths paths) : paths_(std::move(paths)) {}
  static Result<TaskClaim> MakeFolder(const Folders& folders, const std::string& name);
  std::optional<TaskPaths> paths_;
};

// A job's folder and those of the tasks of its ranks.
class JobClaim {
 public:
  // kAlreadyExists: there is a job or a task of that name, or a task with the name of one of the ranks.
  static Result<JobClaim> Make(const Folders& folders, const std::string& name, int ranks);
  JobClaim(JobClaim&& other) noexcept
      : folder_(std::exchange(other.folder_, "")),
        name_(std::move(other.name_)),
        tasks_(std::move(other.tasks_)) {}
  JobClaim& operator=(JobClaim&&) = delete;
  ~JobClaim();
  const std::string& name() const { return name_; }
  const TaskPaths& rank(int rank) const { return tasks_[static_cast<size_t>(rank)].paths(); }
  void Keep();

 private:
  JobClaim(std::string folder, std::string name) : folder_(std::move(folder)), name_(std::move(name)) {}
  std::string folder_;  // "": not ours any more
  std::string name_;
  std::vector<TaskClaim> tasks_;
};

// The name of a task that is not given one: the program's file name, as far as a name can hold it, with the
// first number for which `make` does not fail with kAlreadyExists.
template <typename Claim, typename Make>
Result<Claim> ClaimNumbered(const std::string& stem, Make make) {
  constexpr int kMaxNumber = 1000000;
  for (int number = 1; number < kMaxNumber; number++) {
    Result<Claim> claim = make(stem + "-" + std::to_string(number));
    if (claim.ok() || claim.status().code() != StatusCode::kAlreadyExists) return claim;
  }
  return Status(StatusCode::kAlreadyExists, "every name " + stem + "-N is taken");
}
std::string NameStem(const std::string& program);

// What a user can do who was told that a name is taken.
std::string ClashRemedy(const Folders& folders, const std::string& name);

}  // namespace stasis

#endif  // COORDINATOR_NODE_TASK_CLAIM_H_

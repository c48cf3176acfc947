#include "coordinator/agent/registry.h"

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/files.h"
#include "coordinator/agent/job_board.h"
#include "coordinator/agent/job_reading.h"
#include "coordinator/agent/node_watch.h"
#include "coordinator/ghost_children.h"
#include "coordinator/job_record.h"

namespace stasis {
namespace {

using Place = NodeWatch::Place;

// Where the kernel gives no watch (a limit), there is no event to wait for.
constexpr auto kUnwatchedTime = std::chrono::seconds(1);

// So that revisions ascend from one agent to the next: no agent makes a million changes in a second.
uint64_t FirstRevision() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

bool IsTaskFile(const std::string& file) {
  return file == "task.json" || file == "process.json" || file == "status.json" || file == "exit.json";
}

class WatchingRegistry final : public Registry {
 public:
  WatchingRegistry(const Folders& folders, std::unique_ptr<NodeWatch> watch)
      : folders_(folders), watch_(std::move(watch)), board_(FirstRevision(), [this] { watch_->Wake(); }) {}
  ~WatchingRegistry() override {
    stop_ = true;
    watch_->Wake();
    if (thread_.joinable()) thread_.join();
  }

  Status Begin() {
    RETURN_IF_ERROR(MakeFolders(TasksFolder()));
    RETURN_IF_ERROR(MakeFolders(JobsFolder()));
    RETURN_IF_ERROR(watch_->WatchFolder(TasksFolder(), Place::kTasks, ""));
    RETURN_IF_ERROR(watch_->WatchFolder(JobsFolder(), Place::kJobs, ""));
    GhostChildren& children = GhostChildren::OfThisProcess();
    RETURN_IF_ERROR(watch_->WatchDescriptor(children.fd(), [&children] { children.Reap(); }));
    for (const std::string& name : EveryName()) Refresh(name);
    board_.Deliver();
    thread_ = std::thread([this] { Serve(); });
    return Status();
  }

  std::vector<JobPicture> List() const override { return board_.List(); }
  JobPicture Find(const std::string& name) const override { return board_.Find(name); }
  uint64_t revision() const override { return board_.revision(); }
  std::vector<std::string> Notes() const override { return board_.Notes(); }
  std::unique_ptr<Subscription> Subscribe(std::function<void(const JobPicture&)> changed) override {
    return board_.Subscribe(std::move(changed));
  }
  void SetOperation(const std::string& name, const std::string& operation) override {
    board_.SetOperation(name, operation);
  }
  void SetMovedTo(const std::string& name, const std::string& node) override {
    board_.SetMovedTo(name, node);
  }
  void Refresh(const std::string& name) override;

 private:
  std::string TasksFolder() const { return folders_.state + "/tasks"; }
  std::string JobsFolder() const { return folders_.state + "/jobs"; }
  std::set<std::string> EveryName() const;
  Status WatchFoldersOf(const std::string& name);
  v1::Job WithManaged(v1::Job job);
  void Forget(const std::string& name);
  void Serve();
  std::set<std::string> TakeEvents();
  void NoteEvent(const NodeWatch::Event& event, std::set<std::string>* names);
  std::set<std::string> Unwatched() const;

  const Folders folders_;
  const std::unique_ptr<NodeWatch> watch_;
  JobBoard board_;
  std::atomic<bool> stop_{false};
  std::thread thread_;

  // Held from reading files to putting what they say on the board: what is read later is put later.
  mutable std::mutex reading_mutex_;
  std::map<std::string, std::set<std::string>> ranks_of_;  // tasks that are, or were, of a job; by job
  std::set<std::string> unwatched_;
  std::set<std::string> managed_;  // tasks that have been seen to make a control socket
};

// Names of everything on record, ranks' tasks among them, and of what is on the board.
std::set<std::string> WatchingRegistry::EveryName() const {
  std::set<std::string> names;
  for (const std::string& job : ListJobs(folders_.state)) names.insert(job);
  for (const std::string& task : ListTasks(folders_)) names.insert(task);
  for (const JobPicture& job : board_.List()) names.insert(job->name());
  return names;
}

Status WatchingRegistry::WatchFoldersOf(const std::string& name) {
  std::string job = JobsFolder() + "/" + name;
  RETURN_IF_ERROR(watch_->WatchFolder(job, Place::kJob, name));
  RETURN_IF_ERROR(watch_->WatchFolder(job + "/images", Place::kJobImages, name));
  for (const std::string& task : TasksOfJob(folders_, name)) {
    TaskPaths paths(folders_, task);
    RETURN_IF_ERROR(watch_->WatchFolder(paths.folder, Place::kTask, task));
    RETURN_IF_ERROR(watch_->WatchFolder(paths.ctl, Place::kControl, task));
    if (task != name) ranks_of_[name].insert(task);
  }
  return Status();
}

// A program that ends takes its socket away with it, and may have had it for a moment only.
v1::Job WatchingRegistry::WithManaged(v1::Job job) {
  for (v1::Rank& rank : *job.mutable_ranks()) {
    if (rank.managed()) managed_.insert(rank.task());
    rank.set_managed(managed_.count(rank.task()) != 0);
  }
  return job;
}

void WatchingRegistry::Forget(const std::string& name) {
  if (auto ranks = ranks_of_.find(name); ranks != ranks_of_.end()) {
    for (const std::string& task : ranks->second) managed_.erase(task);
  }
  // The task of a rank is no job, and goes with its job.
  if (!Exists(TaskPaths(folders_, name).folder)) managed_.erase(name);
  board_.Remove(name);
}

void WatchingRegistry::Refresh(const std::string& name) {
  if (!CheckTaskName(name).ok()) return;
  std::lock_guard lock(reading_mutex_);
  // What changes after this is told; what has changed before is read.
  Status watched = WatchFoldersOf(name);
  Result<JobReading> reading = ReadJob(folders_, name);
  Status processes =
      watch_->WatchProcesses(name, reading.ok() ? reading->processes : std::vector<ProcessIdentity>());
  if (watched.ok() && processes.ok())
    unwatched_.erase(name);
  else
    unwatched_.insert(name);
  if (reading.ok())
    board_.Put(WithManaged(std::move(reading->job)));
  else if (reading.status().code() == StatusCode::kNotFound)
    Forget(name);
  else
    board_.PutNote(name, reading.status().ToString());
}

void WatchingRegistry::Serve() {
  while (!stop_) {
    for (const std::string& name : TakeEvents()) Refresh(name);
    board_.Deliver();
  }
}

// Returns when there are any: the names of jobs that may have changed.
std::set<std::string> WatchingRegistry::TakeEvents() {
  std::set<std::string> unwatched = Unwatched();
  Deadline deadline = unwatched.empty() ? Deadline::Never() : Deadline::After(kUnwatchedTime);
  Result<NodeWatch::Events> events = watch_->Wait(deadline);
  if (!events.ok() || events->lost) return EveryName();
  std::set<std::string> names(events->ended.begin(), events->ended.end());
  std::lock_guard lock(reading_mutex_);
  for (const NodeWatch::Event& event : events->files) NoteEvent(event, &names);
  if (deadline.Expired()) names.insert(unwatched.begin(), unwatched.end());
  return names;
}

std::set<std::string> WatchingRegistry::Unwatched() const {
  std::lock_guard lock(reading_mutex_);
  return unwatched_;
}

void WatchingRegistry::NoteEvent(const NodeWatch::Event& event, std::set<std::string>* names) {
  if (event.place == Place::kTask && !IsTaskFile(event.file)) return;
  if (event.place == Place::kControl && event.file.ends_with(".sock")) managed_.insert(event.owner);
  std::string name = event.owner.empty() ? event.file : event.owner;
  names->insert(name);
  for (const auto& [job, ranks] : ranks_of_) {
    if (ranks.count(name) != 0) names->insert(job);
  }
  if (event.place != Place::kJobs) return;
  // Without their job, ranks are tasks; with one that was made a moment ago they are none.
  names->merge(std::set<std::string>(ranks_of_[name]));
  if (!Exists(JobsFolder() + "/" + name)) ranks_of_.erase(name);
}

}  // namespace

Result<std::unique_ptr<Registry>> Registry::Start(const Site& site) {
  ASSIGN_OR_RETURN(std::unique_ptr<NodeWatch> watch, NodeWatch::Make());
  auto registry = std::make_unique<WatchingRegistry>(site.folders, std::move(watch));
  RETURN_IF_ERROR(registry->Begin());
  return std::unique_ptr<Registry>(std::move(registry));
}

}  // namespace stasis

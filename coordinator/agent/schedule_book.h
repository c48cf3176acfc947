// All schedules of a node: what they ask for is started as operations, what becomes of those is told to them.
// No thread and no clock of its own; schedules.h has both.
#ifndef COORDINATOR_AGENT_SCHEDULE_BOOK_H_
#define COORDINATOR_AGENT_SCHEDULE_BOOK_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/image_shelf.h"
#include "coordinator/agent/operations.h"
#include "coordinator/agent/registry.h"
#include "coordinator/agent/schedule_table.h"
#include "coordinator/agent/scheduled_job.h"

namespace stasis {

// Everything here outlives the book.
struct ScheduleParts {
  Database* database = nullptr;
  Registry* registry = nullptr;
  Operations* operations = nullptr;
  ImageShelf* images = nullptr;
  // Carries out what may take long, one after the other, on another thread than the caller's.
  std::function<void(std::function<void()>)> background;
  // Something has happened: Turn() is to be called soon. From any thread; must not block.
  std::function<void()> wake;
  double default_mtbf_ms = 0;  // for intervals that are only suggested; 0: none
};

// Thread-safe.
class ScheduleBook {
 public:
  // Takes up what is on record: operations that were under way, jobs that failed meanwhile.
  static Result<std::unique_ptr<ScheduleBook>> Open(ScheduleParts parts, Moment now);

  // Does what is due, and what follows from what has happened. Returns how long from `now` until it must be
  // called again though nothing happens; nothing: never.
  std::optional<Duration> Turn(Moment now);

  // Replaces the schedule of a job, or makes or (without any rule) removes it; on stable storage when it
  // returns. kNotFound: there is no such job; kInvalidArgument.
  Result<v1::Schedule> Set(const v1::Schedule& schedule, Moment now);
  // By job; `job` "": of all. Never waits for disk.
  std::vector<v1::Schedule> List(const std::string& job) const;

 private:
  struct Entry {
    ScheduledJob job;
    std::optional<MonotonicTime> wake;
    std::string saved;  // its state as it is on record
  };
  struct Events {
    std::set<std::string> jobs;
    std::vector<v1::Operation> ended;
  };

  explicit ScheduleBook(ScheduleParts parts);
  void Subscribe();
  Status Load(Moment now);
  void TakeUp(Entry& entry, Moment now);
  Events TakeEvents();
  void HandleEnded(const v1::Operation& operation, Moment now);
  void NoteImage(const std::string& job, const ScheduleImage& image, const v1::Schedule& rules);
  void Keep(const std::string& job, const v1::Schedule& rules);
  void Process(const std::string& name, Moment now);
  void Start(Entry& entry, Step step, Moment now);
  void Submit(Entry& entry, Moment now);
  Status Save(Entry& entry);
  void Tell(Entry& entry, Moment now);
  Status Drop(const std::string& name);

  const ScheduleParts parts_;
  ScheduleTable table_;

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;

  mutable std::mutex told_mutex_;
  std::map<std::string, v1::Schedule> told_;

  std::mutex events_mutex_;
  Events events_;
  // Last: they end before what they write to.
  std::unique_ptr<Registry::Subscription> jobs_;
  std::unique_ptr<Operations::Subscription> operations_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_BOOK_H_

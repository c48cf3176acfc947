// The schedules while there are any: they begin after the operations and end before them, and calls come
// before, meanwhile and after.
#ifndef COORDINATOR_AGENT_SCHEDULE_SLOT_H_
#define COORDINATOR_AGENT_SCHEDULE_SLOT_H_

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/schedules.h"

namespace stasis {

// Thread-safe.
class ScheduleSlot {
 public:
  void Fill(std::unique_ptr<Schedules> schedules) {
    std::unique_lock lock(mutex_);
    schedules_ = std::move(schedules);
  }
  // Returns when nobody uses them any more and they have ended.
  void Empty() {
    std::unique_ptr<Schedules> last;
    std::unique_lock lock(mutex_);
    last = std::move(schedules_);
    lock.unlock();
  }
  // kUnavailable: there are none.
  Result<v1::Schedule> Set(const v1::Schedule& schedule) {
    std::shared_lock lock(mutex_);
    if (schedules_ == nullptr) return Status(StatusCode::kUnavailable, "the agent begins or ends");
    return schedules_->Set(schedule);
  }
  std::vector<v1::Schedule> List(const std::string& job) const {
    std::shared_lock lock(mutex_);
    return schedules_ == nullptr ? std::vector<v1::Schedule>() : schedules_->List(job);
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unique_ptr<Schedules> schedules_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_SLOT_H_

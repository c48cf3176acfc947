#include "coordinator/agent/schedules.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <deque>
#include <mutex>
#include <thread>

#include "base/fd.h"
#include "base/quiet_thread.h"
#include "coordinator/agent/schedule_book.h"

namespace stasis {
namespace {

Moment Now() {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return {Clock::Real().Now(), int64_t{wall.tv_sec} * 1000 + wall.tv_nsec / 1000000};
}

// Work in its order, on one thread. What waits when it ends is not done.
class Worker {
 public:
  Worker() : thread_(StartQuietThread([this] { Run(); })) {}
  ~Worker() {
    {
      std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void Add(std::function<void()> work) {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stops_ || !work_.empty(); });
      if (stops_) return;
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool stops_ = false;
  std::thread thread_;
};

// What the deciding thread waits for: an event, a length of time, or that somebody sets the clock.
class Alarm {
 public:
  static Result<std::unique_ptr<Alarm>> Make() {
    std::unique_ptr<Alarm> alarm(new Alarm);
    if (!alarm->event_.valid() || !alarm->clock_.valid() || !alarm->timer_.valid()) {
      return ErrnoStatus(errno, "make a timer");
    }
    RETURN_IF_ERROR(alarm->WatchClock());
    return alarm;
  }

  void Ring() {
    uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof one);
  }

  void Wait(std::optional<Duration> longest) {
    SetTimer(longest);
    pollfd fds[] = {{event_.get(), POLLIN, 0}, {timer_.get(), POLLIN, 0}, {clock_.get(), POLLIN, 0}};
    (void)poll(fds, std::size(fds), -1);
    uint64_t count;
    (void)!read(event_.get(), &count, sizeof count);
    (void)!read(timer_.get(), &count, sizeof count);
    if (read(clock_.get(), &count, sizeof count) < 0 && errno == ECANCELED) (void)WatchClock();
  }

 private:
  Alarm()
      : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
        clock_(timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK)) {}

  // Far away: it is only cancelled when the clock is set.
  Status WatchClock() {
    itimerspec never{};
    never.it_value.tv_sec = 253402300799;  // the end of the year 9999
    if (timerfd_settime(clock_.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr) != 0) {
      return ErrnoStatus(errno, "watch the clock");
    }
    return Status();
  }

  void SetTimer(std::optional<Duration> longest) {
    itimerspec time{};
    if (longest) {
      // Zero would stop it.
      auto wait = std::max<Duration>(*longest, Duration(1));
      auto whole = std::chrono::duration_cast<std::chrono::seconds>(wait);
      time.it_value.tv_sec = whole.count();
      time.it_value.tv_nsec = (wait - whole).count();
    }
    timerfd_settime(timer_.get(), 0, &time, nullptr);
  }

  const Fd event_;
  const Fd timer_;
  const Fd clock_;
};

class RealSchedules final : public Schedules {
 public:
  RealSchedules(const ScheduleOptions& options, std::unique_ptr<Alarm> alarm)
      : alarm_(std::move(alarm)), images_(MakeImageShelf(options.folders)) {}
  ~RealSchedules() override {
    stops_ = true;
    alarm_->Ring();
    if (thread_.joinable()) thread_.join();
  }

  Status Open(ScheduleParts parts) {
    parts.images = images_.get();
    parts.background = [this](std::function<void()> work) { worker_.Add(std::move(work)); };
    parts.wake = [this] { alarm_->Ring(); };
    ASSIGN_OR_RETURN(book_, ScheduleBook::Open(std::move(parts), Now()));
    thread_ = StartQuietThread([this] { Run(); });
    return Status();
  }

  Result<v1::Schedule> Set(const v1::Schedule& schedule) override { return book_->Set(schedule, Now()); }
  std::vector<v1::Schedule> List(const std::string& job) const override { return book_->List(job); }

 private:
  void Run() {
    while (!stops_) alarm_->Wait(book_->Turn(Now()));
  }

  const std::unique_ptr<Alarm> alarm_;
  const std::unique_ptr<ImageShelf> images_;
  std::atomic<bool> stops_{false};
  std::unique_ptr<ScheduleBook> book_;
  // Its work is the book's: it ends before that.
  Worker worker_;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Schedules>> Schedules::Start(Database& database, Registry& registry,
                                                    Operations& operations, const ScheduleOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Alarm> alarm, Alarm::Make());
  auto schedules = std::make_unique<RealSchedules>(options, std::move(alarm));
  ScheduleParts parts;
  parts.database = &database;
  parts.registry = &registry;
  parts.operations = &operations;
  parts.default_mtbf_ms = options.default_mtbf_ms;
  RETURN_IF_ERROR(schedules->Open(std::move(parts)));
  return std::unique_ptr<Schedules>(std::move(schedules));
}

}  // namespace stasis

// Work in threads of its own that can wait for something to change, and ends when all of it is to end.
#ifndef SCHEDULER_DAEMON_ERRANDS_H_
#define SCHEDULER_DAEMON_ERRANDS_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace stasis::scheduler {

// Thread-safe. Nothing is called with a lock held.
class Errands {
 public:
  using Alive = std::function<bool()>;

  Errands() = default;
  // Ends, and waits for all that is under way.
  ~Errands() { EndAndJoin(); }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  // `work` in a thread, and then `after`, when another errand for `subject` may already have begun. False:
  // one is under way, or it is over.
  bool Start(const std::string& subject, std::function<void()> work, std::function<void()> after = {});
  bool Busy(const std::string& subject) const;

  // Something has changed that others may wait for.
  void Wake();
  uint64_t changes() const;
  // Until there were more changes than `seen`, or an errand has ended.
  void AwaitChange(uint64_t seen, Duration longest);
  // False, at once: it is over, or `alive` says so, which is asked after each change. True: after `longest`.
  bool Wait(Duration longest, const Alive& alive);

  // Nothing new begins, and nobody waits. False: that was so before.
  bool End();
  bool ending() const;
  void EndAndJoin();
  // Frees the threads of errands that have ended.
  void Reap();

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;
  bool ending_ = false;
  std::map<std::string, std::thread> running_;  // by subject
  std::vector<std::thread> ended_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_ERRANDS_H_

// How far a long operation is, for whoever watches. Thread-safe.
#ifndef BASE_PROGRESS_H_
#define BASE_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace stasis {

class Progress {
 public:
  struct Report {
    std::string phase;
    uint64_t done = 0;
    uint64_t total = 0;
  };
  // `sink` is called with a lock held: it must not call back. May be empty.
  explicit Progress(std::function<void(const Report&)> sink) : sink_(std::move(sink)) {}

  void Begin(const std::string& phase, uint64_t total = 0) {
    std::lock_guard lock(mutex_);
    report_ = {phase, 0, total};
    told_ = 0;
    Tell();
  }
  // Not every chunk is worth a message: about a hundred a phase are.
  void Add(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    report_.done += bytes;
    if (report_.done - told_ >= report_.total / 100 || report_.done == report_.total) Tell();
  }

 private:
  void Tell() {
    told_ = report_.done;
    if (sink_) sink_(report_);
  }
  std::mutex mutex_;
  std::function<void(const Report&)> sink_;
  Report report_;
  uint64_t told_ = 0;
};

}  // namespace stasis

#endif  // BASE_PROGRESS_H_

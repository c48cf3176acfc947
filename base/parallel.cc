#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace stasis {

size_t CopyThreads() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 8); }

Status ParallelFor(size_t count, size_t threads, const std::function<Status(size_t, size_t)>& work) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status first;  // guarded by mutex
  auto run = [&](size_t worker) {
    for (size_t index = next++; index < count; index = next++) {
      Status status = work(index, worker);
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      if (first.ok()) first = std::move(status);
      next = count;  // a later increment leaves it above count
      return;
    }
  };
  std::vector<std::thread> helpers;
  for (size_t worker = 1; worker < std::min(threads, count); ++worker) helpers.emplace_back(run, worker);
  run(0);
  for (std::thread& helper : helpers) helper.join();
  return first;
}

}  // namespace stasis

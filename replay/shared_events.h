// Events that processes of the task share, by keys that are the same in all of them.
//
// A driver that has gone takes its side of them along. When they are made again, the first process that comes
// back makes a new one; the others open that, whoever of them had made the old one.
//
// Thread-safe; no driver call.
#ifndef REPLAY_SHARED_EVENTS_H_
#define REPLAY_SHARED_EVENTS_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace stasis::replay {

class SharedEvents {
 public:
  static SharedEvents& Get();

  // The driver's handle by which an event of this process can be opened now.
  void Note(uint64_t key, const CUipcEventHandle& handle);
  void Forget(uint64_t key);
  std::optional<CUipcEventHandle> Find(uint64_t key) const;

  // Asks the other processes of the task, as far as they have come back.
  using Finder = std::optional<CUipcEventHandle> (*)(uint64_t key);
  void set_finder(Finder finder);
  std::optional<CUipcEventHandle> AskOthers(uint64_t key) const;

  // For a child after fork(2).
  void ResetAfterFork();

 private:
  SharedEvents() = default;
  mutable std::mutex mutex_;
  std::map<uint64_t, CUipcEventHandle> handles_;
  Finder finder_ = nullptr;
};

}  // namespace stasis::replay

#endif  // REPLAY_SHARED_EVENTS_H_

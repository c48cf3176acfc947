#include "ghost/pressure.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/raw_log.h"

namespace stasis {
namespace {

Result<Fd> NewEvent() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) return ErrnoStatus(errno, "eventfd");
  return event;
}

void Add(const Fd& event) {
  uint64_t one = 1;
  (void)!write(event.get(), &one, sizeof one);
}

}  // namespace

Result<std::unique_ptr<PressureWatch>> PressureWatch::Start(Snapshot& snapshot, size_t members) {
  std::unique_ptr<PressureWatch> watch(new PressureWatch(snapshot));
  ASSIGN_OR_RETURN(watch->stop_, NewEvent());
  for (size_t i = 0; i < members; ++i) {
    Pair pair;
    ASSIGN_OR_RETURN(pair.asked, NewEvent());
    ASSIGN_OR_RETURN(pair.released, NewEvent());
    watch->pairs_.push_back(std::move(pair));
  }
  watch->thread_ = std::thread([raw = watch.get()] { raw->Watch(); });
  return watch;
}

PressureWatch::~PressureWatch() {
  if (!thread_.joinable()) return;
  Add(stop_);
  thread_.join();
}

Result<std::vector<Fd>> PressureWatch::NewEvents() {
  std::vector<Fd> fds(2);
  for (Fd& fd : fds) {
    ASSIGN_OR_RETURN(fd, NewEvent());
  }
  return fds;
}

Result<std::vector<Fd>> PressureWatch::DescriptorsOf(size_t member) const {
  std::vector<Fd> fds;
  fds.push_back(pairs_[member].asked.Duplicate());
  fds.push_back(pairs_[member].released.Duplicate());
  if (!fds[0].valid() || !fds[1].valid()) return ErrnoStatus(errno, "duplicate a descriptor");
  return fds;
}

void PressureWatch::Watch() {
  std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
  for (const Pair& pair : pairs_) waits.push_back({pair.asked.get(), POLLIN, 0});
  for (;;) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[0].revents != 0) return;
    Status status = snapshot_.GiveUpDevice();
    RawLog(LogLevel::kWarning, "the program needs the snapshot's device memory: %s",
           status.ok() ? "the rest is in host memory now" : status.ToString().c_str());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      uint64_t count;
      if (waits[i + 1].revents == 0) continue;
      (void)!read(pairs_[i].asked.get(), &count, sizeof count);
      Add(pairs_[i].released);
    }
  }
}

}  // namespace stasis

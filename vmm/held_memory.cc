#include "vmm/held_memory.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "base/task_protocol.h"
#include "vmm/environment.h"

namespace stasis::vmm {
namespace {

constexpr int kAbandonedPollMs = 5;

// The event is never taken: it holds for all who wait, and for all who come later.
bool WaitForEvent(int fd, const Deadline& deadline) {
  const int saved_errno = errno;
  pollfd wait{fd, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&wait, 1, deadline.PollTimeout());
  } while (ready <= 0 && !deadline.Expired());
  errno = saved_errno;
  return ready > 0 && (wait.revents & POLLIN) != 0;
}

}  // namespace

HeldMemory& HeldMemory::Get() {
  static HeldMemory* const held = new HeldMemory;  // outlives every destructor
  return *held;
}

bool HeldMemory::Holding::Given() const { return WaitForEvent(given.get(), Deadline::After(Duration(0))); }

uint64_t HeldMemory::Holding::On(int device) const {
  auto found = bytes.find(device);
  return found == bytes.end() ? 0 : found->second;
}

std::shared_ptr<HeldMemory::Holding> HeldMemory::Current() const {
  const std::lock_guard lock(mutex_);
  return holding_;
}

void HeldMemory::Hold(std::map<int, uint64_t> bytes, Fd ask, Fd given) {
  Forget();
  auto holding = std::make_shared<Holding>();
  holding->bytes = std::move(bytes);
  holding->ask = std::move(ask);
  holding->given = std::move(given);
  const std::lock_guard lock(mutex_);
  holding_ = std::move(holding);
  abandoned_.reset();  // its driver has found room for this
}

void HeldMemory::Forget() {
  std::shared_ptr<Holding> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(holding_);
  }
  if (gone != nullptr) (void)eventfd_write(gone->given.get(), 1);
}

void HeldMemory::Abandon() {
  {
    const std::lock_guard lock(mutex_);
    if (holding_ == nullptr || holding_->Given()) return;
    abandoned_ = holding_;
    abandoned_until_ = Deadline::After(kTaskPressureWait);
  }
  Forget();
}

bool HeldMemory::AwaitAbandoned(int device) {
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_ != nullptr && abandoned_until_.Expired()) abandoned_.reset();
    if (abandoned_ == nullptr || abandoned_->On(device) == 0) return false;
  }
  if (CapturesInProgress()) return false;
  const int saved_errno = errno;
  (void)poll(nullptr, 0, kAbandonedPollMs);
  errno = saved_errno;
  return true;
}

uint64_t HeldMemory::Bytes(int device) const {
  const std::shared_ptr<Holding> holding = Current();
  if (holding == nullptr || holding->On(device) == 0 || holding->Given()) return 0;
  return holding->On(device);
}

bool HeldMemory::TakeBack(int device, const Deadline& deadline) {
  const std::shared_ptr<Holding> holding = Current();
  if (holding == nullptr || holding->On(device) == 0 || CapturesInProgress()) return false;
  (void)eventfd_write(holding->ask.get(), 1);
  return WaitForEvent(holding->given.get(), deadline);
}

void HeldMemory::ResetAfterFork() {
  new (&mutex_) std::mutex;
  new (&holding_) std::shared_ptr<Holding>;
  new (&abandoned_) std::shared_ptr<Holding>;
}

}  // namespace stasis::vmm

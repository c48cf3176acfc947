#include "intercept/libraries/nccl_handles.h"

#include <chrono>
#include <thread>

#include "intercept/libraries/nccl_real.h"

namespace stasis::nccl {
namespace {

constexpr std::chrono::milliseconds kPoll(1);
// From Start() to where the library looks for an abort.
constexpr std::chrono::milliseconds kEntry(50);

}  // namespace

void Handles::Add(ncclComm_t real) {
  std::lock_guard<std::mutex> lock(mutex_);
  reals_.push_back(real);
}

void Handles::Start() {
  std::lock_guard<std::mutex> lock(mutex_);
  started_ = true;
}

void Handles::Abort() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (bool early = !started_; early; early = !started_) {
    lock.unlock();
    std::this_thread::sleep_for(kEntry);
    lock.lock();
  }
  aborted_ = true;
  for (const ncclComm_t real : reals_) (void)Real().ncclCommAbort(real);
}

bool Handles::aborted() {
  std::lock_guard<std::mutex> lock(mutex_);
  return aborted_;
}

ncclResult_t Handles::AwaitReady(ncclComm_t real, const Deadline& deadline) {
  for (;;) {
    ncclResult_t state = ncclInProgress;
    const ncclResult_t result = Do([&] { return Real().ncclCommGetAsyncError(real, &state); });
    if (result != ncclSuccess) return result;
    if (state != ncclInProgress) return state;
    if (deadline.Expired()) return ncclInternalError;
    std::this_thread::sleep_for(kPoll);  // there is no other way to be told
  }
}

}  // namespace stasis::nccl

// Waiting until the device is done. The waiting call has no deadline, so a thread of ours makes it, and the
// caller waits for the thread.
#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "replay/context_record.h"
#include "replay/current_context.h"
#include "replay/pause.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

struct Work {
  std::vector<ContextPtr> contexts;  // constant
  pthread_t thread{};
  std::mutex mutex;
  std::condition_variable changed;
  size_t done = 0;  // contexts that are idle
  bool ended = false;
  Status status;
};

// The last helper's, as long as the helper has not been joined. Only the control thread drains.
std::unique_ptr<Work>& Unfinished() {
  static std::unique_ptr<Work>* const work = new std::unique_ptr<Work>;
  return *work;
}

Status Synchronize(const ContextRecord& context) {
  const CurrentContext current(context.real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuCtxSynchronize(), "cuCtxSynchronize").WithContext(context.Name());
}

void* RunHelper(void* argument) {
  Work& work = *static_cast<Work*>(argument);
  pthread_setname_np(pthread_self(), "stasis-drain");
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)Driver().cuThreadExchangeStreamCaptureMode(&mode);
  for (const ContextPtr& context : work.contexts) {
    Status status = Synchronize(*context);
    std::lock_guard lock(work.mutex);
    ++work.done;
    if (work.status.ok()) work.status = std::move(status);
  }
  std::lock_guard lock(work.mutex);
  work.ended = true;
  work.changed.notify_all();
  return nullptr;
}

bool StartHelper(Work& work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&work.thread, nullptr, RunHelper, &work) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

Status WaitFor(Work& work, const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  std::unique_lock lock(work.mutex);
  auto ended = [&] { return work.ended; };
  if (deadline.never()) {
    work.changed.wait(lock, ended);
  } else if (!work.changed.wait_for(lock, deadline.Remaining(), ended)) {
    const std::string what = "device work of " + work.contexts[work.done]->Name();
    blockers->push_back({0, what});
    return Errorf(StatusCode::kTimeout, "%s goes on", what.c_str());
  }
  return work.status;
}

// Joined, not merely seen to be done: the driver has code that runs as a thread that called it ends, and
// after the drain the driver may be closed.
Status FinishHelper(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  Work& work = *Unfinished();
  Status status = WaitFor(work, deadline, blockers);
  if (status.code() == StatusCode::kTimeout) return status;
  pthread_join(work.thread, nullptr);
  Unfinished().reset();
  return status;
}

}  // namespace

Status Drain(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  if (Unfinished() != nullptr) {
    Status status = FinishHelper(deadline, blockers);
    if (status.code() == StatusCode::kTimeout) return status;
  }
  auto work = std::make_unique<Work>();
  work->contexts = ActiveContexts();
  if (work->contexts.empty()) return {};
  if (!StartHelper(*work))
    return Errorf(StatusCode::kResourceExhausted, "no thread for waiting for the device");
  Unfinished() = std::move(work);
  return FinishHelper(deadline, blockers);
}

std::string BrokenContext() {
  for (const ContextPtr& context : ActiveContexts()) {
    const CurrentContext current(context->real_context());
    // Any call in a broken context returns its error; this one does nothing else.
    size_t unused = 0;
    const CUresult state = current.status().ok() ? Driver().cuCtxGetLimit(&unused, CU_LIMIT_STACK_SIZE)
                                                 : CUDA_ERROR_INVALID_CONTEXT;
    if (state == CUDA_SUCCESS) continue;
    const char* name = nullptr;
    if (Driver().cuGetErrorName(state, &name) == CUDA_SUCCESS && name != nullptr) return name;
  }
  return {};
}

}  // namespace stasis::replay

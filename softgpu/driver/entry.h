// The way into the driver: every entry point begins with an Entry.
//
//   CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
//     Entry entry;
//     if (!entry.ok()) return entry.result();
//     ... entry.context() ... entry.state() ...
//   }
//
// Entry points never call one another. Only the plain names are written by hand: their _ptsz and _ptds
// variants are generated (gen_driver.py), set ThreadCalls::per_thread_default and call the plain one.
#ifndef SOFTGPU_DRIVER_ENTRY_H_
#define SOFTGPU_DRIVER_ENTRY_H_

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace softgpu {

class Context;
class State;

enum class Need : uint8_t {
  kInit,        // cuInit was called
  kAnyContext,  // and the thread has a context, perhaps a broken one (destroying, error queries)
  kContext,     // and it is not broken
};

// What the driver knows of a thread. Freed when the thread ends, or the driver does: to be touched inside of
// an Entry only.
struct ThreadState {
  uint64_t number = 0;  // never used twice
  std::vector<CUcontext> stack;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
// The calling thread's; null only when memory is exhausted.
ThreadState* CurrentThread();

// What the calling thread is at. Always there.
struct ThreadCalls {
  int depth = 0;                    // entries the thread is inside of
  bool per_thread_default = false;  // stream 0 of the call under way is the thread's own
  bool in_callback = false;         // runs a function of the program for a stream: calls are not permitted
};
ThreadCalls& CurrentCalls();

// While a function of the program runs for a stream.
class CallbackScope {
 public:
  CallbackScope() { CurrentCalls().in_callback = true; }
  ~CallbackScope() { CurrentCalls().in_callback = false; }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;
};

// Where the driver is in its life.
enum class Phase : uint8_t {
  kOpen,    // cuInit may be called, or was
  kForked,  // in a child of a process that called cuInit: nothing works
  kClosed,  // the process ends, or the library is unloaded
};
Phase CurrentPhase();
void SetPhase(Phase phase);

class Entry {
 public:
  explicit Entry(Need need = Need::kContext);
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  bool ok() const { return result_ == CUDA_SUCCESS; }
  CUresult result() const { return result_; }
  // Need ok().
  State& state() const { return *state_; }
  ThreadState& thread() const { return *thread_; }
  // Needs ok(), and Need::kAnyContext or more.
  Context& context() const { return *context_; }
  const std::shared_ptr<Context>& context_ptr() const { return context_; }

 private:
  CUresult Admit(Need need);

  CUresult result_ = CUDA_ERROR_UNKNOWN;
  bool inside_ = false;
  State* state_ = nullptr;
  ThreadState* thread_ = nullptr;
  std::shared_ptr<Context> context_;
};

// Lets calls in, or makes them wait at the door (cuCheckpointProcessLock). Nested calls of a thread that is
// inside already pass.
class Gate {
 public:
  void Enter();
  void Leave();
  // Makes new calls wait, and waits for those inside except `mine`. False at the deadline: the gate is open
  // again.
  bool Close(const stasis::Deadline& deadline, int mine = 0);
  void Open();

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};
Gate& CallGate();

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_ENTRY_H_

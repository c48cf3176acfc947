// cuCheckpointProcess*: the process lets go of the device and takes it again, at the same addresses.
//
// One thread ("softgpu-restore") does the work, from cuInit on. Operations reach it from other processes
// through the daemon, or from a call of this process about itself. While the process is checkpointed nothing
// else of the driver is left in it: no connection, no shared mapping, no other thread; the thread then waits
// for a real-time signal that is sent to it alone, which also finds it after the process was dumped and
// restored elsewhere.
//
// Refused (CUDA_ERROR_NOT_SUPPORTED): managed memory, memory shared with other processes, broken contexts,
// captures under way.
#ifndef SOFTGPU_DRIVER_CHECKPOINT_H_
#define SOFTGPU_DRIVER_CHECKPOINT_H_

#include <cuda.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "softgpu/device/client.h"
#include "softgpu/driver/thread.h"

namespace softgpu {

class State;

class Checkpointer {
 public:
  // Null when the system has no thread left. `state` outlives it and hands it the daemon's events.
  static std::unique_ptr<Checkpointer> Start(State& state);
  // Ends the thread. No operation is under way.
  ~Checkpointer();

  // An operation on this process asked for by itself. Needs no place inside the gate; waits for the end.
  CheckpointResult Run(CheckpointOp op, uint32_t timeout_ms, std::vector<std::byte> args);

  // The thread of process `pid` that waits to restore it; -1 when there is none.
  static pid_t FindRestoreThread(pid_t pid);
  // Makes that thread connect to the daemon again. False when it is not there.
  static bool Wake(pid_t pid);

 private:
  struct Request {
    CheckpointOp op = CheckpointOp::kGetState;
    uint32_t timeout_ms = 0;
    std::vector<std::byte> args;
    uint64_t token = 0;                        // the daemon's; 0 for Run()
    std::shared_ptr<CheckpointResult> answer;  // of Run(); guarded by mutex_
  };

  explicit Checkpointer(State& state) : state_(state) {}
  void OnEvent(const CheckpointEvent& event);
  void Push(Request request);
  void Loop();
  // Needs mutex_.
  void WakeIfWaiting();
  // The next request; nothing when the thread must end, or when it was woken without one (*woken).
  std::optional<Request> Next(bool* woken);
  std::optional<Request> NextRestore();
  void Answer(const Request& request, CUresult result);
  void Perform(const Request& request);

  CUresult Lock(const Request& request);
  CUresult Checkpoint(const Request& request);
  CUresult Unlock();
  // With a request of this process; or, woken from outside, with the one that the daemon has.
  void ComeBack(std::optional<Request> request);
  CUresult TakeBack(const Request& request);
  void LetGo();
  bool DrainAll(const stasis::Deadline& deadline);
  bool CoversDevices(const Request& request) const;

  State& state_;
  Thread thread_;
  std::atomic<pid_t> tid_{0};

  std::mutex mutex_;  // a leaf
  std::condition_variable changed_;
  std::deque<Request> queue_;
  bool stopping_ = false;
  bool detached_ = false;  // waits for the signal instead of `changed_`
  // It does so now, and nobody has sent it yet. A signal that nobody waits for would stay pending and later
  // be taken for the wish of another process to restore this one.
  bool waits_for_wake_ = false;

  ProcessState process_ = ProcessState::kRunning;  // of the thread alone
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_CHECKPOINT_H_

// Entry points: checkpoint and restore of processes by the driver.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "softgpu/driver/checkpoint.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

// Time for the daemon and the other process beyond the timeout that the program gave.
constexpr std::chrono::seconds kGrace(5);

CUresult ErrorOf(const stasis::Status& status) {
  switch (status.code()) {
    case stasis::StatusCode::kOk:
      return CUDA_SUCCESS;
    case stasis::StatusCode::kNotFound:
    case stasis::StatusCode::kInvalidArgument:
      return CUDA_ERROR_INVALID_VALUE;
    case stasis::StatusCode::kPermissionDenied:
      return CUDA_ERROR_NOT_PERMITTED;
    case stasis::StatusCode::kTimeout:
      return CUDA_ERROR_NOT_READY;
    case stasis::StatusCode::kUnavailable:
    case stasis::StatusCode::kFailedPrecondition:
      return CUDA_ERROR_ILLEGAL_STATE;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

// A call about the own process does not pass the gate, which it may be about to open.
CUresult AskSelf(CheckpointOp op, uint32_t timeout_ms, std::vector<std::byte> args, CheckpointResult* out) {
  if (CurrentPhase() == Phase::kClosed) return CUDA_ERROR_DEINITIALIZED;
  State* state = CurrentPhase() == Phase::kOpen ? State::Get() : nullptr;
  if (state == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = state->memory().checkpointer().Run(op, timeout_ms, std::move(args));
  return static_cast<CUresult>(out->result);
}

CUresult AskOther(int pid, CheckpointOp op, uint32_t timeout_ms, const std::vector<std::byte>& args,
                  CheckpointResult* out) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  DeviceClient* client = entry.state().client();
  if (client == nullptr) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (op == CheckpointOp::kRestore) {
    // A running process is not woken: it would take no notice now, and must not later.
    stasis::Result<CheckpointResult> state =
        client->CheckpointRequest(pid, CheckpointOp::kGetState, 0, {}, kGrace);
    if (state.ok() && state->state != ProcessState::kCheckpointed) return CUDA_ERROR_ILLEGAL_STATE;
    if (!Checkpointer::Wake(pid)) return CUDA_ERROR_INVALID_VALUE;
  }
  stasis::Duration limit =
      timeout_ms == 0 ? stasis::Duration(0) : std::chrono::milliseconds(timeout_ms) + kGrace;
  stasis::Result<CheckpointResult> answer = client->CheckpointRequest(pid, op, timeout_ms, args, limit);
  if (!answer.ok()) return ErrorOf(answer.status());
  *out = *answer;
  return static_cast<CUresult>(answer->result);
}

CUresult Ask(int pid, CheckpointOp op, uint32_t timeout_ms, std::vector<std::byte> args,
             CheckpointResult* out) {
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  return pid == getpid() ? AskSelf(op, timeout_ms, std::move(args), out)
                         : AskOther(pid, op, timeout_ms, args, out);
}

template <typename T, size_t kCount>
bool AllZero(const T (&words)[kCount]) {
  return std::all_of(std::begin(words), std::end(words), [](T word) { return word == 0; });
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (pid <= 0 || tid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pid_t found = Checkpointer::FindRestoreThread(pid);
  if (found < 0) return CUDA_ERROR_INVALID_VALUE;
  *tid = found;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CheckpointResult answer;
  CUresult result = Ask(pid, CheckpointOp::kGetState, 0, {}, &answer);
  if (result == CUDA_SUCCESS) *state = static_cast<CUprocessState>(answer.state);
  return result;
}

CUresult CUDAAPI cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  if (args != nullptr && (args->reserved0 != 0 || !AllZero(args->reserved1))) return CUDA_ERROR_INVALID_VALUE;
  CheckpointResult answer;
  return Ask(pid, CheckpointOp::kLock, args == nullptr ? 0 : args->timeoutMs, {}, &answer);
}

CUresult CUDAAPI cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  if (args != nullptr && !AllZero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  CheckpointResult answer;
  return Ask(pid, CheckpointOp::kCheckpoint, 0, {}, &answer);
}

CUresult CUDAAPI cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  std::vector<std::byte> pairs;
  if (args != nullptr) {
    bool zero = AllZero(args->reserved) && args->reserved1 == 0;
    bool given = args->gpuPairsCount == 0 || args->gpuPairs != nullptr;
    if (!zero || !given || args->gpuPairsCount > kMaxDevices) return CUDA_ERROR_INVALID_VALUE;
    auto first = reinterpret_cast<const std::byte*>(args->gpuPairs);
    if (args->gpuPairsCount != 0) {
      pairs.assign(first, first + args->gpuPairsCount * sizeof(CUcheckpointGpuPair));
    }
  }
  CheckpointResult answer;
  return Ask(pid, CheckpointOp::kRestore, 0, std::move(pairs), &answer);
}

CUresult CUDAAPI cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  if (args != nullptr && !AllZero(args->reserved)) return CUDA_ERROR_INVALID_VALUE;
  CheckpointResult answer;
  return Ask(pid, CheckpointOp::kUnlock, 0, {}, &answer);
}

}  // extern "C"

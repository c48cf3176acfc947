// The driver's own checkpoint of another process, one step a run: the baseline that a user has without this project.
//
// usage: driver_checkpoint lock|checkpoint|restore|unlock|state PID
#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

CUresult Perform(const char* step, int pid) {
  if (std::strcmp(step, "lock") == 0) {
    CUcheckpointLockArgs arguments{};
    arguments.timeoutMs = 60000;
    return cuCheckpointProcessLock(pid, &arguments);
  }
  if (std::strcmp(step, "checkpoint") == 0) return cuCheckpointProcessCheckpoint(pid, nullptr);
  if (std::strcmp(step, "restore") == 0) return cuCheckpointProcessRestore(pid, nullptr);
  if (std::strcmp(step, "unlock") == 0) return cuCheckpointProcessUnlock(pid, nullptr);
  CUprocessState state = CU_PROCESS_STATE_FAILED;
  const CUresult result = cuCheckpointProcessGetState(pid, &state);
  std::printf("%d\n", static_cast<int>(state));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: driver_checkpoint lock|checkpoint|restore|unlock|state PID\n");
    return 2;
  }
  CUresult result = cuInit(0);
  if (result == CUDA_SUCCESS) result = Perform(argv[1], std::atoi(argv[2]));
  if (result == CUDA_SUCCESS) return 0;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "driver_checkpoint: %s of process %s: %s\n", argv[1], argv[2], name == nullptr ? "?" : name);
  return 1;
}

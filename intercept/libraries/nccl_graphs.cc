#include "intercept/libraries/nccl_graphs.h"

#include <cuda.h>

#include <mutex>
#include <string>

#include "intercept/captures.h"
#include "replay/object_table.h"

namespace stasis::nccl {

void NoteCaptured(const CommPtr& comm, cudaStream_t stream, const char* call) {
  if (CapturesInProgress() == 0) return;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (::cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status == CU_STREAM_CAPTURE_STATUS_NONE)
    return;
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm->captured = call;
}

// Nodes wander: into clones, child graphs and executable graphs, also of older ones. Only when the program
// has no graph at all are they all gone.
Status CheckCaptured(const CommPtr& comm) {
  std::string call;
  {
    std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
    call = comm->captured;
  }
  if (call.empty()) return {};
  replay::ObjectTable& table = replay::ObjectTable::Get();
  const bool alive = !table.InOrder(replay::ObjectKind::kGraph).empty() ||
                     !table.InOrder(replay::ObjectKind::kGraphExec).empty() || CapturesInProgress() != 0;
  if (alive) return Status(StatusCode::kUnsupported, call + " captured into a graph");
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm->captured.clear();
  return {};
}

}  // namespace stasis::nccl

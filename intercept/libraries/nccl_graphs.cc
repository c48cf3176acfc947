#include "intercept/libraries/nccl_graphs.h"

#include <cuda.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "intercept/captures.h"
#include "replay/graph_records.h"
#include "replay/object_table.h"

namespace stasis::nccl {

namespace {

bool AnyGraph() {
  const std::vector<replay::RecordPtr> graphs =
      replay::ObjectTable::Get().InOrder(replay::ObjectKind::kGraph);
  return std::any_of(graphs.begin(), graphs.end(), [](const replay::RecordPtr& record) {
    return std::dynamic_pointer_cast<replay::GraphRecord>(record) != nullptr;
  });
}

bool AnyExecutableGraph() {
  return !replay::ObjectTable::Get().InOrder(replay::ObjectKind::kGraphExec).empty();
}

}  // namespace

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
  if (AnyGraph() || AnyExecutableGraph() || CapturesInProgress() != 0)
    return Status(StatusCode::kUnsupported, call + " captured into a graph");
  std::lock_guard<std::mutex> lock(CommBook::Get().mutex);
  comm->captured.clear();
  return {};
}

}  // namespace stasis::nccl

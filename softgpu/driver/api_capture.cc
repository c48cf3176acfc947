// Capturing streams into graphs.
#include <utility>

#include "softgpu/driver/api_graph.h"
#include "softgpu/driver/capture.h"
#include "softgpu/driver/stream.h"

using softgpu::Capture;
using softgpu::Context;
using softgpu::Entry;
using softgpu::Graph;
using softgpu::Node;
using softgpu::Stream;

namespace {

uint64_t NextCaptureId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool ValidMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

CUresult Begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               std::vector<Node*> first) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (!ValidMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), handle, &result);
  if (stream == nullptr) return result;
  // The legacy stream takes part in everything, so nothing could be told apart.
  if (stream->kind() == Stream::Kind::kLegacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture() != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  bool own = graph == nullptr;
  if (own) graph = std::make_shared<Graph>();
  auto capture = std::make_shared<Capture>(&stream->context(), stream.get(), mode, entry.thread().number,
                                           NextCaptureId(), std::move(graph), own);
  stream->context().AddCapture(capture);
  capture->AddDependencies(*stream, first);
  return CUDA_SUCCESS;
}

CUresult End(CUstream handle, CUgraph* out) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), handle, &result);
  if (stream == nullptr) return result;
  std::shared_ptr<Capture> capture = stream->capture();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin() != stream.get()) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode() != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread() != entry.thread().number) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  bool valid = capture->status() == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  bool joined = capture->Finish();
  *out = nullptr;
  if ((!valid || !joined) && capture->own_graph()) entry.state().graphs.Remove(capture->graph()->handle());
  if (!valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *out = capture->own_graph() ? entry.state().graphs.Add(capture->graph()) : capture->graph()->handle();
  return CUDA_SUCCESS;
}

// The stream of a query. Asking about the legacy stream while a blocking stream captures is itself a use of
// it.
CUresult FindQueried(Entry& entry, CUstream handle, std::shared_ptr<Stream>* out) {
  if (!entry.ok()) return entry.result();
  CUresult result;
  *out = softgpu::ResolveStream(entry.context(), handle, &result);
  if (*out == nullptr) return result;
  if ((*out)->kind() != Stream::Kind::kLegacy) return CUDA_SUCCESS;
  for (const std::shared_ptr<Capture>& capture : (*out)->context().captures()) {
    if (capture->HasBlockingStream()) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

struct InfoOut {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  size_t* count = nullptr;
};

CUresult Info(CUstream handle, const InfoOut& out) {
  Entry entry;
  std::shared_ptr<Stream> stream;
  CUresult result = FindQueried(entry, handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (out.status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Capture> capture = stream->capture();
  *out.status = capture != nullptr ? capture->status() : CU_STREAM_CAPTURE_STATUS_NONE;
  if (*out.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (out.id != nullptr) *out.id = capture->id();
  if (out.graph != nullptr) {
    *out.graph = capture->graph()->handle();
    // The program may add nodes to it while the capture goes on.
    if (entry.state().graphs.Find(*out.graph) == nullptr) entry.state().graphs.Add(capture->graph());
  }
  // "valid until the next API call which operates on the stream" (cuda.h).
  const Capture::View& view = capture->Publish(*stream);
  if (out.dependencies != nullptr) *out.dependencies = view.nodes.data();
  if (out.edges != nullptr) *out.edges = view.edges.data();
  if (out.count != nullptr) *out.count = view.nodes.size();
  return CUDA_SUCCESS;
}

CUresult UpdateDependencies(CUstream handle, const CUgraphNode* nodes, const CUgraphEdgeData* edges,
                            size_t count, unsigned flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), handle, &result);
  if (stream == nullptr) return result;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Capture> capture = stream->capture();
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->status() != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  result = softgpu::CheckEdges(edges, count);
  if (result != CUDA_SUCCESS) return result;
  std::vector<Node*> found;
  if (!softgpu::FindNodes(nodes, count, &found)) return CUDA_ERROR_INVALID_VALUE;
  for (Node* node : found) {
    if (&node->graph() != capture->graph().get()) return CUDA_ERROR_INVALID_VALUE;
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) {
    capture->SetDependencies(*stream, std::move(found));
  } else {
    capture->AddDependencies(*stream, found);
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  return Begin(hStream, mode, nullptr, {});
}
CUresult CUDAAPI cuStreamBeginCapture(CUstream hStream) {
  return Begin(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL, nullptr, {});
}
CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                             const CUgraphNode* dependencies,
                                             const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                             CUstreamCaptureMode mode) {
  std::shared_ptr<Graph> graph;
  std::vector<Node*> first;
  {
    Entry entry;
    if (!entry.ok()) return entry.result();
    graph = entry.state().graphs.Find(hGraph);
    if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    CUresult edges = softgpu::CheckEdges(dependencyData, numDependencies);
    if (edges != CUDA_SUCCESS) return edges;
    if (!softgpu::FindNodes(dependencies, numDependencies, &first)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (const Node* node : first) {
    if (&node->graph() != graph.get()) return CUDA_ERROR_INVALID_VALUE;
  }
  return Begin(hStream, mode, std::move(graph), std::move(first));
}

CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) { return End(hStream, phGraph); }

CUresult CUDAAPI cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  return Info(hStream, {captureStatus});
}
CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                        cuuint64_t* id_out) {
  return Info(hStream, {captureStatus_out, id_out});
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           size_t* numDependencies_out) {
  return Info(hStream,
              {captureStatus_out, id_out, graph_out, dependencies_out, nullptr, numDependencies_out});
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                           cuuint64_t* id_out, CUgraph* graph_out,
                                           const CUgraphNode** dependencies_out,
                                           const CUgraphEdgeData** edgeData_out,
                                           size_t* numDependencies_out) {
  return Info(hStream,
              {captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out, numDependencies_out});
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode* dependencies,
                                                      const CUgraphEdgeData* dependencyData,
                                                      size_t numDependencies, unsigned int flags) {
  return UpdateDependencies(hStream, dependencies, dependencyData, numDependencies, flags);
}
CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                                   size_t numDependencies, unsigned int flags) {
  return UpdateDependencies(hStream, dependencies, nullptr, numDependencies, flags);
}

}  // extern "C"

// Stream capture: which captures are in progress, and the graphs they make.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "intercept/capture_streams.h"
#include "intercept/captures.h"
#include "intercept/hooks_graph.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"

namespace stasis {

namespace {

// Where a capture began, and what is known of the graph it makes.
struct CaptureOrigin {
  CUstream stream;    // visible
  pid_t thread;       // of the default stream of a thread, else 0
  CUcontext context;  // visible
  CUgraph graph;      // visible, once the program has asked; null for a graph that was there before
  bool own_graph;
  pid_t begun_by;
};

constinit std::mutex g_mutex;  // a leaf

std::vector<CaptureOrigin>& Origins() {
  static std::vector<CaptureOrigin>* const origins = new std::vector<CaptureOrigin>;
  return *origins;
}

bool IsPerThread(const Call& call, CUstream stream) {
  return stream == CU_STREAM_PER_THREAD || (stream == nullptr && call.per_thread());
}

pid_t ThisThread() { return static_cast<pid_t>(syscall(SYS_gettid)); }

CUcontext VisibleContext() {
  CUcontext context = nullptr;
  Driver().cuCtxGetCurrent(&context);
  return replay::ToVisible(context);
}

CaptureOrigin OriginOf(const Call& call, CUstream stream) {
  const pid_t thread = ThisThread();
  const bool per_thread = IsPerThread(call, stream);
  return {per_thread ? CU_STREAM_PER_THREAD : stream,
          per_thread ? thread : 0,
          VisibleContext(),
          nullptr,
          true,
          thread};
}

bool Same(const CaptureOrigin& a, const CaptureOrigin& b) {
  return a.stream == b.stream && a.thread == b.thread && (a.thread == 0 || a.context == b.context);
}

void Began(CaptureOrigin origin) {
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    Origins().push_back(origin);
  }
  CaptureBegan();
}

// Ends the captures for which `ended` holds; graphs that nobody will ever get are forgotten unless `kept`.
template <typename Ended>
void End(bool kept, Ended ended) {
  std::vector<CaptureOrigin> over;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    for (const CaptureOrigin& origin : Origins()) {
      if (ended(origin)) over.push_back(origin);
    }
    std::erase_if(Origins(), ended);
  }
  for (const CaptureOrigin& origin : over) {
    if (!kept && origin.own_graph && origin.graph != nullptr) replay::NoteCaptureGraphGone(origin.graph);
    CaptureEnded();
  }
}

// The program was told the graph of the capture that `stream` takes part in, be it the origin or not.
void NoteGraphOf(const CaptureOrigin& asked, CUgraph graph) {
  std::lock_guard<std::mutex> lock(g_mutex);
  for (CaptureOrigin& origin : Origins()) {
    if (Same(origin, asked)) origin.graph = graph;
  }
}

}  // namespace

void CaptureStreamDestroyed(CUstream stream) {
  End(false, [stream](const CaptureOrigin& origin) { return origin.stream == stream; });
}

void CaptureContextGone(CUcontext context) {
  End(false, [context](const CaptureOrigin& origin) { return origin.context == context; });
}

bool IsCaptured(CUgraph graph) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return std::any_of(Origins().begin(), Origins().end(), [graph](const CaptureOrigin& origin) {
    return origin.own_graph && origin.graph == graph;
  });
}

std::vector<TaskBlocker> CaptureBlockers() {
  std::vector<TaskBlocker> blockers;
  std::lock_guard<std::mutex> lock(g_mutex);
  for (const CaptureOrigin& origin : Origins()) blockers.push_back({origin.begun_by, "stream capture"});
  return blockers;
}

}  // namespace stasis

namespace stasis::hooks {

namespace {

using replay::ToReal;

CUresult Ended(const Call& call, CUstream stream, CUresult result) {
  const CaptureOrigin asked = OriginOf(call, stream);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (result != CUDA_SUCCESS) {
    // Some failures end it (invalidated, unjoined), others do not (the wrong stream or thread).
    const auto query = call.per_thread() ? Driver().cuStreamIsCapturing_ptsz : Driver().cuStreamIsCapturing;
    if (query(ToReal(stream), &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
      return result;
  }
  End(result == CUDA_SUCCESS, [&asked](const CaptureOrigin& origin) { return Same(origin, asked); });
  return result;
}

// Nodes that the driver lists stay valid until the next call on the stream; so do ours, kept by thread.
const CUgraphNode* VisibleNodes(const CUgraphNode* real, size_t count) {
  struct List {
    CUgraphNode* nodes;
    size_t room;
  };
  static __thread List list __attribute__((tls_model("initial-exec")));
  if (count > list.room) {
    void* grown = std::realloc(list.nodes, count * sizeof(CUgraphNode));
    STASIS_CHECK(grown != nullptr);
    list = {static_cast<CUgraphNode*>(grown), count};
  }
  for (size_t i = 0; i < count; ++i) list.nodes[i] = replay::AdoptNode(real[i]);
  return list.nodes;
}

void ReturnInfo(const Call& call, CUstream stream, CUresult result, const CUstreamCaptureStatus* status,
                CUgraph* graph, const CUgraphNode** nodes, const size_t* count) {
  if (result != CUDA_SUCCESS || *status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return;
  if (graph != nullptr) {
    *graph = replay::AdoptGraph(*graph);
    NoteGraphOf(OriginOf(call, stream), *graph);
  }
  if (replay::Translating() && nodes != nullptr && count != nullptr && *count != 0)
    *nodes = VisibleNodes(*nodes, *count);
}

}  // namespace

CUresult cuStreamBeginCapture(const Call& call, CUstream hStream) {
  const CUresult result = call.Real<decltype(&::cuStreamBeginCapture)>()(ToReal(hStream));
  if (result == CUDA_SUCCESS) Began(OriginOf(call, hStream));
  return result;
}

CUresult cuStreamBeginCapture_v2(const Call& call, CUstream hStream, CUstreamCaptureMode mode) {
  const CUresult result = call.Real<decltype(&::cuStreamBeginCapture_v2)>()(ToReal(hStream), mode);
  if (result == CUDA_SUCCESS) Began(OriginOf(call, hStream));
  return result;
}

CUresult cuStreamBeginCaptureToGraph(const Call& call, CUstream hStream, CUgraph hGraph,
                                     const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                                     size_t numDependencies, CUstreamCaptureMode mode) {
  const RealNodes nodes(dependencies, numDependencies);
  const CUresult result = call.Real<decltype(&::cuStreamBeginCaptureToGraph)>()(
      ToReal(hStream), ToReal(hGraph), nodes.get(), dependencyData, numDependencies, mode);
  if (result != CUDA_SUCCESS) return result;
  CaptureOrigin origin = OriginOf(call, hStream);
  origin.own_graph = false;
  Began(origin);
  return result;
}

CUresult cuStreamEndCapture(const Call& call, CUstream hStream, CUgraph* phGraph) {
  const CUresult result = call.Real<decltype(&::cuStreamEndCapture)>()(ToReal(hStream), phGraph);
  if (result == CUDA_SUCCESS && *phGraph != nullptr) replay::NoteGraph(phGraph, nullptr);
  return Ended(call, hStream, result);
}

CUresult cuStreamGetCaptureInfo_v2(const Call& call, CUstream hStream,
                                   CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   size_t* numDependencies_out) {
  const CUresult result = call.Real<decltype(&::cuStreamGetCaptureInfo_v2)>()(
      ToReal(hStream), captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out);
  ReturnInfo(call, hStream, result, captureStatus_out, graph_out, dependencies_out, numDependencies_out);
  return result;
}

CUresult cuStreamGetCaptureInfo_v3(const Call& call, CUstream hStream,
                                   CUstreamCaptureStatus* captureStatus_out, cuuint64_t* id_out,
                                   CUgraph* graph_out, const CUgraphNode** dependencies_out,
                                   const CUgraphEdgeData** edgeData_out, size_t* numDependencies_out) {
  const CUresult result = call.Real<decltype(&::cuStreamGetCaptureInfo_v3)>()(
      ToReal(hStream), captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
      numDependencies_out);
  ReturnInfo(call, hStream, result, captureStatus_out, graph_out, dependencies_out, numDependencies_out);
  return result;
}

CUresult cuStreamUpdateCaptureDependencies(const Call& call, CUstream hStream, CUgraphNode* dependencies,
                                           size_t numDependencies, unsigned int flags) {
  const RealNodes nodes(dependencies, numDependencies);
  return call.Real<decltype(&::cuStreamUpdateCaptureDependencies)>()(
      ToReal(hStream), const_cast<CUgraphNode*>(nodes.get()), numDependencies, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(const Call& call, CUstream hStream, CUgraphNode* dependencies,
                                              const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                              unsigned int flags) {
  const RealNodes nodes(dependencies, numDependencies);
  return call.Real<decltype(&::cuStreamUpdateCaptureDependencies_v2)>()(
      ToReal(hStream), const_cast<CUgraphNode*>(nodes.get()), dependencyData, numDependencies, flags);
}

}  // namespace stasis::hooks

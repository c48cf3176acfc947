// Stream capture: between begin and end, what streams are given becomes nodes of a graph.
//
// Rules: CUDA C++ Programming Guide, "Stream Capture"; cuThreadExchangeStreamCaptureMode in cuda.h.
#ifndef SOFTGPU_DRIVER_CAPTURE_H_
#define SOFTGPU_DRIVER_CAPTURE_H_

#include <cuda.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/work.h"

namespace softgpu {

class Context;
class Graph;
class Node;
class Stream;
struct ThreadState;

// One capture sequence. Thread-safe; its lock is taken before a graph's.
class Capture : public std::enable_shared_from_this<Capture> {
 public:
  Capture(Context* context, Stream* origin, CUstreamCaptureMode mode, uint64_t thread, uint64_t id,
          std::shared_ptr<Graph> graph, bool own_graph);
  ~Capture();

  uint64_t id() const { return id_; }
  CUstreamCaptureMode mode() const { return mode_; }
  uint64_t thread() const { return thread_; }
  Stream* origin() const { return origin_; }
  Context& context() const { return *context_; }
  const std::shared_ptr<Graph>& graph() const { return graph_; }
  bool own_graph() const { return own_graph_; }
  CUstreamCaptureStatus status() const;
  void Invalidate();

  // The stream's work as a node behind the stream's dependencies.
  CUresult Add(Stream& stream, ActionPtr action);
  // An event stands for the work of the stream so far; a stream that waits for it joins the capture.
  std::vector<Node*> Dependencies(const Stream& stream) const;
  void AddDependencies(Stream& stream, const std::vector<Node*>& nodes);
  void SetDependencies(Stream& stream, std::vector<Node*> nodes);
  // Whether a blocking stream takes part.
  bool HasBlockingStream() const;
  // Takes all streams out. False when a stream has work that the origin does not depend on.
  bool Finish();
  void DropStream(Stream* stream);
  // The stream's dependencies as handles, in memory that stays as it is until the next call for the stream.
  struct View {
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> edges;
  };
  const View& Publish(const Stream& stream);

 private:
  bool JoinedLocked() const;

  Context* const context_;
  Stream* const origin_;
  const CUstreamCaptureMode mode_;
  const uint64_t thread_;
  const uint64_t id_;
  const std::shared_ptr<Graph> graph_;
  const bool own_graph_;
  mutable std::mutex mutex_;
  bool invalidated_ = false;
  std::unordered_map<Stream*, std::vector<Node*>> streams_;
  std::unordered_map<const Stream*, View> views_;
};

// For calls that are unsafe while some thread captures: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the
// captures that forbid the call are invalidated. Costs nothing while nobody captures.
CUresult ForbidDuringCapture(const ThreadState& thread);
// For work given to the legacy stream: it would have to wait for blocking streams that capture.
CUresult ForbidImplicitDependency(Stream& stream);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_CAPTURE_H_

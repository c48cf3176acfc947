#include "softgpu/driver/capture.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {

namespace {

// Captures under way in the process, so that everybody else pays one load.
std::atomic<int> captures{0};

}  // namespace

Capture::Capture(Context* context, Stream* origin, CUstreamCaptureMode mode, uint64_t thread, uint64_t id,
                 std::shared_ptr<Graph> graph, bool own_graph)
    : context_(context),
      origin_(origin),
      mode_(mode),
      thread_(thread),
      id_(id),
      graph_(std::move(graph)),
      own_graph_(own_graph) {
  captures.fetch_add(1);
}

Capture::~Capture() { captures.fetch_sub(1); }

CUstreamCaptureStatus Capture::status() const {
  std::lock_guard lock(mutex_);
  return invalidated_ ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void Capture::Invalidate() {
  std::lock_guard lock(mutex_);
  invalidated_ = true;
}

CUresult Capture::Add(Stream& stream, ActionPtr action) {
  std::lock_guard lock(mutex_);
  if (invalidated_) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Node* node = nullptr;
  std::vector<Node*>& dependencies = streams_[&stream];
  CUresult result = graph_->AddNode(std::move(action), dependencies, &node);
  if (result != CUDA_SUCCESS) {
    invalidated_ = true;
    return result;
  }
  dependencies = {node};
  return CUDA_SUCCESS;
}

std::vector<Node*> Capture::Dependencies(const Stream& stream) const {
  std::lock_guard lock(mutex_);
  auto found = streams_.find(const_cast<Stream*>(&stream));
  return found == streams_.end() ? std::vector<Node*>() : found->second;
}

void Capture::AddDependencies(Stream& stream, const std::vector<Node*>& nodes) {
  {
    std::lock_guard lock(mutex_);
    std::vector<Node*>& dependencies = streams_[&stream];
    for (Node* node : nodes) {
      if (std::find(dependencies.begin(), dependencies.end(), node) == dependencies.end())
        dependencies.push_back(node);
    }
  }
  stream.SetCapture(shared_from_this());
}

void Capture::SetDependencies(Stream& stream, std::vector<Node*> nodes) {
  std::lock_guard lock(mutex_);
  streams_[&stream] = std::move(nodes);
}

const Capture::View& Capture::Publish(const Stream& stream) {
  std::lock_guard lock(mutex_);
  View& view = views_[&stream];
  view.nodes.clear();
  for (Node* node : streams_[const_cast<Stream*>(&stream)]) view.nodes.push_back(node->handle());
  view.edges.assign(view.nodes.size(), CUgraphEdgeData{});
  return view;
}

bool Capture::HasBlockingStream() const {
  std::lock_guard lock(mutex_);
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& entry) { return entry.first->kind() != Stream::Kind::kNonBlocking; });
}

bool Capture::JoinedLocked() const {
  // Everything that the origin depends on, directly or not.
  std::vector<Node*> reached;
  auto origin = streams_.find(origin_);
  if (origin != streams_.end()) reached = origin->second;
  std::lock_guard lock(graph_->mutex());
  for (size_t i = 0; i < reached.size(); i++) {
    for (Node* dependency : reached[i]->dependencies) {
      if (std::find(reached.begin(), reached.end(), dependency) == reached.end())
        reached.push_back(dependency);
    }
  }
  for (const auto& [stream, nodes] : streams_) {
    for (Node* node : nodes) {
      if (std::find(reached.begin(), reached.end(), node) == reached.end()) return false;
    }
  }
  return true;
}

bool Capture::Finish() {
  std::vector<Stream*> streams;
  bool joined;
  {
    std::lock_guard lock(mutex_);
    joined = JoinedLocked();
    for (const auto& entry : streams_) streams.push_back(entry.first);
    streams_.clear();
    // Events that were recorded in it stand for nothing any more.
    invalidated_ = true;
  }
  for (Stream* stream : streams) stream->SetCapture(nullptr);
  context_->RemoveCapture(this);
  return joined;
}

void Capture::DropStream(Stream* stream) {
  {
    std::lock_guard lock(mutex_);
    streams_.erase(stream);
  }
  stream->SetCapture(nullptr);
  // Without its origin a capture cannot be ended.
  if (stream == origin_) Finish();
}

CUresult ForbidDuringCapture(const ThreadState& thread) {
  if (captures.load() == 0 || thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Context>& context : State::Get()->Contexts()) {
    for (const std::shared_ptr<Capture>& capture : context->captures()) {
      bool own = capture->thread() == thread.number && capture->mode() != CU_STREAM_CAPTURE_MODE_RELAXED;
      bool others = thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                    capture->mode() == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (!own && !others) continue;
      capture->Invalidate();
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult ForbidImplicitDependency(Stream& stream) {
  if (captures.load() == 0 || stream.kind() != Stream::Kind::kLegacy) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const std::shared_ptr<Capture>& capture : stream.context().captures()) {
    if (!capture->HasBlockingStream()) continue;
    capture->Invalidate();
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

}  // namespace softgpu

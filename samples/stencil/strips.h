// Two iterations of the solver as work for a CUDA device, in three forms: launched on streams as they come,
// captured from those streams into a graph, and built node by node as a graph. All three do exactly the same.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "config.h"

namespace stencil {

// The field is cut into strips of rows, one a stream. An iteration of a strip needs its neighbours' previous
// one.
struct Strip {
  int first_row;
  int end_row;
};

struct Buffers {
  double* now;
  double* next;
  unsigned long long* residual;         // bits of the largest change in the latest iteration
  unsigned long long* pinned_residual;  // its copy on the host
  int width;
};

std::vector<Strip> CutStrips(const Config& config);

// Streams and events to spread a pair of iterations over strips and to bring it together again.
class StripStreams {
 public:
  explicit StripStreams(const std::vector<Strip>& strips);
  StripStreams(const StripStreams&) = delete;
  StripStreams& operator=(const StripStreams&) = delete;
  ~StripStreams();

  cudaStream_t main() const { return main_; }

  // Two iterations, now -> next -> now, and the copy of the residual to the host; ordered on main().
  void EnqueuePair(const Buffers& buffers);

 private:
  void EnqueueIteration(const double* from, double* to, const Buffers& buffers);

  const std::vector<Strip> strips_;
  cudaStream_t main_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> joins_;
};

// The same pair of iterations as a graph; the caller destroys it.
cudaGraph_t CaptureGraph(StripStreams* streams, const Buffers& buffers);
cudaGraph_t BuildGraph(const std::vector<Strip>& strips, const Buffers& buffers);

}  // namespace stencil

// Makes the context of an object current in the control thread while that object is rebuilt.
#ifndef REPLAY_GRAPH_CONTEXT_H_
#define REPLAY_GRAPH_CONTEXT_H_

#include <cuda.h>

namespace stasis::replay {

class ContextScope {
 public:
  // `visible`: as the program knows it. When it is null or gone, any other context of the program is used.
  explicit ContextScope(CUcontext visible);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // The driver's handle; null when the program has no context.
  CUcontext real() const { return real_; }

 private:
  CUcontext real_ = nullptr;
};

// Whether a context that the program knows is there now.
bool ContextLives(CUcontext visible);

}  // namespace stasis::replay

#endif  // REPLAY_GRAPH_CONTEXT_H_

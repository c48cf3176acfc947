// Streams: order among the work of one context.
//
// Legacy default stream: its work starts after all earlier work of the blocking streams of the context and
// before all later work of them (CUDA C++ Programming Guide, "Default Stream"). All tails of a context are
// guarded by its order lock, so that "earlier" is the order of the calls.
#ifndef SOFTGPU_DRIVER_STREAM_H_
#define SOFTGPU_DRIVER_STREAM_H_

#include <cuda.h>

#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/driver/work.h"

namespace softgpu {

class Capture;
class Context;

class Stream {
 public:
  enum class Kind : uint8_t { kLegacy, kPerThread, kBlocking, kNonBlocking };
  Stream(Context* context, Kind kind, int priority, uint64_t id);

  // `context` outlives its streams.
  Context& context() const { return *context_; }
  Kind kind() const { return kind_; }
  int priority() const { return priority_; }
  uint64_t id() const { return id_; }
  CUstream handle() { return reinterpret_cast<CUstream>(this); }

  // Asynchronous work: carried out after all that the stream was given before, or, while the stream captures,
  // made a node of the graph. The only errors are those of capture (CUDA_ERROR_STREAM_CAPTURE_*) and of a
  // broken context.
  CUresult Submit(ActionPtr action);
  // Synchronous work: waits for its turn in the stream, runs `action` on the calling thread, and returns what
  // it returned. Refused during captures that forbid it, which are invalidated. Also shows device printf
  // output.
  CUresult RunBlocking(ActionPtr action);
  // Waits until all work given so far has ended. Returns the context's error, if any.
  CUresult Synchronize();
  // CUDA_ERROR_NOT_READY while there is work.
  CUresult Query();

  // Work outside of captures that also waits for `extra`; the Op that stands for its end.
  OpPtr Enqueue(ActionPtr action, const std::vector<OpPtr>& extra = {});
  // Puts a piece of work between `begin` and `end`, which are not sealed, behind what the stream was given
  // before.
  void EnqueueSpan(const OpPtr& begin, const OpPtr& end);
  // The Ops that end when all work given so far has ended.
  std::vector<OpPtr> Pending();

  // The capture the stream takes part in, or null.
  std::shared_ptr<Capture> capture() const;
  void SetCapture(std::shared_ptr<Capture> capture);

  // cuStreamSetAttribute and its like; hints that nothing here depends on.
  struct Attributes {
    CUaccessPolicyWindow access_policy{};
    CUsynchronizationPolicy sync_policy = CU_SYNC_POLICY_AUTO;
    CUlaunchMemSyncDomainMap mem_sync_map{0, 1};
    CUlaunchMemSyncDomain mem_sync_domain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
  };
  Attributes attributes() const;
  void set_attributes(const Attributes& attributes);

 private:
  friend class Context;
  // What new work of the stream must wait for. Needs the order lock.
  std::vector<OpPtr> PendingLocked();
  // Attaches `op` behind the stream's work. Needs the order lock.
  void AttachLocked(const OpPtr& op);
  // For calls that wait: refused while the stream captures, or would have to wait for one that does.
  CUresult CheckSynchronous();
  OpPtr EnqueueOp(const OpPtr& op, const std::vector<OpPtr>& extra);

  Context* const context_;
  const Kind kind_;
  const int priority_;
  const uint64_t id_;
  OpPtr tail_;                // guarded by the context's order lock
  mutable std::mutex mutex_;  // a leaf; guards the rest
  std::shared_ptr<Capture> capture_;
  Attributes attributes_;
};

// The stream a handle means in the call under way: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, a handle, or 0 =
// the default stream, which is the per-thread one inside the _ptsz and _ptds variants
// (ThreadCalls::per_thread_default). `context` is the current one; the stream of a handle may belong to
// another. Null with CUDA_ERROR_INVALID_HANDLE or the sticky error of the stream's context in *error.
std::shared_ptr<Stream> ResolveStream(Context& context, CUstream handle, CUresult* error);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_STREAM_H_

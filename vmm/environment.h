// What memory needs to know of the rest of the interposer, and of the calling thread's context.
#ifndef VMM_ENVIRONMENT_H_
#define VMM_ENVIRONMENT_H_

#include <cuda.h>

#include <cstdint>

namespace stasis::vmm {

// What other processes of the task are given when they ask for what this one shares.
enum class Sharing : uint8_t {
  kNothing,  // the driver goes, or has gone; nobody listens
  kLater,    // who got something now would not be known to the pause, and waits
  kEvents,   // memory only later
  kAll,
};

// Without one, handles are what the driver says and nothing is captured.
struct Environment {
  CUcontext (*real_context)(CUcontext visible) = nullptr;
  CUcontext (*visible_context)(CUcontext real) = nullptr;
  uint32_t (*captures_in_progress)() = nullptr;
  void (*set_sharing)(Sharing sharing) = nullptr;
};
// `environment` lives for ever, or until another is set; null for none. To be set before the first call of
// the program that memory answers.
void SetEnvironment(const Environment* environment);

CUcontext RealContext(CUcontext visible);
CUcontext VisibleContext(CUcontext real);
bool CapturesInProgress();
void SetSharing(Sharing sharing);

// The current context of the calling thread.
struct Caller {
  CUcontext context = nullptr;  // visible
  int device = -1;              // virtual ordinal
};
// The driver's error when there is none.
CUresult CurrentCaller(Caller* caller);

// Makes `context` (visible) current for the life of the object, unless it is already.
class ScopedContext {
 public:
  explicit ScopedContext(CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  CUresult result() const { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

// Driver calls of ours must not spoil a stream capture of the program.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_ = false;
};

}  // namespace stasis::vmm

#endif  // VMM_ENVIRONMENT_H_

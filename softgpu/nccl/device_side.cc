#include "softgpu/nccl/device_side.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softgpu/native/driver.h"
#include "softgpu/nccl/log.h"
#include "softgpu/nccl/operation.h"

namespace softgpu::nccl {

namespace {

using native::Driver;

// FNV-1a.
uint64_t Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

std::string FirstLine(const char* path) {
  char line[256] = "";
  if (FILE* file = fopen(path, "re")) {
    if (fgets(line, sizeof line, file) == nullptr) line[0] = '\0';
    fclose(file);
  }
  return line;
}

// As the driver finds it.
std::string DaemonSocket() {
  std::string path;
  if (const char* given = getenv("SOFTGPU_SOCKET"); given != nullptr && *given != '\0') {
    path = given;
  } else if (const char* runtime = getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0') {
    path = std::string(runtime) + "/softgpu/softgpud.sock";
  } else {
    path = "/tmp/softgpu-" + std::to_string(geteuid()) + "/softgpud.sock";
  }
  char real[PATH_MAX];
  return realpath(path.c_str(), real) != nullptr ? real : path;
}

bool Broken(CUstream stream) {
  const CUresult state = Driver().cuStreamQuery(stream);
  return state != CUDA_SUCCESS && state != CUDA_ERROR_NOT_READY;
}

}  // namespace

ncclResult_t FromDriver(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  const char* name = nullptr;
  if (Driver().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  return Fail(ncclUnhandledCudaError, "Cuda failure %d '%s' in %s", static_cast<int>(result), name, what);
}

uint64_t NodeIdentity() {
  if (const char* given = getenv("NCCL_HOSTID"); given != nullptr && *given != '\0') return Hash(given);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return Hash(FirstLine("/proc/sys/kernel/random/boot_id") + host + "\n" + DaemonSocket());
}

// The communicator's context is current while one exists.
class DeviceSide::Current {
 public:
  explicit Current(CUcontext context) : result_(Driver().cuCtxPushCurrent_v2(context)) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) Driver().cuCtxPopCurrent_v2(&popped);
  }
  Current(const Current&) = delete;
  CUresult result() const { return result_; }

 private:
  const CUresult result_;
};

ncclResult_t DeviceSide::Take(PeerInfo* self) {
  NCCL_TRY(FromDriver(native::EnsureContext(), "cuInit"));
  NCCL_TRY(FromDriver(Driver().cuCtxGetCurrent(&context_), "cuCtxGetCurrent"));
  NCCL_TRY(FromDriver(Driver().cuCtxGetDevice(&device_), "cuCtxGetDevice"));
  ordinal_ = device_;
  CUuuid uuid;
  NCCL_TRY(FromDriver(Driver().cuDeviceGetUuid_v2(&uuid, device_), "cuDeviceGetUuid"));
  std::memcpy(self->device, &uuid, sizeof self->device);
  self->ordinal = ordinal_;
  self->node = NodeIdentity();
  CUcontext primary = nullptr;
  NCCL_TRY(FromDriver(Driver().cuDevicePrimaryCtxRetain(&primary, device_), "cuDevicePrimaryCtxRetain"));
  primary_ = primary == context_;
  if (!primary_) Driver().cuDevicePrimaryCtxRelease_v2(device_);
  return Allocate();
}

ncclResult_t DeviceSide::TakeBeside(const DeviceSide& other, PeerInfo* self) {
  const Current current(other.context_);
  NCCL_TRY(FromDriver(current.result(), "cuCtxPushCurrent"));
  return Take(self);
}

ncclResult_t DeviceSide::Allocate() {
  NCCL_TRY(FromDriver(Driver().cuMemAlloc_v2(&staging_, kStagingBytes), "cuMemAlloc"));
  for (Chain* chain : {&eager_, &captured_})
    NCCL_TRY(FromDriver(Driver().cuEventCreate(&chain->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  return ncclSuccess;
}

void DeviceSide::Release() {
  if (context_ == nullptr) return;
  unsigned flags = 0;
  int active = 1;
  if (primary_) Driver().cuDevicePrimaryCtxGetState(device_, &flags, &active);
  if (active != 0) {
    const Current current(context_);
    for (Chain* chain : {&eager_, &captured_}) {
      if (chain->event != nullptr) Driver().cuEventDestroy_v2(chain->event);
      *chain = Chain();
    }
    if (staging_ != 0) Driver().cuMemFree_v2(staging_);
  }
  if (primary_) Driver().cuDevicePrimaryCtxRelease_v2(device_);
  staging_ = 0;
  context_ = nullptr;
}

ncclResult_t DeviceSide::Follow(CUstream stream, Chain* chain, unsigned long long capture) {
  unsigned long long id = 0;
  NCCL_TRY(FromDriver(Driver().cuStreamGetId(stream, &id), "cuStreamGetId"));
  const bool follows = chain->used && chain->stream != id && chain->capture == capture;
  chain->stream = id;
  if (!follows) return ncclSuccess;
  return FromDriver(Driver().cuStreamWaitEvent(stream, chain->event, 0), "cuStreamWaitEvent");
}

// The first stream goes on after what is in the others.
ncclResult_t DeviceSide::Join(const std::vector<CUstream>& streams, Chain* chain) {
  for (size_t i = 1; i < streams.size(); i++) {
    NCCL_TRY(FromDriver(Driver().cuEventRecord(chain->event, streams[i]), "cuEventRecord"));
    NCCL_TRY(FromDriver(Driver().cuStreamWaitEvent(streams[0], chain->event, 0), "cuStreamWaitEvent"));
  }
  return ncclSuccess;
}

CUresult DeviceSide::Record(const std::vector<CUstream>& streams, Chain* chain, unsigned long long capture) {
  chain->used = true;
  chain->capture = capture;
  CUresult result = Driver().cuEventRecord(chain->event, streams[0]);
  for (size_t i = 1; i < streams.size() && result == CUDA_SUCCESS; i++)
    result = Driver().cuStreamWaitEvent(streams[i], chain->event, 0);
  return result;
}

ncclResult_t DeviceSide::Launch(const std::vector<CUstream>& streams, LaunchedOperations* launched) {
  std::lock_guard lock(mutex_);
  const Current current(context_);
  NCCL_TRY(FromDriver(current.result(), "cuCtxPushCurrent"));
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t capture = 0;
  NCCL_TRY(FromDriver(
      Driver().cuStreamGetCaptureInfo_v3(streams[0], &status, &capture, nullptr, nullptr, nullptr, nullptr),
      "cuStreamGetCaptureInfo"));
  const bool capturing = status != CU_STREAM_CAPTURE_STATUS_NONE;
  if (!capturing) capture = 0;
  Chain* chain = capturing ? &captured_ : &eager_;
  launched->captured = capturing;
  NCCL_TRY(Follow(streams[0], chain, capture));
  NCCL_TRY(Join(streams, chain));
  NCCL_TRY(FromDriver(native::Launch<&RunOperations>(streams[0], *launched), "cuLaunchKernel"));
  const CUresult recorded = Record(streams, chain, capture);
  // Launched it is: what kernels do to the context meanwhile, the streams and the communicator tell. Else the
  // result of the call would depend on how soon they do.
  if (!capturing && Broken(streams[0])) return ncclSuccess;
  return FromDriver(recorded, "cuEventRecord");
}

ncclResult_t DeviceSide::Flush() {
  CUevent event = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (!eager_.used) return ncclSuccess;
    event = eager_.event;
  }
  const Current current(context_);
  NCCL_TRY(FromDriver(current.result(), "cuCtxPushCurrent"));
  return FromDriver(Driver().cuEventSynchronize(event), "cuEventSynchronize");
}

}  // namespace softgpu::nccl

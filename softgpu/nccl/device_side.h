// DeviceSide: a communicator's part on its device: the context, hidden memory, and the order of launches.
#ifndef SOFTGPU_NCCL_DEVICE_SIDE_H_
#define SOFTGPU_NCCL_DEVICE_SIDE_H_

#include <cuda.h>
#include <nccl.h>

#include <mutex>
#include <vector>

#include "softgpu/nccl/wire.h"

namespace softgpu::nccl {

struct LaunchedOperations;

// Device memory of a communicator, in which the parts of a reduction are gathered.
inline constexpr size_t kStagingBytes = size_t{4} << 20;

// ncclSuccess, or ncclUnhandledCudaError with the driver's name for it on record.
ncclResult_t FromDriver(CUresult result, const char* what);

// A number that ranks of the same softgpu node share: of the machine and the daemon's socket, or of
// NCCL_HOSTID.
uint64_t NodeIdentity();

class DeviceSide {
 public:
  ~DeviceSide() { Release(); }
  // Takes the current context's device (device 0's primary context when there is none) and fills the parts of
  // `self` that tell the device and the node.
  ncclResult_t Take(PeerInfo* self);
  // The same in the context of another communicator.
  ncclResult_t TakeBeside(const DeviceSide& other, PeerInfo* self);
  // Everything back. The context may be gone already. Nothing is left to do the second time.
  void Release();

  int ordinal() const { return ordinal_; }
  CUdeviceptr staging() const { return staging_; }

  // Launches the kernel in the first of `streams`, after what is in the others and after the launch before,
  // and makes the others wait for it. Thread-safe. `launched->captured` is filled.
  ncclResult_t Launch(const std::vector<CUstream>& streams, LaunchedOperations* launched);
  // Waits for all launches that were not captured. A broken context is no reason to wait.
  ncclResult_t Flush();

 private:
  class Current;
  // The launches of one kind, captured or not, follow each other even in different streams.
  struct Chain {
    CUevent event = nullptr;
    unsigned long long stream = 0;
    unsigned long long capture = 0;
    bool used = false;
  };

  ncclResult_t Allocate();
  ncclResult_t Follow(CUstream stream, Chain* chain, unsigned long long capture);
  ncclResult_t Join(const std::vector<CUstream>& streams, Chain* chain);
  CUresult Record(const std::vector<CUstream>& streams, Chain* chain, unsigned long long capture);

  int ordinal_ = -1;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool primary_ = false;  // retained
  CUdeviceptr staging_ = 0;
  std::mutex mutex_;
  Chain eager_, captured_;
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_DEVICE_SIDE_H_

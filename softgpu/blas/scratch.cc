#include "softgpu/blas/scratch.h"

#include <new>

#include "softgpu/native/driver.h"

namespace softgpu::blas {

namespace {
constexpr size_t kAlignment = 64;
constexpr unsigned kLocks = 64;
}  // namespace

Workspace OfHandle(const Workspace& own, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = native::Driver().cuStreamIsCapturing(stream, &status);
  return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE ? own : Workspace();
}

std::mutex& Scratch::LockOf(uint64_t address) {
  // Never destroyed: launches may be in flight when the process ends.
  static std::mutex* const locks = new std::mutex[kLocks];
  return locks[(address >> 12) % kLocks];
}

Scratch::Scratch(native::Device& device, const Workspace& workspace, size_t bytes) {
  uint64_t aligned = (workspace.address + kAlignment - 1) / kAlignment * kAlignment;
  uint64_t lost = aligned - workspace.address;
  if (workspace.address != 0 && workspace.bytes >= bytes + lost) {
    lock_ = std::unique_lock(LockOf(workspace.address));
    data_ = device.Write(aligned, bytes);
    return;
  }
  own_.reset(new (std::nothrow) unsigned char[bytes + kAlignment]);
  if (own_ == nullptr) {
    device.Fail("no host memory for a workspace");
    return;
  }
  auto at = reinterpret_cast<uint64_t>(own_.get());
  data_ = reinterpret_cast<void*>((at + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace softgpu::blas

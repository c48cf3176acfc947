// The ghost's own use of the CUDA driver: memory of its own, memory that tasks handed over, and the driver's
// checkpoint of other processes.
//
// Needs no place of its own on a device until it is asked for memory there. Everything it took is given back
// when it is destroyed, the driver closed. One at a time in a process; its functions may be called by any
// thread, those of one GpuMemory by one thread at a time except Read() and Write().
#ifndef GHOST_GPU_H_
#define GHOST_GPU_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "ghost/place_devices.h"
#include "vmm/real_driver.h"

namespace stasis {

class Gpu;

// Physical memory on one device, mapped in this process. Freed here when destroyed; who holds an exported
// descriptor keeps it alive.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(GpuMemory&& other) noexcept { *this = std::move(other); }
  GpuMemory& operator=(GpuMemory&& other) noexcept;
  ~GpuMemory() { Reset(); }

  uint64_t size() const { return size_; }
  int device() const { return device_; }
  CUdeviceptr address() const { return address_; }
  Status Read(uint64_t offset, std::span<std::byte> out) const;
  Status Write(uint64_t offset, std::span<const std::byte> in) const;
  // `size` bytes from memory on any device; done after Gpu::Synchronize() or FinishCopies() of this memory's
  // device.
  Status CopyFrom(uint64_t offset, const GpuMemory& other, uint64_t other_offset, uint64_t size) const;
  Result<Fd> Export() const;

 private:
  friend class Gpu;
  void Reset();
  Gpu* gpu_ = nullptr;
  int device_ = 0;
  uint64_t size_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

class Gpu {
 public:
  // Opens the driver and initialises it. kNotFound, kDriver.
  static Result<std::unique_ptr<Gpu>> Open(const std::string& driver);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  // Devices are numbered as the driver does.
  Status Use(int device);  // makes its context current in the calling thread
  Result<int> Version();   // of CUDA: 13000
  Result<int> DeviceCount();
  Result<std::string> DeviceUuid(int device);  // 16 raw bytes
  Result<std::vector<std::string>> DeviceUuids();
  Result<uint64_t> FreeBytes(int device);
  // `fd` stays the caller's.
  Result<GpuMemory> Import(int device, int fd, uint64_t size);
  // `traits` as in TaskExtent.
  Result<GpuMemory> Create(int device, uint64_t size, uint32_t traits = 0);
  // Waits for copies to memory of the device.
  Status Synchronize(int device);
  // The same for the copies that the calling thread has asked for, so that it may end.
  Status FinishCopies(int device);

  // Writable memory of this process that copies go through; a failure only makes them slower.
  void Pin(std::span<std::byte> memory);
  void Unpin(std::span<std::byte> memory);

  // Whether the driver was initialised in process `pid`.
  bool UsedBy(pid_t pid);
  // The driver's own checkpoint of process `pid`, in which it was initialised.
  Status LockProcess(pid_t pid, uint32_t timeout_ms);
  Status CheckpointProcess(pid_t pid);
  // `moves`: of all devices that the process's driver has, or empty when none of them changes its place.
  Status RestoreProcess(pid_t pid, const std::vector<DeviceMove>& moves);
  Status UnlockProcess(pid_t pid);
  Result<CUprocessState> ProcessState(pid_t pid);

 private:
  friend class GpuMemory;
  Gpu() = default;
  Status UseAny();  // makes some context current where none is
  Result<GpuMemory> Map(int device, CUmemGenericAllocationHandle handle, uint64_t size);

  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;  // guarded by mutex_
};

}  // namespace stasis

#endif  // GHOST_GPU_H_

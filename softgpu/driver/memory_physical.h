// One piece of physical memory that this process holds a reference to.
//
// Device memory is a memfd of the daemon; memory with a host location is a memfd of this process and counts
// to no device. Each piece is mapped as a whole at its home address and its descriptor is closed at once, so
// that the number of allocations is not bounded by RLIMIT_NOFILE; further mappings are aliases of the home.
// Plain allocations live at the home itself.
//
// A Physical is also what a CUmemGenericAllocationHandle points to: it lives while the program holds
// references to the handle or while it is mapped. Fields are guarded by the MemoryManager's lock. The last
// reference is never dropped under that lock, because giving memory back asks the daemon.
#ifndef SOFTGPU_DRIVER_MEMORY_PHYSICAL_H_
#define SOFTGPU_DRIVER_MEMORY_PHYSICAL_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "softgpu/device/client.h"

namespace softgpu {

class Physical;

// Where physical memory comes from, and the list of all that there is. A checkpoint takes the connection
// away; a restore brings another one, perhaps with the process's devices being other ones of the daemon.
// Thread-safe.
class PhysicalSource {
 public:
  PhysicalSource(DeviceClient* client, int devices);
  // Null while the process is checkpointed.
  DeviceClient* client() const;
  // `daemon_devices[d]` is the daemon's number of the process's device d.
  void Connect(DeviceClient* client, const std::vector<uint32_t>& daemon_devices);
  void Disconnect();
  uint32_t ToDaemon(int device) const;
  // kHostDevice-like -1 when the process does not see it.
  int FromDaemon(uint32_t device) const;

  void Add(Physical* memory);
  void Remove(Physical* memory);
  // Every live piece. The pointers are good as long as no call that could free one runs.
  std::vector<Physical*> All() const;

 private:
  mutable std::mutex mutex_;  // a leaf
  DeviceClient* client_;
  std::vector<uint32_t> daemon_devices_;
  std::unordered_set<Physical*> all_;
};

class Physical {
 public:
  enum class Home : uint8_t { kAnywhere, kModules };
  // New zeroed memory. `device` < 0: memory of the host. `size` is a multiple of kLargePage, and so is the
  // home.
  static stasis::Result<std::shared_ptr<Physical>> Create(PhysicalSource& source, int device, uint64_t size,
                                                          Home home = Home::kAnywhere);
  // The memory behind a descriptor that some process exported; `fd` stays the caller's.
  static stasis::Result<std::shared_ptr<Physical>> Import(PhysicalSource& source, int fd);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  int device() const { return device_; }
  uint64_t size() const { return size_; }
  uint64_t home() const { return home_; }
  uint64_t daemon_id() const { return daemon_id_; }
  // kUnsupported for memory of the host.
  stasis::Result<stasis::Fd> Export() const;

  // Lets go of the memory and keeps the home reserved; later, takes new memory of the same size at the same
  // home. What the memory contains is the caller's business.
  void Detach();
  stasis::Status Attach();
  // The memory as a file, for as long as the descriptor is open. Device memory only.
  stasis::Result<stasis::Fd> Open() const;

  CUmemAllocationProp prop{};  // as given to cuMemCreate
  uint64_t handle_references = 0;
  bool shared = false;      // imported or exported at some time: other processes may hold it
  const uint64_t block_id;  // unique in the process

 private:
  Physical(PhysicalSource& source, int device, uint64_t size, uint64_t home);
  static stasis::Result<std::shared_ptr<Physical>> MakeFrom(PhysicalSource& source, Allocation allocation,
                                                            int device, Home home);
  stasis::Status MapHome(Allocation allocation);

  PhysicalSource& source_;
  const int device_;
  const uint64_t size_;
  const uint64_t home_;
  uint64_t daemon_id_ = 0;  // 0 for host memory and while detached
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_PHYSICAL_H_

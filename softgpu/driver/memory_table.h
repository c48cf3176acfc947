// What the program holds in its unified address space: blocks (memory that came from one call) and
// reservations (cuMemAddressReserve) with the mappings in them. Plain data; guarded by the MemoryManager's
// lock.
#ifndef SOFTGPU_DRIVER_MEMORY_TABLE_H_
#define SOFTGPU_DRIVER_MEMORY_TABLE_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "softgpu/driver/memory_physical.h"

namespace softgpu {

inline constexpr int kHostDevice = -1;  // "device" of memory that lies on the host

enum class BlockKind : uint8_t {
  kDevice,      // cuMemAlloc
  kModule,      // variables of a module and other memory of the driver's own
  kArray,       // storage of a CUarray
  kPool,        // cuMemAllocAsync
  kIpc,         // cuIpcOpenMemHandle
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
  kManaged,     // cuMemAllocManaged
};

struct Block {
  BlockKind kind = BlockKind::kDevice;
  uint64_t base = 0;
  uint64_t size = 0;  // bytes asked for
  uint64_t id = 0;    // CU_POINTER_ATTRIBUTE_BUFFER_ID
  CUcontext context = nullptr;
  int device = kHostDevice;
  unsigned flags = 0;  // as given to the call that made it
  bool sync_memops = false;
  bool shared_slab = false;                      // cut from one of its context's slabs
  CUmemoryPool pool = nullptr;                   // kPool
  std::shared_ptr<Physical> physical = nullptr;  // none for host memory
  uint64_t end() const { return base + size; }
};

// Hints about managed memory (cuMemAdvise, cuMemPrefetchAsync), by page range; they change nothing but the
// answers of cuMemRangeGetAttribute.
struct RangeAdvice {
  bool read_mostly = false;
  CUmemLocation preferred{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
  CUmemLocation last_prefetch{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
  std::vector<CUmemLocation> accessed_by;
};

struct VmmMapping {
  uint64_t size = 0;
  uint64_t offset = 0;
  std::shared_ptr<Physical> physical;
  std::vector<CUmemAccess_flags> device_access = {};  // by ordinal
  CUmemAccess_flags host_access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  uint64_t id = 0;
  bool sync_memops = false;
};

struct Reservation {
  uint64_t size = 0;
  uint64_t id = 0;
  std::map<uint64_t, VmmMapping> mappings;  // by address
};

// What lies at an address, as copies and pointer queries see it.
struct MemoryView {
  enum class Where : uint8_t {
    kUnknown,  // memory that the driver knows nothing of: pageable host memory, or nothing at all
    kDevice,   // device memory
    kPinned,   // host memory the driver knows
    kManaged,
    kReserved,  // a reservation with nothing mapped at the address
  };
  Where where = Where::kUnknown;
  uint64_t base = 0, size = 0;  // of the block, or of the reservation's mapping
  int device = kHostDevice;
  CUcontext context = nullptr;
  bool sync_memops = false;
  bool readable = false, writable = false;  // by some device, or the host for memory of the host
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_TABLE_H_

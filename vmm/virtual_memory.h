// The virtual memory management of the program itself (cuMemAddressReserve, cuMemCreate, cuMemMap,
// cuMemSetAccess): its ranges, handles and mappings, as it made them.
//
// A handle is an integer in the program's memory. What the program sees is the value that the driver gave at
// first; the driver's own value changes when the memory is made again, and is known here alone. Of each piece
// of physical memory we keep one reference of the driver's, whatever the program releases and retains, until
// the program has neither a reference nor a mapping. Memory of devices is made exportable, so that a pause
// can hand it over; the program is told of the properties it asked for. Memory of the host is copied into the
// process.
//
// Thread-safe. The lock is held across cuMemMap and cuMemAddressReserve, which wait for no device work, and
// never across what may: cuMemUnmap, cuMemSetAccess.
#ifndef VMM_VIRTUAL_MEMORY_H_
#define VMM_VIRTUAL_MEMORY_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "vmm/reservation.h"
#include "vmm/shared_memory.h"

namespace stasis::vmm {

// Who carries a piece of memory over a pause.
enum class CarriedBy : uint8_t {
  kGhost,    // handed over as an extent
  kProcess,  // copied into memory of the process
  kDriver,   // nobody but the driver's own checkpoint
};

struct PhysicalMemory {
  uint64_t id = 0;  // of the extent
  CUmemGenericAllocationHandle visible = 0, real = 0;
  bool created = true;         // `real` is good
  bool stayed = false;         // it was to be given up, and could not
  uint64_t references = 0;     // of the program
  uint64_t mappings = 0;       // of the program
  uint64_t tickets = 0;        // exports of it that somebody still holds
  uint64_t size = 0;           // 0: not known (kDriver)
  CUmemAllocationProp prop{};  // what the program is told: virtual ordinals
  CarriedBy carried = CarriedBy::kGhost;
  uint64_t block_id = 0;        // CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID
  uint64_t share = 0;           // see TaskExtent
  uint64_t extent_address = 0;  // see TaskExtent; of the pause
  Mapping contents;             // of kProcess, while the driver has no memory for it
};

class VirtualMemory {
 public:
  static VirtualMemory& Get();

  // The driver's functions of these names; handles and ordinals are visible ones. What is none of the
  // program's is the driver's to answer, except that memory of ours is none at all.
  CUresult Reserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wish,
                   unsigned long long flags);
  CUresult Unreserve(CUdeviceptr address, size_t size);
  // `carried`: false when only the driver can carry it.
  CUresult Create(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* prop,
                  unsigned long long flags, bool* carried);
  CUresult Release(CUmemGenericAllocationHandle handle);
  CUresult Map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
               unsigned long long flags);
  CUresult Unmap(CUdeviceptr address, size_t size);
  // `exact`: false when the driver did what no record of ours can say: rights on a part of a mapping.
  CUresult SetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptors, size_t count,
                     bool* exact);
  CUresult GetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address);
  CUresult GetProperties(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle);
  CUresult Retain(CUmemGenericAllocationHandle* handle, void* address);

  // cuMemExportToShareableHandle of a descriptor: `share` is the key by which others get the memory, as long
  // as TicketGone() has not been called as often as this has succeeded. False when the handle is none that
  // can be given; else `result` is the answer.
  bool Export(CUmemGenericAllocationHandle handle, uint64_t* share, CUresult* result);
  // Any thread. The memory is given back in a later call of the program, if nobody has it any more.
  void TicketGone(uint64_t share);
  void ReleaseLeftovers();
  // kNotFound: no memory has this key.
  Result<SharedMemory> Give(uint64_t share) const;
  // Memory that was given by this or another process; `fd` stays the caller's.
  CUresult Import(CUmemGenericAllocationHandle* handle, const Fd& fd, const SharedPiece& piece,
                  uint32_t handle_types);

  // What the driver calls it now; unknown ones are passed on.
  CUmemGenericAllocationHandle ToReal(CUmemGenericAllocationHandle visible) const;

  // What is mapped at an address.
  struct View {
    uint64_t block_id = 0, buffer_id = 0;
    unsigned long long handle_types = 0;
    bool sync_memops = false;
  };
  std::optional<View> Find(CUdeviceptr address) const;
  void NoteSyncMemops(CUdeviceptr address, bool on);

  // --- For the pause: the gate is closed, nobody else is here.
  // Gives the pieces their addresses as extents, good until the gate opens.
  void PlaceExtents();
  std::vector<TaskExtent> Extents() const;
  bool HasExtent(uint64_t id) const;
  Result<Fd> ExportExtent(uint64_t id) const;
  // Unmaps and releases all that is carried, and with `hold` the addresses, too. Goes on past errors and
  // reports the first.
  Status Detach(bool hold);
  // Holds the addresses of all reservations, as far as that has not been done.
  Status Hold();
  Status ImportExtent(uint64_t id, const Fd& fd);
  // Everything is where it was. kFailedPrecondition names an extent that was not imported.
  Status Reattach();
  void FillStatus(TaskStatus* status) const;

 private:
  using MemoryPtr = std::shared_ptr<PhysicalMemory>;
  using Location = std::pair<CUmemLocationType, int>;  // virtual ordinal
  struct MappedRange {
    uint64_t size = 0, offset = 0;
    unsigned long long flags = 0;
    MemoryPtr memory;
    std::map<Location, CUmemAccess_flags> rights;
    uint64_t buffer_id = 0;
    bool sync_memops = false;
    bool mapped = true;  // by the driver
  };
  using Ranges = std::map<uint64_t, MappedRange>;  // by address

  VirtualMemory() = default;
  CUresult CreateReal(const CUmemAllocationProp& prop, size_t size, unsigned long long flags,
                      CUmemGenericAllocationHandle* real, CarriedBy* carried);
  void PublishLocked(const MemoryPtr& memory);
  MemoryPtr FindHandleLocked(CUmemGenericAllocationHandle handle) const;
  Ranges::const_iterator FindRangeLocked(uint64_t address) const;
  MemoryPtr DropIfUnusedLocked(const MemoryPtr& memory);
  std::vector<MemoryPtr> All() const;
  MemoryPtr FindId(uint64_t id) const;
  static Status SaveContents(PhysicalMemory& memory);
  static Status MakeAgain(PhysicalMemory& memory);
  static Status MapAgain(uint64_t address, MappedRange& range);

  mutable std::mutex mutex_;
  std::map<uint64_t, Reservation> reservations_;                // by address
  std::map<CUmemGenericAllocationHandle, MemoryPtr> memories_;  // by visible handle: all that exist
  Ranges ranges_;
  uint64_t next_synthetic_ = 1;
  std::atomic<bool> leftovers_{false};  // some memory may be nobody's any more
};

// Whether the location is memory of the host.
bool OnHost(const CUmemLocation& location);

}  // namespace stasis::vmm

#endif  // VMM_VIRTUAL_MEMORY_H_

#include "vmm/pause.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

#include "vmm/active_memory.h"
#include "vmm/events.h"
#include "vmm/host_memory.h"
#include "vmm/memory.h"
#include "vmm/pools.h"
#include "vmm/real_driver.h"
#include "vmm/virtual_memory.h"

namespace stasis::vmm {
namespace {

std::vector<std::shared_ptr<Arena>> AllArenas() {
  std::vector<std::shared_ptr<Arena>> arenas = Memory::Get().ContextArenas();
  for (std::shared_ptr<Arena>& arena : Pools::Get().Arenas()) arenas.push_back(std::move(arena));
  return arenas;
}

struct Found {
  std::shared_ptr<Arena> arena;
  Extent* extent = nullptr;
};

// The extent of ours that `extent` describes; its arena is null when there is none.
Found FindExtent(const TaskExtent& extent) {
  for (const std::shared_ptr<Arena>& arena : AllArenas()) {
    auto found = arena->extents().find(extent.address);
    if (found != arena->extents().end() && found->second.id == extent.id && found->second.size == extent.size)
      return {arena, &found->second};
  }
  return {};
}

Status NoSuchExtent(const TaskExtent& extent) {
  return Errorf(StatusCode::kNotFound, "no device memory %" PRIu64 " of %" PRIu64 " bytes at 0x%" PRIx64,
                extent.id, extent.size, extent.address);
}

// Only a new driver has forgotten them.
Status EnablePeersAgain() {
  for (const Memory::PeerPair& pair : Memory::Get().PeerPairs()) {
    const ScopedContext user(pair.user);
    RETURN_IF_ERROR(DriverStatus(user.result(), "cuCtxPushCurrent"));
    const CUresult result = Driver().cuCtxEnablePeerAccess(RealContext(pair.owner), 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      RETURN_IF_ERROR(DriverStatus(result, "cuCtxEnablePeerAccess"));
  }
  return {};
}

// An allocation may lie across several extents. What lies in none is a fault of ours that must not cost data.
Result<std::vector<TaskRange>> CutAtExtents(const std::vector<TaskRange>& ranges,
                                            const std::vector<TaskExtent>& extents) {
  std::vector<TaskRange> out;
  auto extent = extents.begin();
  for (TaskRange rest : ranges) {
    while (rest.size != 0) {
      while (extent != extents.end() && extent->address + extent->size <= rest.address) ++extent;
      if (extent == extents.end() || extent->address > rest.address)
        return Errorf(StatusCode::kInternal, "no device memory behind the allocation at 0x%" PRIx64,
                      rest.address);
      const uint64_t size = std::min(rest.size, extent->address + extent->size - rest.address);
      out.push_back({rest.address, size});
      rest = {rest.address + size, rest.size - size};
    }
  }
  return out;
}

void KeepFirst(Status* first, Status status) {
  if (first->ok()) *first = std::move(status);
}

}  // namespace

// All work is done: what waited for it is free memory, and need not be carried.
void Settle() {
  Memory::Get().SettleDeferredFrees();
  Pools::Get().Settle();
  VirtualMemory::Get().PlaceExtents();
}

uint64_t MarkExtents() { return NextExtentId(); }

void DropFreeSince(uint64_t mark) {
  std::vector<Discarded> discarded;
  for (const std::shared_ptr<Arena>& arena : AllArenas()) {
    auto lock = Memory::Get().Lock();
    discarded.push_back({arena, {}});
    arena->TakeFree(&discarded.back().extents, 0, mark);
  }
  Memory::Get().Discard(std::move(discarded));
}

Status CheckReleasable(TaskStrategy strategy) { return HostMemory::Get().CheckReleasable(strategy); }

std::vector<TaskExtent> Extents() {
  std::vector<TaskExtent> out;
  for (const std::shared_ptr<Arena>& arena : AllArenas())
    for (const auto& [address, extent] : arena->extents())
      out.push_back({extent.id, arena->device(), address, extent.size, 0, extent.share});
  for (const TaskExtent& extent : VirtualMemory::Get().Extents()) out.push_back(extent);
  std::sort(out.begin(), out.end(), [](const TaskExtent& a, const TaskExtent& b) { return a.id < b.id; });
  return out;
}

Result<std::vector<TaskRange>> ActiveRanges() {
  std::vector<TaskExtent> extents = Extents();
  std::sort(extents.begin(), extents.end(),
            [](const TaskExtent& a, const TaskExtent& b) { return a.address < b.address; });
  std::vector<TaskRange> ranges = ActiveMemory::Get().Ranges();
  // Of memory that the program makes itself nobody knows what it uses.
  for (const TaskExtent& extent : VirtualMemory::Get().Extents())
    ranges.push_back({extent.address, extent.size});
  std::sort(ranges.begin(), ranges.end(),
            [](const TaskRange& a, const TaskRange& b) { return a.address < b.address; });
  return CutAtExtents(ranges, extents);
}

Result<Fd> ExportExtent(const TaskExtent& extent) {
  if (VirtualMemory::Get().HasExtent(extent.id)) return VirtualMemory::Get().ExportExtent(extent.id);
  const Found found = FindExtent(extent);
  if (found.extent == nullptr) return NoSuchExtent(extent);
  if (!found.extent->created)
    return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " is not attached",
                  extent.address);
  return ExportHandle(found.extent->handle);
}

Status Release(TaskStrategy strategy) {
  SetSharing(Sharing::kNothing);
  Status first;
  const bool rebuilt = strategy == TaskStrategy::kReconstruct;
  if (rebuilt) {
    Events::Get().DestroyAll();
    KeepFirst(&first, Pools::Get().ReleaseObjects());
    KeepFirst(&first, HostMemory::Get().Release());
  }
  // The driver carries its reservations itself; only without it must the addresses be held.
  for (const std::shared_ptr<Arena>& arena : AllArenas()) KeepFirst(&first, arena->Detach(rebuilt));
  KeepFirst(&first, VirtualMemory::Get().Detach(rebuilt));
  return first;
}

Status HoldReleased() {
  Status first;
  for (const std::shared_ptr<Arena>& arena : AllArenas()) KeepFirst(&first, arena->Hold());
  KeepFirst(&first, VirtualMemory::Get().Hold());
  return first;
}

Status ImportExtent(const TaskExtent& extent, Fd fd) {
  if (VirtualMemory::Get().HasExtent(extent.id)) return VirtualMemory::Get().ImportExtent(extent.id, fd);
  const Found found = FindExtent(extent);
  if (found.extent == nullptr) return NoSuchExtent(extent);
  const bool stayed = std::exchange(found.extent->stayed, false);
  if (found.extent->created && !stayed)
    return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " is attached already",
                  extent.address);
  if (found.extent->mapped) return {};
  RETURN_IF_ERROR(found.arena->Reserve());
  if (!stayed) RETURN_IF_ERROR(ImportHandle(fd, &found.extent->handle));
  found.extent->created = true;
  // Rights of other devices need all contexts: Reattach().
  const AccessRights own = {{found.arena->device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  Status mapped = DriverStatus(MapExtent(*found.extent, own), "map device memory");
  if (!mapped.ok()) DiscardExtent(*found.extent);
  return mapped;
}

Status Reattach(TaskStrategy strategy) {
  for (const std::shared_ptr<Arena>& arena : AllArenas()) {
    RETURN_IF_ERROR(arena->Reserve());
    for (const auto& [address, extent] : arena->extents()) {
      if (!extent.mapped)
        return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " was not imported",
                      address);
      RETURN_IF_ERROR(DriverStatus(GrantAccess(extent, arena->rights()), "cuMemSetAccess"));
    }
  }
  RETURN_IF_ERROR(VirtualMemory::Get().Reattach());
  RETURN_IF_ERROR(Memory::Get().RestoreSyncMemops());
  if (strategy == TaskStrategy::kReconstruct) {
    RETURN_IF_ERROR(EnablePeersAgain());
    RETURN_IF_ERROR(Pools::Get().RebuildObjects());
    RETURN_IF_ERROR(HostMemory::Get().Reattach());
  }
  SetSharing(Sharing::kEvents);
  return {};
}

void FillStatus(TaskStatus* status) {
  const std::vector<std::shared_ptr<Arena>> arenas = AllArenas();
  status->allocated_bytes = status->extents = status->extent_bytes = 0;
  status->host_bytes = HostMemory::Get().bytes();
  ActiveMemory::Get().FillStatus(status);
  status->allocations = 0;
  VirtualMemory::Get().FillStatus(status);
  auto lock = Memory::Get().Lock();
  status->allocations += Memory::Get().blocks().size();
  for (const auto& [base, block] : Memory::Get().blocks()) status->allocated_bytes += block.size;
  for (const std::shared_ptr<Arena>& arena : arenas) {
    status->extents += arena->extents().size();
    status->extent_bytes += arena->mapped_bytes();
  }
}

}  // namespace stasis::vmm

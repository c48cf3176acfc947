#include "vmm/pause.h"

#include <algorithm>
#include <cinttypes>

#include "vmm/memory.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

std::vector<std::shared_ptr<Arena>> AllArenas() { return Memory::Get().ContextArenas(); }

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

void KeepFirst(Status* first, Status status) {
  if (first->ok()) *first = std::move(status);
}

}  // namespace

Status CheckReleasable(TaskStrategy) { return {}; }

std::vector<TaskExtent> Extents() {
  std::vector<TaskExtent> out;
  for (const std::shared_ptr<Arena>& arena : AllArenas())
    for (const auto& [address, extent] : arena->extents())
      out.push_back({extent.id, arena->device(), address, extent.size});
  std::sort(out.begin(), out.end(), [](const TaskExtent& a, const TaskExtent& b) { return a.id < b.id; });
  return out;
}

Result<Fd> ExportExtent(const TaskExtent& extent) {
  const Found found = FindExtent(extent);
  if (found.extent == nullptr) return NoSuchExtent(extent);
  if (!found.extent->created)
    return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " is not attached",
                  extent.address);
  return ExportHandle(found.extent->handle);
}

Status Release(TaskStrategy strategy) {
  Status first;
  const bool hold = strategy == TaskStrategy::kReconstruct;
  for (const std::shared_ptr<Arena>& arena : AllArenas()) KeepFirst(&first, arena->Detach(hold));
  return first;
}

Status ImportExtent(const TaskExtent& extent, Fd fd) {
  const Found found = FindExtent(extent);
  if (found.extent == nullptr) return NoSuchExtent(extent);
  if (found.extent->created)
    return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " is attached already",
                  extent.address);
  RETURN_IF_ERROR(found.arena->Reserve());
  RETURN_IF_ERROR(ImportHandle(fd, &found.extent->handle));
  found.extent->created = true;
  // Rights of other devices need all contexts: Reattach().
  const AccessRights own = {{found.arena->device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
  Status mapped = DriverStatus(MapExtent(*found.extent, own), "map device memory");
  if (!mapped.ok()) DiscardExtent(*found.extent);
  return mapped;
}

Status Reattach(TaskStrategy) {
  for (const std::shared_ptr<Arena>& arena : AllArenas()) {
    RETURN_IF_ERROR(arena->Reserve());
    for (const auto& [address, extent] : arena->extents()) {
      if (!extent.mapped)
        return Errorf(StatusCode::kFailedPrecondition, "device memory at 0x%" PRIx64 " was not imported",
                      address);
      RETURN_IF_ERROR(DriverStatus(GrantAccess(extent, arena->rights()), "cuMemSetAccess"));
    }
  }
  return {};
}

void FillStatus(TaskStatus* status) {
  const std::vector<std::shared_ptr<Arena>> arenas = AllArenas();
  status->allocated_bytes = status->extents = status->extent_bytes = 0;
  auto lock = Memory::Get().Lock();
  status->allocations = Memory::Get().blocks().size();
  for (const auto& [base, block] : Memory::Get().blocks()) status->allocated_bytes += block.size;
  for (const std::shared_ptr<Arena>& arena : arenas) {
    status->extents += arena->extents().size();
    status->extent_bytes += arena->mapped_bytes();
  }
}

}  // namespace stasis::vmm

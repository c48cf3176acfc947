#include "vmm/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

// Regions are large, so that addresses do not run short inside one; they cost no memory.
uint64_t RegionBytes(int device, uint64_t bytes) {
  size_t total = 0;
  if (Driver().cuDeviceTotalMem_v2(&total, ToPhysicalDevice(device)) != CUDA_SUCCESS) total = 0;
  return RoundUp(std::max<uint64_t>(bytes, total / 4), kPage);
}

}  // namespace

Arena::~Arena() {
  if (!extents_.empty()) return;  // the driver refused to unmap: the addresses stay in use
  for (const auto& [address, region] : regions_) DropReservation(address, region);
}

// The last page of a region is never used: two regions that happen to touch are no run of addresses, since
// the driver's copies do not cross from one reservation into another.
CUresult Arena::AddRegion(uint64_t bytes) {
  CUresult result = CheckGranularity(device_);
  if (result != CUDA_SUCCESS) return result;
  uint64_t size = RegionBytes(device_, bytes) + kPage;
  CUdeviceptr address = 0;
  result = Driver().cuMemAddressReserve(&address, size, 0, 0, 0);
  if (result != CUDA_SUCCESS) {  // the process may have a limit of address space
    size = RoundUp(bytes, kPage) + kPage;
    result = Driver().cuMemAddressReserve(&address, size, 0, 0, 0);
  }
  if (result != CUDA_SUCCESS) return result;
  regions_.emplace(address, Reservation{size});
  unmapped_.Add({address, address + size - kPage});
  return CUDA_SUCCESS;
}

// Allocations of whole pages are taken from the end of a run, away from where packed ones grow.
Arena::Plan Arena::PlanPages(uint64_t size, Range run) const {
  const uint64_t start = run.end - size;
  return {start, {start, run.end}, {run.end, run.end}};
}

Arena::Plan Arena::PlanPacked(uint64_t size, Range run) const {
  uint64_t start = run.begin;
  const std::optional<Range> before = free_.Find(run.begin - 1);
  if (before) start = before->begin;
  const uint64_t end = start + size;
  Plan plan{start, {run.begin, run.begin}, {run.begin, run.begin}};
  plan.body.end = std::max(run.begin, RoundDown(end, kPage));
  plan.border = {plan.body.end, RoundUp(end, kPage)};
  if (plan.border.empty()) return plan;
  const uint64_t grown = std::max(plan.border.size(), Growth(size));
  plan.border.end = std::min(run.end, plan.border.begin + grown);
  return plan;
}

uint64_t Arena::Growth(uint64_t size) const {
  if (size >= kPage) return 0;
  return std::min(kMaxGrowth, RoundDown(border_bytes_ / kGrowthShare, kPage));
}

bool Arena::FindPlan(uint64_t size, Plan* plan) const {
  const uint64_t pages = RoundUp(size, kPage);
  const bool packed = pages != size;
  const std::optional<Range> frontier = packed ? unmapped_.Find(frontier_) : std::nullopt;
  const std::optional<Range> run = frontier && frontier->begin == frontier_ && frontier->size() >= pages
                                       ? frontier
                                       : unmapped_.BestFit(pages);
  if (!run) return false;
  *plan = packed ? PlanPacked(size, *run) : PlanPages(size, *run);
  return true;
}

void Arena::Adopt(Extent extent) {
  const Range range{extent.address, extent.address + extent.size};
  free_.Add(range);
  mapped_bytes_ += extent.size;
  if (extent.shared) border_bytes_ += extent.size;
  extents_.emplace(extent.address, extent);
}

// Physical memory first, for all parts: that is what fails, and giving it back waits for nobody.
CUresult Arena::MapPlan(const Plan& plan, std::vector<Extent>* discarded) {
  std::vector<Extent> parts;
  if (!plan.body.empty()) parts.push_back({.address = plan.body.begin, .size = plan.body.size()});
  if (!plan.border.empty())
    parts.push_back({.address = plan.border.begin, .size = plan.border.size(), .shared = true});
  CUresult result = CUDA_SUCCESS;
  for (Extent& part : parts) {
    part.id = NextExtentId();
    if (result == CUDA_SUCCESS) result = CreatePhysical(device_, part.size, &part.handle);
    part.created = result == CUDA_SUCCESS;
  }
  for (Extent& part : parts)
    if (result == CUDA_SUCCESS) result = MapExtent(part, rights_);
  for (Extent& part : parts) {
    if (result != CUDA_SUCCESS && !part.mapped) {
      DiscardExtent(part);
      continue;
    }
    unmapped_.Remove({part.address, part.address + part.size});
    Adopt(part);
    if (result != CUDA_SUCCESS) Vacate(extents_.find(part.address), discarded);
  }
  return result;
}

bool Arena::AllocateMapped(uint64_t bytes, uint64_t* address) {
  const uint64_t size = Capacity(bytes);
  const std::optional<Range> found = size < bytes ? std::nullopt : free_.BestFit(size);
  if (!found) return false;
  free_.Remove({found->begin, found->begin + size});
  *address = found->begin;
  return true;
}

CUresult Arena::Allocate(uint64_t bytes, uint64_t* address, std::vector<Extent>* discarded) {
  const uint64_t size = Capacity(bytes);
  if (size < bytes || size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (AllocateMapped(bytes, address)) return CUDA_SUCCESS;
  Plan plan;
  if (!FindPlan(size, &plan)) {
    const CUresult added = AddRegion(size);
    if (added != CUDA_SUCCESS) return added;
    STASIS_CHECK(FindPlan(size, &plan));
  }
  const CUresult result = MapPlan(plan, discarded);
  if (result != CUDA_SUCCESS) {
    DropEmptyRegions();
    return result;
  }
  if (size % kPage != 0) frontier_ = plan.border.end;
  free_.Remove({plan.start, plan.start + size});
  *address = plan.start;
  return CUDA_SUCCESS;
}

std::map<uint64_t, Extent>::iterator Arena::ExtentAt(uint64_t address) {
  auto next = extents_.upper_bound(address);
  STASIS_CHECK(next != extents_.begin());
  return std::prev(next);
}

std::vector<Extent*> Arena::ExtentsOf(uint64_t address, uint64_t bytes) {
  std::vector<Extent*> out;
  for (auto it = ExtentAt(address); it != extents_.end() && it->first < address + bytes; ++it)
    out.push_back(&it->second);
  return out;
}

void Arena::Vacate(std::map<uint64_t, Extent>::iterator where, std::vector<Extent>* discarded) {
  const Extent& extent = where->second;
  free_.RemoveAny({extent.address, extent.address + extent.size});
  mapped_bytes_ -= extent.size;
  if (extent.shared) border_bytes_ -= extent.size;
  if (spare_ == extent.address) spare_ = 0;
  discarded->push_back(extent);
  extents_.erase(where);
}

void Arena::MaybeVacate(std::map<uint64_t, Extent>::iterator where, std::vector<Extent>* discarded) {
  if (!WhollyFree(where->second)) return;
  // One free page stays, so that a program that allocates and frees a small block in turn does not map and
  // unmap each time.
  auto spare = extents_.find(spare_);
  const bool have_spare =
      spare != extents_.end() && spare->first != where->first && WhollyFree(spare->second);
  if (!have_spare && where->second.shared && where->second.size == kPage)
    spare_ = where->first;
  else
    Vacate(where, discarded);
}

void Arena::Free(uint64_t address, uint64_t bytes, std::vector<Extent>* discarded) {
  if (gone_) return;
  const uint64_t end = address + Capacity(bytes);
  free_.Add({address, end});
  if (retains_) return;
  for (auto it = ExtentAt(address); it != extents_.end() && it->first < end;) MaybeVacate(it++, discarded);
}

void Arena::TakeFree(std::vector<Extent>* discarded, uint64_t keep, uint64_t after) {
  for (auto it = extents_.begin(); it != extents_.end() && mapped_bytes_ > keep;) {
    auto current = it++;
    if (current->second.id > after && WhollyFree(current->second)) Vacate(current, discarded);
  }
}

void Arena::TakeAll(std::vector<Extent>* discarded) {
  gone_ = true;
  while (!extents_.empty()) Vacate(extents_.begin(), discarded);
}

void Arena::Discarded(const Extent& extent) {
  if (extent.mapped) {
    Adopt(extent);
    return;
  }
  unmapped_.Add({extent.address, extent.address + extent.size});
  DropEmptyRegions();
}

void Arena::DropEmptyRegions() {
  for (auto it = regions_.begin(); it != regions_.end() && regions_.size() > 1;) {
    const Range usable{it->first, it->first + it->second.size - kPage};
    if (!unmapped_.Contains(usable) ||
        Driver().cuMemAddressFree(it->first, it->second.size) != CUDA_SUCCESS) {
      ++it;
      continue;
    }
    unmapped_.Remove(usable);
    it = regions_.erase(it);
  }
}

std::vector<Extent> Arena::SetRights(int device, CUmemAccess_flags flags) {
  rights_[device] = flags;
  std::vector<Extent> out;
  for (const auto& [address, extent] : extents_) out.push_back(extent);
  if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) rights_.erase(device);
  return out;
}

bool Arena::HasExtent(uint64_t id, uint64_t address) const {
  auto found = extents_.find(address);
  return found != extents_.end() && found->second.id == id;
}

bool Arena::Covers(uint64_t address) const {
  auto next = regions_.upper_bound(address);
  return next != regions_.begin() && address - std::prev(next)->first < std::prev(next)->second.size;
}

uint64_t Arena::FreePageBytes() const {
  uint64_t bytes = 0;
  for (const auto& [begin, end] : free_.ranges()) {
    const uint64_t first = RoundUp(begin, kPage), last = RoundDown(end, kPage);
    if (last > first) bytes += last - first;
  }
  return bytes;
}

Status Arena::Detach(bool hold) {
  Status first;
  auto note = [&first](Status status) {
    if (first.ok()) first = std::move(status);
  };
  for (auto& [address, extent] : extents_) {
    note(DriverStatus(DiscardExtent(extent), "unmap device memory"));
    if (hold) extent.mapped = extent.created = false;
    extent.stayed = extent.created;
  }
  if (hold) note(Hold());
  return first;
}

Status Arena::Hold() {
  Status first;
  for (auto& [address, region] : regions_) {
    Status held = HoldReservation(address, region);
    if (first.ok()) first = std::move(held);
  }
  return first;
}

Status Arena::Reserve() {
  for (auto& [address, region] : regions_) RETURN_IF_ERROR(ReserveAgain(address, region));
  return {};
}

}  // namespace stasis::vmm

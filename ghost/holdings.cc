#include "ghost/holdings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/raw_log.h"
#include "dedup/crypt.h"
#include "ghost/fault.h"
#include "ghost/host_memory.h"
#include "ghost/memory_load.h"

namespace stasis {
namespace {

Layouts Pointers(const std::vector<StreamLayout>& layouts) {
  Layouts pointers;
  for (const StreamLayout& layout : layouts) pointers.push_back(&layout);
  return pointers;
}

// Where each member's stream begins when they lie one after another, in whole pages.
std::vector<uint64_t> StartsOf(const std::vector<HeldMember>& members, uint64_t* total) {
  std::vector<uint64_t> starts;
  *total = 0;
  for (const HeldMember& member : members) {
    starts.push_back(*total);
    *total += (member.active_bytes() + 4095) / 4096 * 4096;
  }
  return starts;
}

Result<int> PlaceOf(const HeldMember& member, const TaskExtent& extent) {
  auto found = member.placements.find(extent.device);
  if (found != member.placements.end()) return found->second;
  return Errorf(StatusCode::kCorrupt, "memory on device %d, which the process does not see", extent.device);
}

// Written to and read from as a file: to map so much costs more than to copy it, and a page that is not there
// is an error of write(2), where in a mapping it is a signal in the middle of a copy.
Result<Fd> HostMemory(uint64_t size) {
  Fd arena(memfd_create("stasis-held", MFD_CLOEXEC));
  if (!arena.valid()) return ErrnoStatus(errno, "create host memory");
  if (ftruncate(arena.get(), static_cast<off_t>(size)) != 0) return ErrnoStatus(errno, "size host memory");
  return arena;
}

}  // namespace

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

const char* ResidencyName(Residency residency) {
  switch (residency) {
    case Residency::kDevice:
      return "device";
    case Residency::kHost:
      return "host";
    case Residency::kDisk:
      return "disk";
  }
  return "device";
}

bool FindResidency(const std::string& name, Residency* residency) {
  for (Residency each : {Residency::kDevice, Residency::kHost, Residency::kDisk}) {
    if (name != ResidencyName(each)) continue;
    *residency = each;
    return true;
  }
  return false;
}

uint64_t Holdings::bytes() const {
  uint64_t total = 0;
  for (const HeldMember& member : members) total += member.bytes();
  return total;
}

uint64_t Holdings::active_bytes() const {
  uint64_t total = 0;
  for (const HeldMember& member : members) total += member.active_bytes();
  return total;
}

std::map<int, uint64_t> Holdings::ActiveBytesByDevice() const {
  std::map<int, uint64_t> bytes;
  for (const HeldMember& member : members) {
    StreamMap map(member);
    for (uint64_t at = 0, end = member.active_bytes(); at < end;) {
      const StreamPart& part = map.At(at);
      bytes[member.extents[part.extent].physical] += part.size;
      at += part.size;
    }
  }
  return bytes;
}

size_t Holdings::extent_count() const {
  size_t count = 0;
  for (const HeldMember& member : members) count += member.extents.size();
  return count;
}

bool Holdings::on_device() const {
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (!e.fd.valid() && !e.borrowed) return false;
    }
  }
  return true;
}

uint64_t Holdings::device_bytes() const {
  uint64_t total = 0;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) total += e.fd.valid() ? e.extent.size : 0;
  }
  return total;
}

void Holdings::Clear() {
  members.clear();
  DropHost();
  DropDisk();
}

void Holdings::DropDevice() {
  for (HeldMember& member : members) {
    for (HeldExtent& e : member.extents) e.fd.Reset();
  }
}

void Holdings::DropDisk() {
  if (!std::exchange(disk_, false) || !store_) return;
  Status status = RemoveImage(*store_, task_, kHeldImage);
  if (!status.ok()) RawLog(LogLevel::kError, "drop the copy on disk: %s", status.ToString().c_str());
  store_.reset();
  explicit_bzero(key_.data(), key_.size());
  key_.clear();
}

void Holdings::UseStore(std::shared_ptr<Store> store) {
  store_ = std::move(store);
  // Without it the identity is asked for.
  if (!key_.empty()) (void)store_->keyring().TakeOver(key_);
}

std::vector<StreamLayout> Holdings::OwnLayouts() const {
  std::vector<StreamLayout> layouts;
  for (const HeldMember& member : members) layouts.emplace_back(member.Segments(), kDefaultChunkBytes);
  return layouts;
}

std::unique_ptr<MemorySource> Holdings::SourceOfArena() const {
  uint64_t total = 0;
  return SourceOf(StartsOf(members, &total), arena_.get());
}

Result<std::unique_ptr<ImageReader>> Holdings::OpenHeldImage() const {
  if (!store_) return Status(StatusCode::kInternal, "the store of the device memory is not open");
  // Its packs may have been rewritten since.
  RETURN_IF_ERROR(store_->Refresh());
  ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, ImageReader::Open(store_, task_, kHeldImage));
  RETURN_IF_ERROR(CheckStreams(members, *image));
  return image;
}

Status Holdings::CopyToHost(Gpu& gpu, const CopyContext& context) {
  ASSIGN_OR_RETURN(DeviceMemory memory, ImportAll(gpu, members));
  std::unique_ptr<MemorySource> source = SourceOf(members, std::move(memory));
  uint64_t total = 0;
  std::vector<uint64_t> starts = StartsOf(members, &total);
  RETURN_IF_ERROR(CheckHostRoom(total, FreeHostRoom()));
  ASSIGN_OR_RETURN(Fd arena, HostMemory(total));
  std::vector<StreamLayout> layouts = OwnLayouts();
  auto keep = [&](const MemberPiece& piece, std::span<const std::byte> bytes) -> Status {
    RETURN_IF_ERROR(WriteAt(arena.get(), bytes, starts[piece.member] + piece.piece.offset)
                        .WithContext("host memory for the device memory"));
    return Fault(FaultPoint::kStoreInside);
  };
  RETURN_IF_ERROR(CopyPieces(Pointers(layouts), *source, gpu, context, keep));
  arena_ = std::move(arena);
  return Status();
}

Status Holdings::CopyToDisk(Gpu& gpu, std::shared_ptr<Store> store, const std::string& task,
                            const CopyContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<ImageWriter> image, ImageWriter::Create(store, task, kHeldImage));
  RETURN_IF_ERROR(AddStreams(*image));
  RETURN_IF_ERROR(Save(&gpu, *image, context));
  RETURN_IF_ERROR(Fault(FaultPoint::kStoreInside));
  RETURN_IF_ERROR(image->Commit(Json::object()));
  disk_ = true;
  key_ = image->HandOver();
  store_ = std::move(store);
  task_ = task;
  return Status();
}

std::vector<std::string> Holdings::StreamNames() const {
  std::vector<std::string> names;
  for (const HeldMember& member : members) names.push_back(member.stream());
  return names;
}

Status Holdings::AddStreams(ImageWriter& image) const {
  for (const HeldMember& member : members) {
    if (!member.ranges.empty()) RETURN_IF_ERROR(image.AddStream(member.stream(), member.Segments()));
  }
  return Status();
}

Status Holdings::Save(Gpu* gpu, ImageWriter& image, const CopyContext& context) const {
  if (active_bytes() == 0) return Status();
  if (in_host()) {
    return SaveStreams(StreamNames(), *SourceOfArena(), nullptr, image, context);
  }
  if (on_disk()) {
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> held, OpenHeldImage());
    return SaveStreams(StreamNames(), *SourceOf(members, *held), nullptr, image, context);
  }
  if (!gpu || !on_device()) return Status(StatusCode::kInternal, "no copy of the device memory is held");
  ASSIGN_OR_RETURN(DeviceMemory memory, ImportAll(*gpu, members));
  return SaveStreams(StreamNames(), *SourceOf(members, std::move(memory)), gpu, image, context);
}

Status CheckDeviceRoom(Gpu& gpu, const std::map<int, uint64_t>& needs) {
  ASSIGN_OR_RETURN(int count, gpu.DeviceCount());
  for (auto [device, needed] : needs) {
    if (device >= count)
      return Errorf(StatusCode::kNotFound, "there is no device %d; devices here: %d, from 0 on", device,
                    count);
    ASSIGN_OR_RETURN(uint64_t free_bytes, gpu.FreeBytes(device));
    if (free_bytes >= needed) continue;
    return Status(StatusCode::kResourceExhausted, "the task needs " + SizeText(needed) + ", device " +
                                                      std::to_string(device) + " has " +
                                                      SizeText(free_bytes) + " free");
  }
  return Status();
}

Status CheckStreams(const std::vector<HeldMember>& members, const ImageReader& image) {
  for (const HeldMember& member : members) {
    if (member.ranges.empty()) continue;
    const StreamLayout* layout = image.Layout(member.stream());
    if (layout != nullptr && layout->segments() == member.Segments()) continue;
    return Status(StatusCode::kCorrupt,
                  "image " + image.id() + ": the device memory does not fit its description");
  }
  return Status();
}

namespace {

// Memory that two processes share comes back on one device.
Status CheckHolder(const std::vector<HeldMember>& members, const HeldExtent& extent, int device) {
  if (!extent.borrowed) return Status();
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (e.borrowed || e.extent.share != extent.extent.share) continue;
      ASSIGN_OR_RETURN(int held_on, PlaceOf(member, e.extent));
      if (held_on == device) return Status();
      return Errorf(StatusCode::kUnsupported,
                    "processes share device memory and would be on devices %d and %d", held_on, device);
    }
  }
  return Status(StatusCode::kCorrupt, "nobody holds the device memory that a process shares");
}

}  // namespace

Status Holdings::CheckRoom(Gpu& gpu) const {
  std::map<int, uint64_t> needs;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      ASSIGN_OR_RETURN(int device, PlaceOf(member, e.extent));
      if (!e.borrowed) needs[device] += e.extent.size;
      RETURN_IF_ERROR(CheckHolder(members, e, device));
    }
  }
  return CheckDeviceRoom(gpu, needs);
}

Status Holdings::FillDevice(Gpu& gpu, const std::function<Status(DeviceMemory& memory)>& fill) {
  RETURN_IF_ERROR(CheckRoom(gpu));
  DeviceMemory memory(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const HeldExtent& e : members[m].extents) {
      memory[m].emplace_back();
      if (e.borrowed) continue;
      ASSIGN_OR_RETURN(int device, PlaceOf(members[m], e.extent));
      ASSIGN_OR_RETURN(memory[m].back(), gpu.Create(device, e.extent.size, e.extent.traits));
    }
  }
  RETURN_IF_ERROR(fill(memory));
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t i = 0; i < memory[m].size(); ++i) {
      if (members[m].extents[i].borrowed) continue;
      ASSIGN_OR_RETURN(members[m].extents[i].fd, memory[m][i].Export());
      members[m].extents[i].physical = memory[m][i].device();
    }
  }
  return Status();
}

Status Holdings::FillFromArena(Gpu& gpu, const CopyContext& context) {
  const std::unique_ptr<MemorySource> source = SourceOfArena();
  std::vector<StreamLayout> layouts = OwnLayouts();
  std::vector<StreamMap> maps;
  for (const HeldMember& member : members) maps.emplace_back(member);
  return FillDevice(gpu, [&](DeviceMemory& memory) {
    auto write = [&](const MemberPiece& piece, std::span<const std::byte> bytes) -> Status {
      RETURN_IF_ERROR(Fault(FaultPoint::kLoadInside));
      return maps[piece.member].ForParts(
          piece.piece.offset, bytes, [&](size_t extent, uint64_t inside, std::span<const std::byte> part) {
            return memory[piece.member][extent].Write(inside, part);
          });
    };
    return CopyPieces(Pointers(layouts), *source, gpu, context, write);
  });
}

Status Holdings::FillFromImage(Gpu& gpu, const ImageReader& image, const RankMemory& own, const FanPlan& plan,
                               const CopyContext& context) {
  return FillDevice(gpu, [&](DeviceMemory& memory) -> Status {
    LoadTarget target{gpu, image, StreamNames(), own, memory};
    RETURN_IF_ERROR(LoadFromStore(target, plan, context));
    CopySource source;
    source.map = [&](const MemoryPlace& place) -> const StreamMap& { return own.maps[place.member]; };
    source.memory = [&](const MemoryPlace& place, size_t extent, int) -> const GpuMemory& {
      return memory[place.member][extent];
    };
    return CopyOnDevices(target, plan.from_here(), source, context);
  });
}

Status Holdings::CopyToDevice(Gpu& gpu, const CopyContext& context) {
  Status status;
  if (in_host()) {
    status = FillFromArena(gpu, context);
  } else {
    if (!on_disk()) return Status(StatusCode::kInternal, "no copy of the device memory is held");
    ASSIGN_OR_RETURN(std::unique_ptr<ImageReader> image, OpenHeldImage());
    std::vector<RankMemory> alone(1);
    ASSIGN_OR_RETURN(alone[0], RankMemoryOf(members, image->manifest()));
    status = FillFromImage(gpu, *image, alone[0], FanPlan(alone, 0), context);
  }
  if (!status.ok()) DropDevice();
  return status;
}

Status Holdings::LoadFromImage(Gpu& gpu, const ImageReader& image, const RankMemory& own, const FanPlan& plan,
                               const CopyContext& context) {
  Status status = FillFromImage(gpu, image, own, plan, context);
  if (!status.ok()) DropDevice();
  return status;
}

namespace {

// What counts of one member's memory, into new extents of the same sizes.
Status MoveMember(Gpu& gpu, const HeldMember& member, std::vector<HeldExtent>* target) {
  std::vector<GpuMemory> from, to;
  for (size_t i = 0; i < member.extents.size(); ++i) {
    const HeldExtent& e = member.extents[i];
    from.emplace_back();
    to.emplace_back();
    if (e.borrowed) continue;
    ASSIGN_OR_RETURN(from.back(), gpu.Import(e.physical, e.fd.get(), e.extent.size));
    ASSIGN_OR_RETURN(to.back(), gpu.Create((*target)[i].physical, e.extent.size, e.extent.traits));
  }
  StreamMap map(member);
  uint64_t total = member.active_bytes();
  for (uint64_t at = 0; at < total;) {
    const StreamPart& part = map.At(at);
    RETURN_IF_ERROR(to[part.extent].CopyFrom(part.inside, from[part.extent], part.inside, part.size));
    RETURN_IF_ERROR(Fault(FaultPoint::kMoveInside));
    at += part.size;
  }
  for (size_t i = 0; i < to.size(); ++i) {
    if (member.extents[i].borrowed) continue;
    RETURN_IF_ERROR(gpu.Synchronize(to[i].device()));
    ASSIGN_OR_RETURN((*target)[i].fd, to[i].Export());
  }
  return Status();
}

}  // namespace

Status Holdings::Move(Gpu& gpu, std::vector<std::vector<HeldExtent>>* old) {
  std::vector<std::vector<HeldExtent>> target(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const HeldExtent& e : members[m].extents) {
      ASSIGN_OR_RETURN(int device, PlaceOf(members[m], e.extent));
      target[m].push_back({e.extent, device, Fd(), e.borrowed});
    }
  }
  RETURN_IF_ERROR(CheckRoom(gpu));
  for (size_t m = 0; m < members.size(); ++m) RETURN_IF_ERROR(MoveMember(gpu, members[m], &target[m]));
  old->clear();
  for (size_t m = 0; m < members.size(); ++m) {
    old->push_back(std::exchange(members[m].extents, std::move(target[m])));
  }
  return Status();
}

void Holdings::PutBack(std::vector<std::vector<HeldExtent>> old) {
  for (size_t m = 0; m < old.size() && m < members.size(); ++m) members[m].extents = std::move(old[m]);
}

}  // namespace stasis

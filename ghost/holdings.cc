#include "ghost/holdings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/files.h"
#include "base/parallel.h"
#include "ghost/fault.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

using DeviceMemory = std::vector<std::vector<GpuMemory>>;  // by member and extent

// Calls part(extent index, offset in the extent, piece of `bytes`) for the extents below [offset, ...).
template <typename Bytes, typename Part>
Status ForParts(const std::vector<HeldExtent>& extents, uint64_t offset, Bytes bytes, const Part& part) {
  auto at = std::upper_bound(extents.begin(), extents.end(), offset,
                             [](uint64_t value, const HeldExtent& e) { return value < e.offset; });
  STASIS_CHECK(at != extents.begin());
  for (--at; !bytes.empty(); ++at) {
    STASIS_CHECK(at != extents.end());
    uint64_t inside = offset - at->offset;
    uint64_t size = std::min<uint64_t>(bytes.size(), at->extent.size - inside);
    RETURN_IF_ERROR(part(static_cast<size_t>(at - extents.begin()), inside, bytes.subspan(0, size)));
    bytes = bytes.subspan(size);
    offset += size;
  }
  return Status();
}

class DeviceSource final : public MemorySource {
 public:
  DeviceSource(const std::vector<HeldMember>& members, DeviceMemory memory)
      : members_(members), memory_(std::move(memory)) {}
  Result<std::span<const std::byte>> Read(size_t member, uint64_t offset,
                                          std::span<std::byte> staging) override {
    RETURN_IF_ERROR(ForParts(members_[member].extents, offset, staging,
                             [&](size_t extent, uint64_t inside, std::span<std::byte> piece) {
                               return memory_[member][extent].Read(inside, piece);
                             }));
    return std::span<const std::byte>(staging);
  }

 private:
  const std::vector<HeldMember>& members_;
  DeviceMemory memory_;
};

class ArenaSource final : public MemorySource {
 public:
  ArenaSource(std::vector<uint64_t> starts, Mapping arena)
      : starts_(std::move(starts)), arena_(std::move(arena)) {}
  Result<std::span<const std::byte>> Read(size_t member, uint64_t offset,
                                          std::span<std::byte> staging) override {
    return std::span<const std::byte>(arena_.bytes() + starts_[member] + offset, staging.size());
  }

 private:
  std::vector<uint64_t> starts_;
  Mapping arena_;
};

class ImageSource final : public MemorySource {
 public:
  ImageSource(const std::vector<HeldMember>& members, const FolderImageReader& image)
      : members_(members), image_(image) {}
  ImageSource(const std::vector<HeldMember>& members, std::unique_ptr<FolderImageReader> image)
      : members_(members), owned_(std::move(image)), image_(*owned_) {}
  Result<std::span<const std::byte>> Read(size_t member, uint64_t offset,
                                          std::span<std::byte> staging) override {
    RETURN_IF_ERROR(image_.ReadChunk(members_[member].stream(), offset / kImageChunk, staging));
    return std::span<const std::byte>(staging);
  }

 private:
  const std::vector<HeldMember>& members_;
  std::unique_ptr<FolderImageReader> owned_;
  const FolderImageReader& image_;
};

struct Chunk {
  size_t member;
  uint64_t offset;
  uint64_t size;
};

std::vector<Chunk> ChunksOf(const std::vector<HeldMember>& members) {
  std::vector<Chunk> chunks;
  for (size_t m = 0; m < members.size(); ++m) {
    uint64_t bytes = members[m].bytes();
    for (uint64_t at = 0; at < bytes; at += kImageChunk) {
      chunks.push_back({m, at, std::min(kImageChunk, bytes - at)});
    }
  }
  return chunks;
}

// Where each member's stream begins when they lie one after another, in whole pages.
std::vector<uint64_t> StartsOf(const std::vector<HeldMember>& members, uint64_t* total) {
  std::vector<uint64_t> starts;
  *total = 0;
  for (const HeldMember& member : members) {
    starts.push_back(*total);
    *total += (member.bytes() + 4095) / 4096 * 4096;
  }
  return starts;
}

// Takes every chunk from `source` to `sink(chunk, bytes)`. `place` may name the memory that a chunk goes to.
Status CopyChunks(const std::vector<HeldMember>& members, MemorySource& source, Gpu* gpu,
                  const CopyContext& context, const std::function<std::span<std::byte>(const Chunk&)>& place,
                  const std::function<Status(const Chunk&, std::span<const std::byte>)>& sink) {
  std::vector<Chunk> chunks = ChunksOf(members);
  size_t threads = std::min(CopyThreads(), std::max<size_t>(chunks.size(), 1));
  // One arena for all threads, pinned once.
  Mapping staging;
  if (!place && !chunks.empty()) {
    ASSIGN_OR_RETURN(staging, Mapping::Anonymous(threads * kImageChunk));
  }
  std::span<std::byte> arena(staging.bytes(), staging.size());
  if (gpu) gpu->Pin(arena);
  Status status = ParallelFor(chunks.size(), threads, [&](size_t i, size_t worker) -> Status {
    const Chunk& chunk = chunks[i];
    if (context.cancel) RETURN_IF_ERROR(context.cancel->Check());
    std::span<std::byte> buffer = place ? place(chunk) : arena.subspan(worker * kImageChunk, chunk.size);
    ASSIGN_OR_RETURN(std::span<const std::byte> bytes, source.Read(chunk.member, chunk.offset, buffer));
    RETURN_IF_ERROR(sink(chunk, bytes));
    if (context.progress) context.progress->Add(chunk.size);
    return Status();
  });
  if (gpu) gpu->Unpin(arena);
  return status;
}

Result<DeviceMemory> ImportAll(Gpu& gpu, const std::vector<HeldMember>& members) {
  DeviceMemory memory(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const HeldExtent& e : members[m].extents) {
      ASSIGN_OR_RETURN(GpuMemory piece, gpu.Import(e.physical, e.fd.get(), e.extent.size));
      memory[m].push_back(std::move(piece));
    }
  }
  return memory;
}

Result<int> PlaceOf(const HeldMember& member, const TaskExtent& extent) {
  auto found = member.placements.find(extent.device);
  if (found != member.placements.end()) return found->second;
  return Errorf(StatusCode::kCorrupt, "memory on device %d, which the process does not see", extent.device);
}

Json PlacementsJson(const Placements& placements) {
  Json list = Json::array();
  for (auto [ordinal, physical] : placements) list.push_back({ordinal, physical});
  return list;
}

Placements PlacementsOf(const Json& list) {
  Placements placements;
  for (const Json& pair : list) placements[pair.at(0).get<int32_t>()] = pair.at(1).get<int32_t>();
  return placements;
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

size_t Holdings::extent_count() const {
  size_t count = 0;
  for (const HeldMember& member : members) count += member.extents.size();
  return count;
}

bool Holdings::on_device() const {
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (!e.fd.valid()) return false;
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
  if (!disk_folder_.empty()) (void)RemoveTree(disk_folder_ + "/" + disk_id_);
  disk_folder_.clear();
}

Result<std::unique_ptr<MemorySource>> Holdings::OpenSource(Gpu* gpu) const {
  if (in_host()) {
    uint64_t total = 0;
    std::vector<uint64_t> starts = StartsOf(members, &total);
    if (total == 0) return std::unique_ptr<MemorySource>(new ArenaSource(std::move(starts), Mapping()));
    ASSIGN_OR_RETURN(Mapping arena, Mapping::OfFd(arena_.get(), 0, total, PROT_READ));
    return std::unique_ptr<MemorySource>(new ArenaSource(std::move(starts), std::move(arena)));
  }
  if (on_disk()) {
    ASSIGN_OR_RETURN(std::unique_ptr<FolderImageReader> image,
                     FolderImageReader::Open(disk_folder_, disk_id_));
    return std::unique_ptr<MemorySource>(new ImageSource(members, std::move(image)));
  }
  if (!gpu || !on_device()) return Status(StatusCode::kInternal, "no copy of the device memory is held");
  ASSIGN_OR_RETURN(DeviceMemory memory, ImportAll(*gpu, members));
  return std::unique_ptr<MemorySource>(new DeviceSource(members, std::move(memory)));
}

Status Holdings::CopyToHost(Gpu& gpu, const CopyContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<MemorySource> source, OpenSource(&gpu));
  uint64_t total = 0;
  std::vector<uint64_t> starts = StartsOf(members, &total);
  Fd arena(memfd_create("stasis-held", MFD_CLOEXEC));
  if (!arena.valid()) return ErrnoStatus(errno, "create host memory");
  if (ftruncate(arena.get(), static_cast<off_t>(total)) != 0) return ErrnoStatus(errno, "size host memory");
  if (total > 0) {
    // Memory that is not there is found now, and not by a signal in the middle of a copy.
    if (int err = posix_fallocate(arena.get(), 0, static_cast<off_t>(total)); err != 0) {
      return Status(StatusCode::kResourceExhausted,
                    "no " + SizeText(total) + " of host memory for the device memory");
    }
    ASSIGN_OR_RETURN(Mapping map, Mapping::OfFd(arena.get(), 0, total, PROT_READ | PROT_WRITE));
    std::span<std::byte> bytes(map.bytes(), map.size());
    gpu.Pin(bytes);
    Status copied = CopyChunks(
        members, *source, nullptr, context,
        [&](const Chunk& chunk) { return bytes.subspan(starts[chunk.member] + chunk.offset, chunk.size); },
        [](const Chunk&, std::span<const std::byte>) { return Fault(FaultPoint::kStoreInside); });
    gpu.Unpin(bytes);
    RETURN_IF_ERROR(copied);
  }
  arena_ = std::move(arena);
  return Status();
}

Status Holdings::CopyToDisk(Gpu& gpu, const std::string& folder, const std::string& id,
                            const CopyContext& context) {
  RETURN_IF_ERROR(RemoveTree(folder + "/" + id));
  ASSIGN_OR_RETURN(std::unique_ptr<FolderImageWriter> image, FolderImageWriter::Create(folder, id));
  RETURN_IF_ERROR(Save(&gpu, *image, context));
  RETURN_IF_ERROR(Fault(FaultPoint::kStoreInside));
  RETURN_IF_ERROR(image->Commit(Json::object()));
  disk_folder_ = folder;
  disk_id_ = id;
  return Status();
}

Status Holdings::Save(Gpu* gpu, FolderImageWriter& image, const CopyContext& context) const {
  if (bytes() == 0) return Status();
  for (const HeldMember& member : members) {
    if (!member.extents.empty()) RETURN_IF_ERROR(image.AddStream(member.stream(), member.bytes()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<MemorySource> source, OpenSource(gpu));
  return CopyChunks(members, *source, in_host() || on_disk() ? nullptr : gpu, context, nullptr,
                    [&](const Chunk& chunk, std::span<const std::byte> bytes) {
                      return image.WriteChunk(members[chunk.member].stream(), chunk.offset / kImageChunk,
                                              bytes);
                    });
}

Status Holdings::CheckRoom(Gpu& gpu) const {
  std::map<int, uint64_t> needs;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      ASSIGN_OR_RETURN(int device, PlaceOf(member, e.extent));
      needs[device] += e.extent.size;
    }
  }
  ASSIGN_OR_RETURN(int count, gpu.DeviceCount());
  for (auto [device, needed] : needs) {
    if (device >= count)
      return Errorf(StatusCode::kNotFound, "there is no device %d, only %d", device, count);
    ASSIGN_OR_RETURN(uint64_t free_bytes, gpu.FreeBytes(device));
    if (free_bytes >= needed) continue;
    return Status(StatusCode::kResourceExhausted, "the task needs " + SizeText(needed) + ", device " +
                                                      std::to_string(device) + " has " +
                                                      SizeText(free_bytes) + " free");
  }
  return Status();
}

Status Holdings::FillDevice(Gpu& gpu, MemorySource& source, const CopyContext& context) {
  RETURN_IF_ERROR(CheckRoom(gpu));
  DeviceMemory memory(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    for (const HeldExtent& e : members[m].extents) {
      ASSIGN_OR_RETURN(int device, PlaceOf(members[m], e.extent));
      ASSIGN_OR_RETURN(GpuMemory piece, gpu.Create(device, e.extent.size));
      memory[m].push_back(std::move(piece));
    }
  }
  RETURN_IF_ERROR(CopyChunks(members, source, &gpu, context, nullptr,
                             [&](const Chunk& chunk, std::span<const std::byte> bytes) -> Status {
                               RETURN_IF_ERROR(Fault(FaultPoint::kLoadInside));
                               return ForParts(
                                   members[chunk.member].extents, chunk.offset, bytes,
                                   [&](size_t extent, uint64_t inside, std::span<const std::byte> piece) {
                                     return memory[chunk.member][extent].Write(inside, piece);
                                   });
                             }));
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t i = 0; i < memory[m].size(); ++i) {
      ASSIGN_OR_RETURN(members[m].extents[i].fd, memory[m][i].Export());
      members[m].extents[i].physical = memory[m][i].device();
    }
  }
  return Status();
}

Status Holdings::CopyToDevice(Gpu& gpu, const CopyContext& context) {
  ASSIGN_OR_RETURN(std::unique_ptr<MemorySource> source, OpenSource(nullptr));
  Status status = FillDevice(gpu, *source, context);
  if (!status.ok()) DropDevice();
  return status;
}

Status Holdings::LoadFromImage(Gpu& gpu, const FolderImageReader& image, const CopyContext& context) {
  ImageSource source(members, image);
  Status status = FillDevice(gpu, source, context);
  if (!status.ok()) DropDevice();
  return status;
}

Status Holdings::Move(Gpu& gpu, std::vector<std::vector<HeldExtent>>* old) {
  Holdings target;
  for (const HeldMember& member : members) {
    std::vector<HeldExtent> extents;
    for (const HeldExtent& e : member.extents) {
      ASSIGN_OR_RETURN(int device, PlaceOf(member, e.extent));
      extents.push_back({e.extent, device, e.offset, Fd()});
    }
    target.members.emplace_back();
    target.members.back().placements = member.placements;
    target.members.back().extents = std::move(extents);
  }
  RETURN_IF_ERROR(target.CheckRoom(gpu));
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t i = 0; i < members[m].extents.size(); ++i) {
      const HeldExtent& from = members[m].extents[i];
      HeldExtent& to = target.members[m].extents[i];
      ASSIGN_OR_RETURN(GpuMemory source, gpu.Import(from.physical, from.fd.get(), from.extent.size));
      ASSIGN_OR_RETURN(GpuMemory copy, gpu.Create(to.physical, to.extent.size));
      RETURN_IF_ERROR(copy.CopyFrom(source));
      RETURN_IF_ERROR(Fault(FaultPoint::kMoveInside));
      ASSIGN_OR_RETURN(to.fd, copy.Export());
    }
  }
  old->clear();
  for (size_t m = 0; m < members.size(); ++m) {
    old->push_back(std::exchange(members[m].extents, std::move(target.members[m].extents)));
  }
  return Status();
}

void Holdings::PutBack(std::vector<std::vector<HeldExtent>> old) {
  for (size_t m = 0; m < old.size() && m < members.size(); ++m) members[m].extents = std::move(old[m]);
}

Result<Holdings> Holdings::Duplicate(Gpu& gpu) const {
  Holdings copy;
  for (const HeldMember& member : members) {
    HeldMember same;
    same.nspid = member.nspid;
    for (const HeldExtent& e : member.extents) {
      same.extents.push_back({e.extent, e.physical, e.offset, Fd()});
      same.placements[e.extent.device] = e.physical;
    }
    copy.members.push_back(std::move(same));
  }
  RETURN_IF_ERROR(copy.CheckRoom(gpu));
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t i = 0; i < members[m].extents.size(); ++i) {
      const HeldExtent& from = members[m].extents[i];
      ASSIGN_OR_RETURN(GpuMemory source, gpu.Import(from.physical, from.fd.get(), from.extent.size));
      ASSIGN_OR_RETURN(GpuMemory target, gpu.Create(from.physical, from.extent.size));
      RETURN_IF_ERROR(target.CopyFrom(source));
      ASSIGN_OR_RETURN(copy.members[m].extents[i].fd, target.Export());
    }
  }
  return copy;
}

Json Holdings::Describe() const {
  Json list = Json::array();
  for (const HeldMember& member : members) {
    Json extents = Json::array();
    for (const HeldExtent& e : member.extents) {
      extents.push_back(
          {e.extent.id, e.extent.device, e.extent.address, e.extent.size, e.physical, e.fd.valid()});
    }
    Json devices = Json::array();
    for (const TaskDevice& device : member.devices) devices.push_back(DeviceJson(device));
    list.push_back({{"nspid", member.nspid},
                    {"pid", member.pid},
                    {"strategy", static_cast<int>(member.strategy)},
                    {"driver_version", member.driver_version},
                    {"devices", std::move(devices)},
                    {"placed", PlacementsJson(member.placed)},
                    {"placements", PlacementsJson(member.placements)},
                    {"placed_uuids", HexOf(member.placed_uuids)},
                    {"extents", std::move(extents)}});
  }
  return {{"members", std::move(list)},
          {"arena", arena_.valid()},
          {"disk_folder", disk_folder_},
          {"disk_id", disk_id_}};
}

std::vector<Fd> Holdings::Descriptors() const {
  std::vector<Fd> fds;
  for (const HeldMember& member : members) {
    for (const HeldExtent& e : member.extents) {
      if (e.fd.valid()) fds.push_back(e.fd.Duplicate());
    }
  }
  if (arena_.valid()) fds.push_back(arena_.Duplicate());
  return fds;
}

Result<Holdings> Holdings::Adopt(const Json& description, std::vector<Fd> fds) {
  Holdings holdings;
  JsonFields fields(description, "holdings");
  size_t next = 0;
  auto take = [&] {
    return next < fds.size() ? std::move(fds[next++]) : (fields.Fail("lack descriptors"), Fd());
  };
  for (const Json* element : fields.Objects("members", 4096)) {
    JsonFields in(*element, "member");
    HeldMember member;
    member.nspid = static_cast<pid_t>(in.Number("nspid", 1 << 22));
    member.pid = static_cast<pid_t>(in.Number("pid", 1 << 22));
    member.strategy = static_cast<TaskStrategy>(in.Number("strategy", 1));
    member.driver_version = static_cast<int32_t>(in.Number("driver_version", INT32_MAX));
    for (const Json* device : in.Objects("devices", 64))
      member.devices.push_back(ParseDeviceJson(*device, in));
    member.placed_uuids = UnhexAll(in.Strings("placed_uuids", 64, 32));
    member.placed = PlacementsOf((*element)["placed"]);
    member.placements = PlacementsOf((*element)["placements"]);
    RETURN_IF_ERROR(in.Finish());
    uint64_t offset = 0;
    for (const Json& row : (*element)["extents"]) {
      HeldExtent e;
      e.extent = {row.at(0).get<uint64_t>(), row.at(1).get<int32_t>(), row.at(2).get<uint64_t>(),
                  row.at(3).get<uint64_t>()};
      e.physical = row.at(4).get<int>();
      e.offset = offset;
      if (row.at(5).get<bool>()) e.fd = take();
      offset += e.extent.size;
      member.extents.push_back(std::move(e));
    }
    holdings.members.push_back(std::move(member));
  }
  if (fields.Bool("arena")) holdings.arena_ = take();
  holdings.disk_folder_ = fields.String("disk_folder");
  holdings.disk_id_ = fields.String("disk_id");
  RETURN_IF_ERROR(fields.Finish());
  return holdings;
}

}  // namespace stasis

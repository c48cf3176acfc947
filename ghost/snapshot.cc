#include "ghost/snapshot.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/parallel.h"
#include "ghost/fault.h"
#include "ghost/holdings.h"
#include "ghost/host_memory.h"

namespace stasis {
namespace {

constexpr uint64_t kBlockBytes = 64 << 20;
// Device memory comes in such units.
constexpr uint64_t kGranularity = 2 << 20;

constexpr const char* kModeNames[] = {"auto", "device", "host", "off"};

uint64_t OnDevice(uint64_t bytes) { return (bytes + kGranularity - 1) / kGranularity * kGranularity; }

}  // namespace

bool FindSnapshotMode(const std::string& name, SnapshotMode* mode) {
  for (size_t i = 0; i < std::size(kModeNames); ++i) {
    if (name != kModeNames[i]) continue;
    *mode = static_cast<SnapshotMode>(i);
    return true;
  }
  return false;
}

uint64_t HostShare(unsigned percent) { return FreeHostRoom().bytes / 100 * percent; }

Snapshot::~Snapshot() = default;

// A block ends where the next piece would make it too large, or lies on another device.
void Snapshot::Plan(size_t member, const StreamLayout& layout, const HeldMember& held) {
  StreamMap map(held);
  by_piece_.emplace_back();
  Block* block = nullptr;
  for (const Piece& piece : layout.pieces()) {
    int device = held.extents[map.At(piece.offset).extent].physical;
    if (block == nullptr || block->device != device || block->size + piece.size > kBlockBytes) {
      blocks_.push_back(std::make_unique<Block>());
      block = blocks_.back().get();
      block->member = member;
      block->offset = piece.offset;
      block->device = device;
    }
    block->size += piece.size;
    ++block->left;
    by_piece_.back().push_back(block);
  }
}

Status Snapshot::CheckFits() const {
  std::map<int, uint64_t> needs;
  uint64_t total = 0;
  for (const auto& block : blocks_) {
    needs[block->device] += OnDevice(block->size);
    total += block->size;
  }
  if (place_ == Place::kDevice) return CheckDeviceRoom(gpu_, needs).WithContext("snapshot");
  if (total <= host_limit_) return Status();
  return Status(StatusCode::kResourceExhausted, "the snapshot needs " + SizeText(total) +
                                                    " of host memory and may have " + SizeText(host_limit_));
}

Result<Mapping> Snapshot::InHost(const Block& block,
                                 const std::function<Status(std::span<std::byte>)>& read) {
  ASSIGN_OR_RETURN(Mapping host, Mapping::Anonymous(block.size));
  host.PreferLargePages();
  const std::span<std::byte> bytes(host.bytes(), block.size);
  gpu_.Pin(bytes);
  Status status = read(bytes);
  gpu_.Unpin(bytes);
  RETURN_IF_ERROR(status);
  return host;
}

Status Snapshot::FillBlock(Block& block, const StreamMap& map, const std::vector<GpuMemory>& extents) {
  if (place_ == Place::kHost) {
    auto read = [&](size_t extent, uint64_t inside, std::span<std::byte> part) {
      return extents[extent].Read(inside, part);
    };
    ASSIGN_OR_RETURN(block.in_host, InHost(block, [&](std::span<std::byte> bytes) {
                       return map.ForParts(block.offset, bytes, read);
                     }));
    return Status();
  }
  ASSIGN_OR_RETURN(block.on_device, gpu_.Create(block.device, OnDevice(block.size)));
  for (uint64_t done = 0; done < block.size;) {
    const StreamPart& part = map.At(block.offset + done);
    uint64_t skip = block.offset + done - part.offset;
    uint64_t size = std::min(part.size - skip, block.size - done);
    RETURN_IF_ERROR(block.on_device.CopyFrom(done, extents[part.extent], part.inside + skip, size));
    done += size;
  }
  return gpu_.FinishCopies(block.device);
}

Status Snapshot::Fill(const std::vector<HeldMember>& members) {
  ASSIGN_OR_RETURN(DeviceMemory memory, ImportAll(gpu_, members));
  std::vector<StreamMap> maps;
  for (const HeldMember& member : members) maps.emplace_back(member);
  Status filled = ParallelFor(blocks_.size(), CopyThreads(), [&](size_t i, size_t) -> Status {
    Block& block = *blocks_[i];
    RETURN_IF_ERROR(FillBlock(block, maps[block.member], memory[block.member]));
    return Fault(FaultPoint::kSnapshotInside);
  });
  // Copies may still be under way in either case, and the memory that they use goes with this function.
  for (const auto& [device, bytes] : DeviceBytes()) {
    Status done = gpu_.Synchronize(device);
    if (filled.ok()) filled = std::move(done);
  }
  return filled;
}

Result<std::unique_ptr<Snapshot>> Snapshot::Take(Gpu& gpu, const std::vector<HeldMember>& members,
                                                 const Layouts& layouts, Place place, uint64_t host_limit) {
  std::unique_ptr<Snapshot> snapshot(new Snapshot(gpu, place, host_limit));
  for (size_t m = 0; m < members.size(); ++m) snapshot->Plan(m, *layouts[m], members[m]);
  RETURN_IF_ERROR(snapshot->CheckFits());
  RETURN_IF_ERROR(snapshot->Fill(members));
  return snapshot;
}

Result<std::span<const std::byte>> Snapshot::Read(const MemberPiece& piece, std::span<std::byte> staging) {
  std::shared_lock lost(lost_mutex_);
  RETURN_IF_ERROR(lost_);
  Block& block = *by_piece_[piece.member][piece.index];
  std::shared_lock lock(block.mutex);
  uint64_t inside = piece.piece.offset - block.offset;
  if (block.in_host.valid())
    return std::span<const std::byte>(block.in_host.bytes() + inside, piece.piece.size);
  RETURN_IF_ERROR(block.on_device.Read(inside, staging));
  return std::span<const std::byte>(staging);
}

std::optional<DevicePlace> Snapshot::Locate(const MemberPiece& piece, uint64_t offset, uint64_t) {
  Block& block = *by_piece_[piece.member][piece.index];
  std::shared_lock lock(block.mutex);
  if (block.on_device.size() == 0) return std::nullopt;
  return DevicePlace{block.device, block.on_device.address() + (offset - block.offset)};
}

Status Snapshot::ReadPart(const MemberPiece& piece, uint64_t offset, std::span<std::byte> out) {
  std::shared_lock lost(lost_mutex_);
  RETURN_IF_ERROR(lost_);
  Block& block = *by_piece_[piece.member][piece.index];
  std::shared_lock lock(block.mutex);
  uint64_t inside = offset - block.offset;
  if (!block.in_host.valid()) return block.on_device.Read(inside, out);
  std::memcpy(out.data(), block.in_host.bytes() + inside, out.size());
  return Status();
}

void Snapshot::Done(const MemberPiece& piece) {
  Block& block = *by_piece_[piece.member][piece.index];
  if (--block.left != 0) return;
  std::unique_lock lock(block.mutex);
  block.on_device = GpuMemory();
  block.in_host.Reset();
}

std::map<int, uint64_t> Snapshot::DeviceBytes() const {
  std::map<int, uint64_t> bytes;
  for (const auto& block : blocks_) {
    std::shared_lock lock(block->mutex);
    if (block->on_device.size() != 0) bytes[block->device] += block->on_device.size();
  }
  return bytes;
}

Status Snapshot::ToHost(Block& block) {
  std::unique_lock lock(block.mutex);
  if (block.on_device.size() == 0) return Status();
  RETURN_IF_ERROR(Fault(FaultPoint::kEvictInside));
  ASSIGN_OR_RETURN(block.in_host, InHost(block, [&block](std::span<std::byte> bytes) {
                     return block.on_device.Read(0, bytes);
                   }));
  block.on_device = GpuMemory();
  return Status();
}

void Snapshot::Lose(const Status& why) {
  std::unique_lock lost(lost_mutex_);
  lost_ = why;
  // Host memory may be in use where it lies.
  for (const auto& block : blocks_) {
    std::unique_lock lock(block->mutex);
    block->on_device = GpuMemory();
  }
}

Status Snapshot::GiveUpDevice() {
  std::unique_lock places(places_mutex_);
  uint64_t total = 0;
  for (const auto& [device, bytes] : DeviceBytes()) total += bytes;
  if (total == 0) return Status();
  gave_up_ = true;
  Status status;
  if (total > host_limit_) {
    status = Status(StatusCode::kResourceExhausted,
                    "the program needs the device memory that the snapshot holds, and " + SizeText(total) +
                        " of it are not saved yet, more than the " + SizeText(host_limit_) +
                        " of host memory that it may take");
  }
  for (const auto& block : blocks_) {
    if (status.ok()) status = ToHost(*block);
  }
  if (!status.ok()) Lose(status);
  return status;
}

}  // namespace stasis

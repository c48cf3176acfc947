#include "ghost/device_save.h"

#include <algorithm>
#include <chrono>

#include "base/mapping.h"
#include "base/parallel.h"

namespace stasis {
namespace {

using Seconds = std::chrono::duration<double>;
using SteadyClock = std::chrono::steady_clock;

// A slow device shall not cost much by being asked: first it hashes little, and only one that does not fall
// far behind is given enough to be busy.
constexpr uint64_t kFirstSample = 1 << 20, kSecondSample = 256 << 20;
constexpr double kHopeless = 8;
// Where nothing is found in the store, hashing on the device is in vain: a device this much faster than the
// way through the host loses a quarter at worst. Where ranks may have the same in memory, two of them gain as
// soon as it is twice as fast.
constexpr double kWorthIt = 4, kWorthItShared = 2;

// The first chunks of `part`, of about `bytes` together.
size_t FirstChunks(const std::vector<DeviceRange>& ranges, uint64_t bytes, uint64_t* sum) {
  size_t count = 0;
  for (*sum = 0; count < ranges.size() && *sum < bytes; ++count) *sum += ranges[count].size;
  return count;
}

Hash128 HashOrZero(std::span<const std::byte> bytes) {
  return AllZero(bytes) ? kZeroChunk : HashBytes(bytes);
}

}  // namespace

DeviceSaver::~DeviceSaver() {
  for (auto& [device, hasher] : hashers_) {
    if (hasher && gpu_.Use(device).ok()) hasher.reset();
  }
}

DeviceSaver::Parts DeviceSaver::Locate(const StreamLayout& layout, const DeviceBytes& bytes) const {
  Parts parts;
  for (size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
    uint64_t size = layout.ChunkSize(chunk);
    std::optional<DevicePlace> place = bytes.locate(layout.ChunkOffset(chunk), size);
    if (!place) continue;
    Part& part = parts[place->device];
    part.ranges.push_back({place->address, size});
    part.chunks.push_back(chunk);
    part.bytes += size;
  }
  return parts;
}

Status DeviceSaver::AddStream(const std::string& name, DeviceBytes bytes) {
  Stream& stream = streams_[name];
  stream.bytes = std::move(bytes);
  if (mode_ == DeviceHashMode::kOff) return Status();
  const StreamLayout& layout = image_.Layout(name);
  Parts parts = Locate(layout, stream.bytes);
  for (auto at = parts.begin(); at != parts.end();) {
    ASSIGN_OR_RETURN(DeviceHasher * hasher, HasherFor(at->first, at->second, layout, stream));
    at = hasher ? std::next(at) : parts.erase(at);
  }
  if (parts.empty()) return Status();
  stream.hashes.resize(layout.chunk_count());
  RETURN_IF_ERROR(HashParts(parts, &stream));
  return HashOthers(layout, parts, &stream);
}

Status DeviceSaver::HashParts(const Parts& parts, Stream* stream) {
  for (const auto& [device, part] : parts) {
    RETURN_IF_ERROR(gpu_.Use(device));
    std::vector<Hash128> hashes(part.ranges.size());
    RETURN_IF_ERROR(
        hashers_[device]->Hash(part.ranges, hashes).WithContext("hash on device " + std::to_string(device)));
    for (size_t i = 0; i < hashes.size(); ++i) stream->hashes[part.chunks[i]] = hashes[i];
    hashed_ += part.bytes;
  }
  return Status();
}

// Those that lie across pieces of device memory, or on devices that do not hash.
Status DeviceSaver::HashOthers(const StreamLayout& layout, const Parts& parts, Stream* stream) {
  std::vector<bool> known(layout.chunk_count());
  for (const auto& [device, part] : parts) {
    for (size_t chunk : part.chunks) known[chunk] = true;
  }
  std::vector<std::byte> buffer(kMaxChunkBytes);
  for (size_t chunk = 0; chunk < known.size(); ++chunk) {
    if (known[chunk]) continue;
    std::span<std::byte> bytes = std::span(buffer).first(layout.ChunkSize(chunk));
    RETURN_IF_ERROR(stream->bytes.read(layout.ChunkOffset(chunk), bytes));
    copied_ += bytes.size();
    stream->hashes[chunk] = HashOrZero(bytes);
  }
  return Status();
}

Result<DeviceHasher*> DeviceSaver::HasherFor(int device, const Part& part, const StreamLayout& layout,
                                             const Stream& stream) {
  if (auto found = hashers_.find(device); found != hashers_.end()) return found->second.get();
  RETURN_IF_ERROR(gpu_.Use(device));
  Result<std::unique_ptr<DeviceHasher>> hasher = DeviceHasher::Create();
  if (!hasher.ok()) {
    notes_.push_back("device " + std::to_string(device) +
                     " does not hash, so all of its memory is copied: " + hasher.status().ToString());
    return hashers_[device].get();
  }
  ASSIGN_OR_RETURN(bool worth, IsWorthIt(**hasher, part, layout, stream));
  if (worth) hashers_[device] = *std::move(hasher);
  return hashers_[device].get();
}

// Hashes a first sample on both sides. A device that gives other hashes than the host is an error: what it
// holds is not to be trusted either.
Result<bool> DeviceSaver::IsWorthIt(DeviceHasher& hasher, const Part& part, const StreamLayout& layout,
                                    const Stream& stream) {
  uint64_t size = 0;
  size_t count = FirstChunks(part.ranges, kFirstSample, &size);
  ASSIGN_OR_RETURN(Mapping memory, Mapping::Anonymous(size));
  std::span<std::byte> buffer(memory.bytes(), size);
  std::vector<Hash128> host, device(count);
  gpu_.Pin(buffer);
  SteadyClock::time_point start = SteadyClock::now();
  Status read;
  for (size_t i = 0; i < count && read.ok(); ++i) {
    std::span<std::byte> bytes = buffer.first(part.ranges[i].size);
    read = stream.bytes.read(layout.ChunkOffset(part.chunks[i]), bytes);
    host.push_back(HashOrZero(bytes));
    buffer = buffer.subspan(bytes.size());
  }
  Seconds by_host = SteadyClock::now() - start;
  gpu_.Unpin({memory.bytes(), size});
  RETURN_IF_ERROR(read);
  start = SteadyClock::now();
  RETURN_IF_ERROR(hasher.Hash(std::span(part.ranges).first(count), device));
  Seconds by_device = SteadyClock::now() - start;
  if (host != device)
    return Status(StatusCode::kInternal, "a device and the host hash the same bytes differently");
  if (mode_ == DeviceHashMode::kOn) return true;

  double host_rate = static_cast<double>(size) / by_host.count() * static_cast<double>(CopyThreads());
  if (static_cast<double>(size) / by_device.count() * kHopeless < host_rate) return false;
  count = FirstChunks(part.ranges, kSecondSample, &size);
  device.resize(count);
  start = SteadyClock::now();
  RETURN_IF_ERROR(hasher.Hash(std::span(part.ranges).first(count), device));
  by_device = SteadyClock::now() - start;
  return static_cast<double>(size) / by_device.count() > host_rate * (shared_ ? kWorthItShared : kWorthIt);
}

bool DeviceSaver::Knows(const std::string& name) const {
  auto found = streams_.find(name);
  return found != streams_.end() && !found->second.hashes.empty();
}

Status DeviceSaver::SavePiece(const std::string& name, size_t index, std::span<std::byte> staging) {
  const Stream& stream = streams_.at(name);
  const StreamLayout& layout = image_.Layout(name);
  const Piece& piece = layout.pieces()[index];
  std::vector<bool> wanted;
  RETURN_IF_ERROR(image_.OfferPiece(
      name, index, std::span(stream.hashes).subspan(piece.first_chunk, piece.chunks), &wanted));
  for (size_t begin = 0; begin < piece.chunks;) {
    size_t end = begin;
    while (end < piece.chunks && wanted[end]) ++end;
    RETURN_IF_ERROR(SaveChunks(name, stream, piece.first_chunk + begin, piece.first_chunk + end, staging));
    begin = end + 1;
  }
  return Status();
}

// [begin, end) of the stream's chunks, copied at once.
Status DeviceSaver::SaveChunks(const std::string& name, const Stream& stream, size_t begin, size_t end,
                               std::span<std::byte> staging) {
  if (begin == end) return Status();
  const StreamLayout& layout = image_.Layout(name);
  uint64_t start = layout.ChunkOffset(begin);
  staging = staging.first(layout.ChunkOffset(end) - start);
  RETURN_IF_ERROR(stream.bytes.read(start, staging));
  copied_ += staging.size();
  for (size_t chunk = begin; chunk < end; ++chunk) {
    RETURN_IF_ERROR(image_.WriteChunk(
        name, chunk, staging.subspan(layout.ChunkOffset(chunk) - start, layout.ChunkSize(chunk))));
  }
  return Status();
}

}  // namespace stasis

#include "ghost/fan_out.h"

#include <map>
#include <set>

#include "dedup/image_manifest.h"
#include "ghost/memory_load.h"

namespace stasis {
namespace {

// Every rank has its memory ready, and gives out nothing but descriptors.
constexpr std::chrono::seconds kFetchTime(30);

Result<RankMemory> ReadPeer(Store& store, const FanOut::Peer& peer) {
  ASSIGN_OR_RETURN(std::string path, ManifestPath(store.root(), peer.task, peer.image));
  ASSIGN_OR_RETURN(ImageManifest manifest, ReadImageManifest(store.files(), path, store.keyring()));
  return RankMemoryOf(manifest);
}

uint64_t BytesOf(const std::vector<MemoryCopy>& copies) {
  uint64_t bytes = 0;
  for (const MemoryCopy& copy : copies) bytes += copy.size;
  return bytes;
}

}  // namespace

FanOut::FanOut(const ImageReader& image, std::vector<Peer> peers, std::vector<RankMemory> ranks, size_t mine)
    : image_(image), peers_(std::move(peers)), ranks_(std::move(ranks)), mine_(mine), plan_(ranks_, mine_) {}

Result<std::unique_ptr<FanOut>> FanOut::Plan(Store& store, const ImageReader& image,
                                             std::vector<Peer> peers) {
  if (peers.empty()) peers.push_back({image.task(), image.id(), ""});
  std::vector<RankMemory> ranks;
  size_t mine = peers.size();
  for (size_t i = 0; i < peers.size(); ++i) {
    bool own = peers[i].task == image.task() && peers[i].image == image.id();
    if (own) mine = i;
    Result<RankMemory> memory = own ? RankMemoryOf(image.manifest()) : ReadPeer(store, peers[i]);
    if (!memory.ok()) return std::move(memory).status().WithContext("memory of " + peers[i].task);
    ranks.push_back(*std::move(memory));
  }
  if (mine == peers.size()) {
    return Status(StatusCode::kInvalidArgument, "the task is not among the ranks that are restored");
  }
  return std::unique_ptr<FanOut>(new FanOut(image, std::move(peers), std::move(ranks), mine));
}

Status FanOut::Load(Gpu& gpu, Holdings& holdings, const CopyContext& context) {
  RETURN_IF_ERROR(holdings.LoadFromImage(gpu, image_, ranks_[mine_], plan_, context));
  read_bytes_ = plan_.read_bytes();
  fanned_out_bytes_ = BytesOf(plan_.from_here());
  if (peers_.size() < 2) return Status();
  ASSIGN_OR_RETURN(server_, ExtentServer::Start(peers_[mine_].socket, holdings.members));
  return Status();
}

FanOut::MappingKey FanOut::KeyOf(const MemoryPlace& place, size_t extent, int device) {
  return {place.rank, {static_cast<uint32_t>(place.member), static_cast<uint32_t>(extent)}, device};
}

std::vector<FanOut::MappingKey> FanOut::NeededFor(const MemoryCopy& copy, const DeviceMemory& memory) const {
  std::vector<MappingKey> keys;
  const StreamMap& from = ranks_[copy.from.rank].maps[copy.from.member];
  const StreamMap& to = ranks_[mine_].maps[copy.to.member];
  for (uint64_t done = 0; done < copy.size;) {
    const StreamPart& in = from.At(copy.from.offset + done);
    const StreamPart& out = to.At(copy.to.offset + done);
    keys.push_back(KeyOf(copy.from, in.extent, memory[copy.to.member][out.extent].device()));
    done = std::min(in.offset + in.size - copy.from.offset, out.offset + out.size - copy.to.offset);
  }
  return keys;
}

// One that cannot be mapped is left out, and noted: two devices need not reach each other.
Status FanOut::MapRank(Gpu& gpu, size_t rank, const std::vector<MappingKey>& keys, Mappings* mappings) {
  std::vector<ExtentName> names;
  for (const MappingKey& key : keys) names.push_back(key.extent);
  ASSIGN_OR_RETURN(std::vector<Fd> fds,
                   FetchExtents(peers_[rank].socket, names, Deadline::After(kFetchTime)));
  std::set<std::string> reasons;
  for (size_t i = 0; i < keys.size(); ++i) {
    uint64_t size = ranks_[rank].extent_bytes[keys[i].extent.member][keys[i].extent.extent];
    Result<GpuMemory> memory = gpu.Import(keys[i].device, fds[i].get(), size);
    if (memory.ok()) {
      (*mappings)[keys[i]] = *std::move(memory);
    } else {
      reasons.insert("device memory of " + peers_[rank].task + " cannot be reached from device " +
                     std::to_string(keys[i].device) +
                     ", so it is read from the store: " + memory.status().ToString());
    }
  }
  notes_.insert(notes_.end(), reasons.begin(), reasons.end());
  return Status();
}

Result<FanOut::Mappings> FanOut::MapOthers(Gpu& gpu, const DeviceMemory& memory) {
  std::map<size_t, std::set<MappingKey>> needed;
  for (const MemoryCopy& copy : plan_.from_others()) {
    for (const MappingKey& key : NeededFor(copy, memory)) needed[key.rank].insert(key);
  }
  Mappings mappings;
  for (const auto& [rank, keys] : needed) {
    RETURN_IF_ERROR(MapRank(gpu, rank, {keys.begin(), keys.end()}, &mappings)
                        .WithContext("device memory of " + peers_[rank].task));
  }
  return mappings;
}

Status FanOut::Fetch(Gpu& gpu, const Holdings& holdings, const CopyContext& context) {
  if (plan_.from_others().empty()) return Status();
  ASSIGN_OR_RETURN(DeviceMemory memory, ImportAll(gpu, holdings.members));
  ASSIGN_OR_RETURN(Mappings mappings, MapOthers(gpu, memory));
  std::vector<MemoryCopy> reachable, others;
  for (const MemoryCopy& copy : plan_.from_others()) {
    bool mapped = true;
    for (const MappingKey& key : NeededFor(copy, memory)) mapped = mapped && mappings.contains(key);
    (mapped ? reachable : others).push_back(copy);
  }
  LoadTarget target{gpu, image_, holdings.StreamNames(), ranks_[mine_], memory};
  CopySource source;
  source.map = [&](const MemoryPlace& place) -> const StreamMap& {
    return ranks_[place.rank].maps[place.member];
  };
  source.memory = [&](const MemoryPlace& place, size_t extent, int device) -> const GpuMemory& {
    return mappings.at(KeyOf(place, extent, device));
  };
  RETURN_IF_ERROR(CopyOnDevices(target, reachable, source, context));
  RETURN_IF_ERROR(LoadCopies(target, others, context));
  fanned_out_bytes_ += BytesOf(reachable);
  read_bytes_ += BytesOf(others);
  return Status();
}

}  // namespace stasis

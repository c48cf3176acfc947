#include "coordinator/node/image_figures.h"

#include <algorithm>
#include <iterator>

#include "dedup/image_manifest.h"
#include "ghost/manifest.h"

namespace stasis {
namespace {

struct Reference {
  Hash128 hash;
  uint32_t list = 0;
};

bool Less(const Hash128& a, const Hash128& b) { return a.high != b.high ? a.high < b.high : a.low < b.low; }

bool Before(const Reference& a, const Reference& b) {
  if (a.hash.high != b.hash.high) return a.hash.high < b.hash.high;
  return a.hash.low != b.hash.low ? a.hash.low < b.hash.low : a.list < b.list;
}

std::vector<Reference> SortedReferences(const std::vector<std::vector<Hash128>>& lists) {
  std::vector<Reference> references;
  for (size_t i = 0; i < lists.size(); i++) {
    for (const Hash128& hash : lists[i]) {
      if (hash != kZeroChunk) references.push_back({hash, static_cast<uint32_t>(i)});
    }
  }
  std::sort(references.begin(), references.end(), Before);
  return references;
}

// What an image names, each once.
std::vector<Hash128> DistinctHashes(const ImageReader& image) {
  std::vector<Hash128> hashes;
  for (const ChunkRef& chunk : image.Chunks()) {
    if (chunk.hash != kZeroChunk) hashes.push_back(chunk.hash);
  }
  std::sort(hashes.begin(), hashes.end(), Less);
  hashes.erase(std::unique(hashes.begin(), hashes.end()), hashes.end());
  return hashes;
}

void ReadMeta(const Json& meta, ImageFigures* figures) {
  Result<Manifest> manifest = ParseManifest(meta);
  figures->has_task = manifest.ok();
  if (!manifest.ok()) return;
  figures->created = manifest->created;
  figures->device_bytes = manifest->DeviceBytes();
}

// kNotFound when it was removed meanwhile; anything else that is wrong with it is in the figures.
Result<ImageFigures> ReadOne(const std::shared_ptr<Store>& store, const ImageName& name,
                             std::vector<Hash128>* hashes) {
  ImageFigures figures;
  figures.name = name;
  Result<std::unique_ptr<ImageReader>> image = ImageReader::Open(store, name.task, name.id);
  if (!image.ok() && image.status().code() == StatusCode::kNotFound) return image.status();
  if (image.status().code() == StatusCode::kPermissionDenied) {
    ASSIGN_OR_RETURN(std::string path, ManifestPath(store->root(), name.task, name.id));
    Result<StoredManifest> manifest = ReadStoredManifest(store->files(), path);
    if (manifest.ok() && manifest->sealed) {
      figures.sealed_to = KeyIds(manifest->recipients);
      figures.has_task = true;  // most likely
      figures.counts.manifest_bytes = manifest->file_bytes;
      *hashes = std::move(manifest->names);
      return figures;
    }
  }
  if (!image.ok()) {
    figures.damage = std::string(image.status().message());
    return figures;
  }
  figures.counts = (*image)->counts();
  ReadMeta((*image)->meta(), &figures);
  *hashes = DistinctHashes(**image);
  return figures;
}

// Adds an image to those that are counted together with it.
void Merge(const ImageFigures& part, const std::vector<Hash128>& part_hashes, ImageFigures* figures,
           std::vector<Hash128>* hashes) {
  figures->ranks++;
  if (!part.sealed_to.empty()) figures->sealed_to = part.sealed_to;
  if (!part.damage.empty()) figures->damage = part.name.Text() + ": " + part.damage;
  figures->has_task = figures->has_task || part.has_task;
  figures->created = std::max(figures->created, part.created);
  figures->device_bytes += part.device_bytes;
  figures->counts.bytes += part.counts.bytes;
  figures->counts.zero_bytes += part.counts.zero_bytes;
  figures->counts.unique_bytes += part.counts.unique_bytes;
  figures->counts.manifest_bytes += part.counts.manifest_bytes;
  std::vector<Hash128> both;
  std::set_union(hashes->begin(), hashes->end(), part_hashes.begin(), part_hashes.end(),
                 std::back_inserter(both), Less);
  *hashes = std::move(both);
}

}  // namespace

std::vector<uint64_t> ExclusiveBytes(const std::vector<std::vector<Hash128>>& lists,
                                     const std::function<uint64_t(const Hash128&)>& stored) {
  std::vector<uint64_t> bytes(lists.size());
  std::vector<Reference> references = SortedReferences(lists);
  for (size_t i = 0, end = 0; i < references.size(); i = end) {
    while (end < references.size() && references[end].hash == references[i].hash) end++;
    if (references[end - 1].list == references[i].list) {
      bytes[references[i].list] += stored(references[i].hash);
    }
  }
  return bytes;
}

Result<std::vector<ImageFigures>> ReadFigures(const std::shared_ptr<Store>& store,
                                              const std::map<std::string, ImageName>& whole) {
  std::vector<ImageFigures> all;
  std::vector<std::vector<Hash128>> lists;
  std::map<std::string, size_t> places;  // of what is counted together
  ASSIGN_OR_RETURN(std::vector<std::string> tasks, ListStoredTasks(*store));
  for (const std::string& task : tasks) {
    ASSIGN_OR_RETURN(std::vector<std::string> ids, ListAllIds(*store, task));
    for (const std::string& id : ids) {
      std::vector<Hash128> hashes;
      Result<ImageFigures> figures = ReadOne(store, {task, id}, &hashes);
      if (!figures.ok()) continue;
      if (auto found = whole.find(figures->name.Text()); found != whole.end()) {
        auto [place, made] = places.try_emplace(found->second.Text(), all.size());
        if (made) {
          all.push_back(ImageFigures());
          all.back().name = found->second;
          lists.emplace_back();
        }
        Merge(*figures, hashes, &all[place->second], &lists[place->second]);
        continue;
      }
      all.push_back(*std::move(figures));
      lists.push_back(std::move(hashes));
    }
  }
  std::vector<uint64_t> exclusive =
      ExclusiveBytes(lists, [&](const Hash128& hash) { return store->StoredBytes(hash); });
  for (size_t i = 0; i < all.size(); i++) {
    all[i].frees_bytes = exclusive[i] + all[i].counts.manifest_bytes;
    for (const Hash128& hash : lists[i]) all[i].stored_bytes += store->StoredBytes(hash);
  }
  return all;
}

}  // namespace stasis

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "dedup/crypt.h"
#include "dedup/image_manifest.h"
#include "dedup/live_chunks.h"
#include "dedup/pack.h"
#include "dedup/store.h"
#include "dedup/store_core.h"

namespace stasis {
namespace {

constexpr uint64_t kIndexHeaderBytes = 40;

class Verifier {
 public:
  Verifier(StoreCore& core, const std::function<void(uint64_t, uint64_t)>& progress)
      : core_(core), files_(core.files()), progress_(progress) {}

  Result<VerifyReport> Run() {
    // Manifests first: what they name was visible before them, and packs that come later do no harm.
    ASSIGN_OR_RETURN(std::vector<std::string> manifests, ListManifests(files_, core_.root()));
    RETURN_IF_ERROR(core_.Refresh());
    report_.damages = core_.TakeIndexDamages();
    ASSIGN_OR_RETURN(locks_, core_.OpenLocks());
    ASSIGN_OR_RETURN(std::vector<Pack> packs, HoldPacks());
    RETURN_IF_ERROR(ParallelFor(packs.size(), CopyThreads(),
                                [&](size_t index, size_t) { return VerifyPack(packs[index]); }));
    for (const std::string& manifest : manifests) RETURN_IF_ERROR(VerifyManifest(manifest));
    std::sort(report_.damages.begin(), report_.damages.end(), [](const Damage& a, const Damage& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
    return std::move(report_);
  }

 private:
  struct Pack {
    uint64_t id = 0;
    std::unique_ptr<StoreFile> file;
  };

  void Damaged(std::string file, uint64_t offset, std::string_view what) {
    std::lock_guard lock(mutex_);
    report_.damages.push_back({std::move(file), offset, std::string(what)});
  }

  void Progress(uint64_t bytes) {
    std::lock_guard lock(mutex_);
    report_.bytes += bytes;
    if (progress_) progress_(report_.bytes, std::max(total_, report_.bytes));
  }

  // Packs that are there, and stay until this is done. One that a collector takes away meanwhile may have
  // been written again under another id.
  Result<std::vector<Pack>> HoldPacks() {
    std::vector<Pack> packs;
    std::set<uint64_t> looked_at;
    for (bool all = false; !all;) {
      all = true;
      for (uint64_t id : core_.Packs()) {
        if (!looked_at.insert(id).second) continue;
        all = false;
        RETURN_IF_ERROR(locks_->LockShared(id));
        Result<std::unique_ptr<StoreFile>> file = files_.Open(core_.PackPath(id));
        if (!file.ok() && file.status().code() == StatusCode::kNotFound) continue;
        if (!file.ok()) return file.status();
        ASSIGN_OR_RETURN(uint64_t size, (*file)->Size());
        total_ += size;
        packs.push_back({id, std::move(file).value()});
      }
      RETURN_IF_ERROR(core_.Refresh());
    }
    return packs;
  }

  Status VerifyPack(const Pack& pack) {
    PackWalk walk;
    uint64_t chunks = 0;
    std::vector<Hash128> good;
    walk.damaged = [&](uint64_t at, std::string_view what) {
      core_.MarkDamaged(pack.id);
      Damaged(StoreCore::PackLabel(pack.id), at, what);
    };
    walk.progress = [&](uint64_t bytes) { Progress(bytes); };
    // Without the key the bytes are what was written, and no more is known of them.
    Result<std::shared_ptr<const DataKey>> key = core_.KeyOf(pack.id, *pack.file);
    if (key.ok() && *key) {
      walk.open = [&](const RecordHeader& header, std::span<const std::byte> stored,
                      std::span<std::byte> out) { return OpenChunk(**key, header, stored, out); };
    }
    uint64_t sealed = 0;
    walk.chunk = [&](const RecordHeader& header, const PackEntry&, std::span<const std::byte>) {
      ++chunks;
      if (IsSealed(header.coding) && !walk.open) ++sealed;
      good.push_back(header.hash);
    };
    ASSIGN_OR_RETURN(std::vector<PackEntry> entries, WalkPack(*pack.file, pack.id, walk));
    RETURN_IF_ERROR(VerifyIndex(pack.id, entries));
    std::lock_guard lock(mutex_);
    ++report_.packs;
    report_.chunks += chunks;
    report_.sealed_chunks += sealed;
    good_.insert(good.begin(), good.end());
    return Status();
  }

  // It is what was sealed under this name. That this is the name of its content only a manifest can say.
  Status OpenChunk(const DataKey& key, const RecordHeader& header, std::span<const std::byte> stored,
                   std::span<std::byte> out) {
    ASSIGN_OR_RETURN(SealedChunk chunk, UnsealChunk(key, header, stored));
    return DecodeChunk(chunk.header.coding, chunk.stored, out);
  }

  // `entries` is what the pack holds.
  Status VerifyIndex(uint64_t id, const std::vector<PackEntry>& entries) {
    const std::string label = StoreCore::IndexLabel(id);
    uint64_t pack_size = 0;
    Result<std::vector<PackEntry>> index = core_.ReadIndex(id, &pack_size);
    if (!index.ok()) {
      StatusCode code = index.status().code();
      if (code != StatusCode::kNotFound && code != StatusCode::kCorrupt) return index.status();
      Damaged(label, 0, code == StatusCode::kNotFound ? "the index is missing" : index.status().message());
      return Status();
    }
    auto [in_index, in_pack] = std::mismatch(index->begin(), index->end(), entries.begin(), entries.end());
    if (in_index != index->end() || in_pack != entries.end()) {
      uint64_t at = kIndexHeaderBytes + static_cast<uint64_t>(in_index - index->begin()) * sizeof(PackEntry);
      Damaged(label, at, "the index says something else than the pack");
    }
    return Status();
  }

  Status VerifyManifest(const std::string& name) {
    const std::string path = core_.root() + "/" + name;
    Result<StoredManifest> manifest = ReadStoredManifest(files_, path);
    if (manifest.ok() && manifest->sealed) return VerifySealed(name, *manifest);
    if (!manifest.ok()) {
      StatusCode code = manifest.status().code();
      if (code == StatusCode::kNotFound) return Status();  // removed meanwhile
      if (code != StatusCode::kCorrupt && code != StatusCode::kUnsupported) return manifest.status();
      report_.damages.push_back(DamageOf(name, manifest.status()));
      return Status();
    }
    ++report_.images;
    Progress(manifest->file_bytes);
    Result<std::vector<ChunkRef>> chunks = DistinctChunks(manifest->plain);
    if (!chunks.ok()) {
      report_.damages.push_back(DamageOf(name, chunks.status()));
      return Status();
    }
    std::vector<Hash128> names;
    for (const ChunkRef& chunk : *chunks) names.push_back(chunk.hash);
    CheckThere(name, names);
    return Status();
  }

  // Opened too, if it can be.
  Status VerifySealed(const std::string& name, const StoredManifest& manifest) {
    ++report_.images;
    Progress(manifest.file_bytes);
    Status opened = ReadImageManifest(files_, core_.root() + "/" + name, core_.keyring()).status();
    if (opened.code() == StatusCode::kNotFound) return Status();  // removed meanwhile
    if (opened.code() == StatusCode::kPermissionDenied) {
      ++report_.sealed_images;
    } else if (opened.code() == StatusCode::kCorrupt || opened.code() == StatusCode::kUnsupported) {
      report_.damages.push_back(DamageOf(name, opened));
      return Status();
    } else if (!opened.ok()) {
      return opened;
    }
    CheckThere(name, manifest.names);
    return Status();
  }

  void CheckThere(const std::string& name, std::span<const Hash128> chunks) {
    for (const Hash128& chunk : chunks) {
      if (good_.contains(chunk)) continue;
      if (!files_.Exists(core_.root() + "/" + name)) return;  // removed meanwhile, and its chunks with it
      report_.damages.push_back({name, 0, "needs chunk " + HashText(chunk) + ", which no pack holds whole"});
    }
  }

  StoreCore& core_;
  FileSystem& files_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  std::unique_ptr<LockFile> locks_;
  std::mutex mutex_;  // guards what follows while packs are verified
  uint64_t total_ = 0;
  VerifyReport report_;
  std::unordered_set<Hash128, HashLowBits> good_;
};

}  // namespace

Result<VerifyReport> Store::Verify(const std::function<void(uint64_t, uint64_t)>& progress) {
  return Verifier(*state_->core, progress).Run();
}

}  // namespace stasis

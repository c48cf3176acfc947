#include "dedup/gc.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dedup/chunk_copy.h"
#include "dedup/crypt.h"
#include "dedup/image_slot.h"
#include "dedup/live_chunks.h"
#include "dedup/pack_pipeline.h"

namespace stasis {
namespace {

// A pack of which less than one in this many bytes is needed is written again.
constexpr uint64_t kRewriteBelow = 2;

uint64_t RecordBytes(const PackEntry& entry) { return entry.end() - entry.offset; }

class Collector {
 public:
  explicit Collector(std::shared_ptr<StoreCore> core)
      : core_(std::move(core)), files_(core_->files()), live_(files_, core_->root()) {}

  Result<GcReport> Run() {
    ASSIGN_OR_RETURN(locks_, core_->OpenLocks());
    ASSIGN_OR_RETURN(bool alone, locks_->TryLock(kCollectorLock, true));
    if (!alone) return Status(StatusCode::kFailedPrecondition, "another collector is at work in this store");
    RETURN_IF_ERROR(core_->Refresh());
    RETURN_IF_ERROR(live_.Update());
    RETURN_IF_ERROR(SyncRemovals());
    ASSIGN_OR_RETURN(report_.bytes_before, BytesOfPacks());
    for (const Candidate& candidate : Candidates()) RETURN_IF_ERROR(Consider(candidate.pack));
    RETURN_IF_ERROR(Flush());
    RETURN_IF_ERROR(RemoveLeftovers());
    RETURN_IF_ERROR(files_.SyncFolder(core_->packs_folder()));
    ASSIGN_OR_RETURN(report_.bytes_after, BytesOfPacks());
    return report_;
  }

 private:
  struct Candidate {
    uint64_t pack = 0;
    uint64_t needed = 0;  // bytes
    uint64_t bytes = 0;
  };
  // What has to be done before a pack may go.
  struct Plan {
    std::vector<PackEntry> copy;
    uint64_t copy_bytes = 0;
    uint64_t bytes = 0;
    bool waits = false;  // a chunk is in the pack that is being written
  };

  // A manifest that is gone must not come back when the power fails: what it named is about to be removed.
  Status SyncRemovals() {
    ASSIGN_OR_RETURN(std::vector<std::string> tasks, ListTaskFolders(files_, core_->root()));
    for (const std::string& task : tasks) {
      Status status = files_.SyncFolder(core_->images_folder() + "/" + task);
      if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
    }
    return files_.SyncFolder(core_->images_folder());
  }

  Result<uint64_t> BytesOfPacks() {
    uint64_t bytes = 0;
    for (uint64_t id : core_->Packs()) {
      Result<std::unique_ptr<StoreFile>> file = files_.Open(core_->PackPath(id));
      if (!file.ok() && file.status().code() == StatusCode::kNotFound) continue;
      if (!file.ok()) return file.status();
      ASSIGN_OR_RETURN(uint64_t size, (*file)->Size());
      bytes += size;
    }
    return bytes;
  }

  uint64_t LiveBytes(uint64_t pack) {
    uint64_t bytes = 0;
    for (const PackEntry& entry : core_->Entries(pack)) {
      if (live_.Contains(entry.hash)) bytes += RecordBytes(entry);
    }
    return bytes;
  }

  // Packs that are worth a look, those that cost least first. Of several copies of a chunk, the one in the
  // pack of which most is needed counts.
  std::vector<Candidate> Candidates() {
    std::map<uint64_t, uint64_t> live;
    for (uint64_t pack : core_->Packs()) live[pack] = core_->IsDamaged(pack) ? 0 : LiveBytes(pack);
    auto better = [&](uint64_t a, uint64_t b) { return std::pair(live[a], a) > std::pair(live[b], b); };
    const bool complete = live_.All([&](const Hash128& hash) { return !core_->Find(hash).empty(); });
    std::vector<Candidate> candidates;
    for (const auto& entry : live) {
      const uint64_t pack = entry.first;
      if (core_->IsUnread(pack) && !complete) continue;  // it may hold what is missing
      Candidate candidate{pack, 0, 0};
      for (const PackEntry& record : core_->Entries(pack)) {
        candidate.bytes += RecordBytes(record);
        if (!live_.Contains(record.hash)) continue;
        std::vector<ChunkPlace> places = core_->Find(record.hash);
        bool best = std::none_of(places.begin(), places.end(),
                                 [&](const ChunkPlace& place) { return better(place.pack, pack); });
        if (best) candidate.needed += RecordBytes(record);
      }
      const bool little = candidate.needed * kRewriteBelow < candidate.bytes || candidate.bytes == 0;
      if (little || core_->IsDamaged(pack)) candidates.push_back(candidate);
    }
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      return std::pair(a.needed, a.pack) < std::pair(b.needed, b.pack);
    });
    return candidates;
  }

  Status Consider(uint64_t pack) {
    ASSIGN_OR_RETURN(bool locked, locks_->TryLock(pack, true));
    if (!locked) {
      ++report_.packs_in_use;
      return Status();
    }
    // From here on nobody begins to rely on the pack; who did before has committed by now, or has given up.
    RETURN_IF_ERROR(live_.Update());
    ASSIGN_OR_RETURN(Plan plan, MakePlan(pack));
    const bool worth_it = plan.copy_bytes * kRewriteBelow < plan.bytes || plan.bytes == 0;
    if (!worth_it && !core_->IsDamaged(pack)) return locks_->Unlock(pack);
    if (plan.copy.empty() && !plan.waits) {
      ++report_.packs_removed;
      return RemovePack(pack);
    }
    ASSIGN_OR_RETURN(bool copied, CopyChunks(pack, plan));
    if (!copied) return locks_->Unlock(pack);
    rewritten_.push_back(pack);
    if (pipeline_ && pipeline_->added().stored_bytes >= core_->options().pack_bytes) return Flush();
    return Status();
  }

  Result<Plan> MakePlan(uint64_t pack) {
    Plan plan;
    std::unordered_set<Hash128, HashLowBits> seen;
    for (const PackEntry& entry : core_->Entries(pack)) {
      plan.bytes += RecordBytes(entry);
      if (!live_.Contains(entry.hash) || !seen.insert(entry.hash).second) continue;
      if (copied_.contains(entry.hash)) {
        plan.waits = true;
        continue;
      }
      ASSIGN_OR_RETURN(bool elsewhere, GoodCopyElsewhere(pack, entry.hash));
      if (elsewhere) continue;
      plan.copy.push_back(entry);
      plan.copy_bytes += RecordBytes(entry);
    }
    return plan;
  }

  // In a pack that stays until this collector is done, and just read.
  Result<bool> GoodCopyElsewhere(uint64_t pack, const Hash128& hash) {
    for (const ChunkPlace& place : core_->Find(hash)) {
      if (place.pack == pack || IsLeaving(place.pack)) continue;
      Status status = Read(place).status();
      if (status.ok()) return true;
      if (status.code() != StatusCode::kCorrupt) return status;
      core_->MarkDamaged(place.pack);
    }
    return false;
  }

  bool IsLeaving(uint64_t pack) const {
    return std::find(rewritten_.begin(), rewritten_.end(), pack) != rewritten_.end();
  }

  // False, with the damage in the report, when a chunk cannot be read: then the pack stays as it is.
  Result<bool> CopyChunks(uint64_t pack, const Plan& plan) {
    for (const PackEntry& entry : plan.copy) {
      Result<std::vector<std::byte>> record = Read({pack, entry});
      if (!record.ok() && record.status().code() == StatusCode::kCorrupt) {
        core_->MarkDamaged(pack);
        report_.damages.push_back(DamageOf(StoreCore::PackLabel(pack), record.status()));
        return false;
      }
      if (!record.ok()) return record.status();
      std::span<const std::byte> bytes(*record);
      ASSIGN_OR_RETURN(RecordHeader header, DecodeRecordHeader(bytes.first<kRecordHeaderBytes>()));
      if (!pipeline_) pipeline_ = std::make_unique<PackPipeline>(core_, *locks_);
      RETURN_IF_ERROR(pipeline_->SetKey(IsSealed(header.coding) ? key_ : std::vector<std::byte>()));
      RETURN_IF_ERROR(pipeline_->Append(header, bytes.subspan(kRecordHeaderBytes)));
      copied_.insert(entry.hash);
    }
    return true;
  }

  // What is encrypted is copied as it is, and its key with it: no identity is needed.
  Status OpenPack(uint64_t pack) {
    ASSIGN_OR_RETURN(file_, files_.Open(core_->PackPath(pack)));
    file_pack_ = pack;
    Result<std::vector<std::byte>> key = ReadPackKey(*file_, pack);
    key_is_whole_ = key.ok() && (key->empty() || RecipientsOf(*key).ok());
    key_ = key.ok() ? *std::move(key) : std::vector<std::byte>();
    return Status();
  }

  Result<std::vector<std::byte>> Read(const ChunkPlace& place) {
    if (!file_ || file_pack_ != place.pack) RETURN_IF_ERROR(OpenPack(place.pack));
    ASSIGN_OR_RETURN(std::vector<std::byte> record, ReadStored(*file_, place));
    ASSIGN_OR_RETURN(RecordHeader header, DecodeRecordHeader(std::span(record).first<kRecordHeaderBytes>()));
    if (!IsSealed(header.coding) || key_is_whole_) return record;
    return CorruptAt(StoreCore::PackLabel(place.pack), kPackHeaderBytes,
                     "the key of what is encrypted is damaged");
  }

  // The copies are safe and visible before what they were copied from goes.
  Status Flush() {
    if (pipeline_) RETURN_IF_ERROR(pipeline_->Finish());
    pipeline_.reset();
    copied_.clear();
    for (uint64_t pack : std::exchange(rewritten_, {})) {
      ++report_.packs_rewritten;
      RETURN_IF_ERROR(RemovePack(pack));
    }
    return Status();
  }

  Status RemovePack(uint64_t pack) {
    if (file_pack_ == pack) file_.reset();
    core_->ForgetPack(pack);
    RETURN_IF_ERROR(files_.Remove(core_->PackPath(pack)));
    RETURN_IF_ERROR(files_.Remove(core_->IndexPath(pack)));
    RETURN_IF_ERROR(files_.Remove(core_->MarkPath(pack)));
    return locks_->Unlock(pack);
  }

  Status RemoveLeftovers() {
    ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(core_->packs_folder()));
    for (const std::string& name : names) {
      for (const char* suffix : {".tmp", ".idx", ".bad"}) {
        if (std::optional<uint64_t> id = PackIdOfName(name, suffix))
          RETURN_IF_ERROR(RemoveLeftover(*id, name));
      }
    }
    ASSIGN_OR_RETURN(uint64_t manifests, RemoveAbandonedManifests(files_, core_->root()));
    report_.leftovers_removed += manifests;
    return Status();
  }

  // A file without a pack, unless somebody holds its id.
  Status RemoveLeftover(uint64_t id, const std::string& name) {
    if (files_.Exists(core_->PackPath(id))) return Status();
    ASSIGN_OR_RETURN(bool locked, locks_->TryLock(id, true));
    if (!locked) return Status();
    const std::string path = core_->packs_folder() + "/" + name;
    if (!files_.Exists(core_->PackPath(id)) && files_.Exists(path)) {
      RETURN_IF_ERROR(files_.Remove(path));
      ++report_.leftovers_removed;
    }
    return locks_->Unlock(id);
  }

  const std::shared_ptr<StoreCore> core_;
  FileSystem& files_;
  std::unique_ptr<LockFile> locks_;  // outlives pipeline_
  LiveChunks live_;
  GcReport report_;

  std::unique_ptr<PackPipeline> pipeline_;
  std::unordered_set<Hash128, HashLowBits> copied_;  // to the pack that is being written
  std::vector<uint64_t> rewritten_;                  // to be removed when it is visible
  std::unique_ptr<StoreFile> file_;                  // of file_pack_
  uint64_t file_pack_ = 0;
  std::vector<std::byte> key_;
  bool key_is_whole_ = false;
};

}  // namespace

Result<GcReport> CollectGarbage(std::shared_ptr<StoreCore> core) { return Collector(std::move(core)).Run(); }

Result<GcReport> Store::CollectGarbage() { return stasis::CollectGarbage(state_->core); }

}  // namespace stasis

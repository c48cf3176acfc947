#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dedup/codec.h"
#include "dedup/crypt.h"
#include "dedup/image_manifest.h"
#include "dedup/pack.h"
#include "dedup/pack_pipeline.h"
#include "dedup/store.h"
#include "dedup/store_core.h"

namespace stasis {
namespace {

struct LowBits {
  size_t operator()(const Hash128& hash) const { return hash.low; }
};

}  // namespace

struct StoreWriter::State {
  State(std::shared_ptr<Store> from, std::shared_ptr<StoreCore> shared, std::unique_ptr<LockFile> own,
        std::shared_ptr<const CryptSession> session)
      : store(std::move(from)),
        core(std::move(shared)),
        locks(std::move(own)),
        crypt(std::move(session)),
        pipeline(core, *locks, crypt ? crypt->block : std::vector<std::byte>()) {}

  Hash128 NameOf(const Hash128& hash) const { return crypt ? crypt->names->Of(hash) : hash; }
  Status Append(const Hash128& hash, size_t raw_size, const EncodedChunk& chunk) {
    if (!crypt) return pipeline.Append(MakeRecordHeader(hash, raw_size, chunk), chunk.bytes);
    SealedChunk sealed = SealChunk(*crypt, hash, raw_size, chunk);
    return pipeline.Append(sealed.header, sealed.stored);
  }

  bool Claimed(const Hash128& hash) {
    std::lock_guard lock(mutex);
    return claimed.contains(hash);
  }
  // True for who is to bring the chunk: another thread may have been first.
  Result<bool> Claim(const Hash128& hash) {
    std::lock_guard lock(mutex);
    if (finished) return Status(StatusCode::kFailedPrecondition, "the writer has finished");
    return claimed.insert(hash).second;
  }
  // The pack is there, and stays.
  Result<bool> Hold(uint64_t pack) {
    std::lock_guard lock(mutex);
    if (held.contains(pack)) return true;
    if (core->IsDamaged(pack)) return false;  // a fresh copy is worth its room
    ASSIGN_OR_RETURN(bool locked, locks->TryLock(pack, false));
    if (!locked) return false;  // about to be collected
    if (!core->files().Exists(core->PackPath(pack))) {
      core->ForgetPack(pack);
      RETURN_IF_ERROR(locks->Unlock(pack));
      return false;
    }
    held.insert(pack);
    return true;
  }

  const std::shared_ptr<Store> store;  // lives as long
  const std::shared_ptr<StoreCore> core;
  const std::unique_ptr<LockFile> locks;
  const std::shared_ptr<const CryptSession> crypt;  // null: nothing is encrypted
  PackPipeline pipeline;
  std::mutex mutex;
  std::unordered_set<Hash128, LowBits> claimed;  // put, or being put; guarded by mutex
  std::set<uint64_t> held;                       // packs of others, locked; guarded by mutex
  bool finished = false;                         // guarded by mutex
};

StoreWriter::StoreWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
StoreWriter::~StoreWriter() = default;

Result<std::unique_ptr<StoreWriter>> StoreWriter::Begin(std::shared_ptr<Store> store) {
  return Begin(std::move(store), Options());
}

Result<std::unique_ptr<StoreWriter>> StoreWriter::Begin(std::shared_ptr<Store> store, Options options) {
  std::shared_ptr<StoreCore> core = store->state_->core;
  ASSIGN_OR_RETURN(std::shared_ptr<const CryptSession> crypt, core->keyring().Begin(options.unshared));
  if (!crypt && !options.recipients.empty()) {
    ASSIGN_OR_RETURN(crypt, core->keyring().BeginTo(std::move(options.recipients)));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LockFile> locks, core->OpenLocks());
  auto state = std::make_unique<State>(std::move(store), std::move(core), std::move(locks), std::move(crypt));
  return std::unique_ptr<StoreWriter>(new StoreWriter(std::move(state)));
}

Result<bool> StoreWriter::Has(const Hash128& hash) {
  RETURN_IF_ERROR(state_->pipeline.status());
  if (state_->Claimed(hash)) return true;
  for (const ChunkPlace& place : state_->core->Find(state_->NameOf(hash))) {
    ASSIGN_OR_RETURN(bool held, state_->Hold(place.pack));
    if (held) return true;
  }
  return false;
}

Status StoreWriter::Put(const Hash128& hash, std::span<const std::byte> raw) {
  if (raw.empty() || raw.size() > kMaxChunkBytes) {
    return Status(StatusCode::kInvalidArgument, "a chunk of a size that chunks cannot have");
  }
  ASSIGN_OR_RETURN(bool there, Has(hash));
  if (there) return Status();
  ASSIGN_OR_RETURN(bool mine, state_->Claim(hash));
  if (!mine) return Status();
  EncodedChunk chunk = EncodeChunk(raw, state_->core->options().zstd_level);
  return state_->Append(hash, raw.size(), chunk);
}

Status StoreWriter::PutRecord(const RecordHeader& header, std::span<const std::byte> stored) {
  ASSIGN_OR_RETURN(bool there, Has(header.hash));
  if (there) return Status();
  std::vector<std::byte> raw(header.raw_size);
  RETURN_IF_ERROR(DecodeRecord(header, stored, raw));
  ASSIGN_OR_RETURN(bool mine, state_->Claim(header.hash));
  if (!mine) return Status();
  return state_->Append(header.hash, header.raw_size, {header.coding, stored});
}

Result<std::vector<std::byte>> StoreWriter::SerializeManifest(const ImageManifest& manifest) const {
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, SerializeImageManifest(manifest));
  if (!state_->crypt) return bytes;
  return SealImageManifest(manifest, bytes, *state_->crypt);
}

Status StoreWriter::Finish() {
  {
    std::lock_guard lock(state_->mutex);
    if (std::exchange(state_->finished, true)) {
      return Status(StatusCode::kFailedPrecondition, "the writer has finished");
    }
  }
  return state_->pipeline.Finish();
}

bool StoreWriter::encrypted() const { return state_->crypt != nullptr; }

std::string StoreWriter::HandOver() const { return encrypted() ? stasis::HandOver(*state_->crypt) : ""; }

StoreCounts StoreWriter::added() const { return state_->pipeline.added(); }

}  // namespace stasis

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "dedup/chunk_copy.h"
#include "dedup/pack.h"
#include "dedup/store.h"
#include "dedup/store_core.h"

namespace stasis {
namespace {

constexpr uint64_t kMaxRun = 4 << 20;   // bytes of one read, unless one chunk is longer
constexpr uint64_t kMaxGap = 64 << 10;  // of what is not wanted between two chunks of one read
constexpr size_t kMaxOpenPacks = 64;

struct Wanted {
  ChunkPlace place;
  size_t piece = 0;
};

bool ByPlace(const Wanted& a, const Wanted& b) {
  return std::pair(a.place.pack, a.place.entry.offset) < std::pair(b.place.pack, b.place.entry.offset);
}

}  // namespace

struct StoreReader::State {
  using Buffer = std::vector<std::byte>;

  // Locks the packs that hold `hashes`; false when one is gone or a hash is in none.
  Result<bool> HoldAll(std::span<const Hash128> hashes, Hash128* missing);
  Result<bool> Hold(uint64_t pack);
  Result<std::shared_ptr<StoreFile>> OpenPack(uint64_t id) const;
  // Places in packs, and of these those that this session holds.
  std::vector<ChunkPlace> Find(const Hash128& hash) const;
  std::vector<ChunkPlace> Places(const Hash128& hash) const;
  Status ReadRun(std::span<const Wanted> run, std::span<const Piece> pieces) const;
  Status ReadOne(const ChunkPlace& place, const Piece& piece) const;
  Result<Buffer> ReadStored(const ChunkPlace& place, const Hash128& hash) const;
  // Of the places that are left when `bad` turned out to be `damage`.
  Status ReadElsewhere(const ChunkPlace& bad, const Piece& piece, Status damage) const;
  Buffer TakeBuffer() const;
  void GiveBuffer(Buffer buffer) const;

  std::shared_ptr<Store> store;  // lives as long
  std::shared_ptr<StoreCore> core;
  std::unique_ptr<LockFile> locks;
  std::shared_ptr<const ChunkNames> names;  // null: all that are known
  std::set<uint64_t> held;                  // constant once begun
  mutable std::mutex mutex;
  mutable std::map<uint64_t, std::shared_ptr<StoreFile>> open;  // guarded by mutex
  mutable std::vector<Buffer> buffers;                          // guarded by mutex
};

Result<bool> StoreReader::State::Hold(uint64_t pack) {
  if (held.contains(pack)) return true;
  // A collector that has it will be done with it soon.
  RETURN_IF_ERROR(locks->LockShared(pack));
  if (core->files().Exists(core->PackPath(pack))) {
    held.insert(pack);
    return true;
  }
  core->ForgetPack(pack);
  RETURN_IF_ERROR(locks->Unlock(pack));
  return false;
}

Result<bool> StoreReader::State::HoldAll(std::span<const Hash128> hashes, Hash128* missing) {
  for (const Hash128& hash : hashes) {
    bool found = false;
    for (const ChunkPlace& place : Find(hash)) {
      ASSIGN_OR_RETURN(bool there, Hold(place.pack));
      found |= there;
    }
    if (!found) {
      *missing = hash;
      return false;
    }
  }
  return true;
}

Result<std::shared_ptr<StoreFile>> StoreReader::State::OpenPack(uint64_t id) const {
  std::lock_guard lock(mutex);
  auto found = open.find(id);
  if (found != open.end()) return found->second;
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, core->files().Open(core->PackPath(id)));
  if (open.size() >= kMaxOpenPacks) open.erase(open.begin());  // who reads it keeps it
  return open[id] = std::move(file);
}

std::vector<ChunkPlace> StoreReader::State::Find(const Hash128& hash) const {
  return names ? core->Find(names->Of(hash)) : core->FindAny(hash);
}

std::vector<ChunkPlace> StoreReader::State::Places(const Hash128& hash) const {
  std::vector<ChunkPlace> places = Find(hash);
  std::erase_if(places, [this](const ChunkPlace& place) { return !held.contains(place.pack); });
  return places;
}

StoreReader::State::Buffer StoreReader::State::TakeBuffer() const {
  std::lock_guard lock(mutex);
  if (buffers.empty()) return {};
  Buffer buffer = std::move(buffers.back());
  buffers.pop_back();
  return buffer;
}

void StoreReader::State::GiveBuffer(Buffer buffer) const {
  std::lock_guard lock(mutex);
  buffers.push_back(std::move(buffer));
}

Status StoreReader::State::ReadOne(const ChunkPlace& place, const Piece& piece) const {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreFile> file, OpenPack(place.pack));
  const KeySource key = [&] { return core->KeyOf(place.pack, *file); };
  return ReadChunk(*file, place, piece.hash, key, piece.out);
}

Result<StoreReader::State::Buffer> StoreReader::State::ReadStored(const ChunkPlace& place,
                                                                  const Hash128& hash) const {
  ASSIGN_OR_RETURN(std::shared_ptr<StoreFile> file, OpenPack(place.pack));
  const KeySource key = [&] { return core->KeyOf(place.pack, *file); };
  Buffer raw(place.entry.raw_size);
  return stasis::ReadRecord(*file, place, hash, key, raw);
}

Status StoreReader::State::ReadElsewhere(const ChunkPlace& bad, const Piece& piece, Status damage) const {
  if (damage.code() == StatusCode::kCorrupt) core->MarkDamaged(bad.pack);
  for (const ChunkPlace& place : Places(piece.hash)) {
    if (place.pack == bad.pack && place.entry == bad.entry) continue;
    if (ReadOne(place, piece).ok()) return Status();
  }
  return damage;
}

// Chunks of one pack, by offset.
Status StoreReader::State::ReadRun(std::span<const Wanted> run, std::span<const Piece> pieces) const {
  const uint64_t start = run.front().place.entry.offset;
  uint64_t end = 0;
  for (const Wanted& wanted : run) end = std::max(end, wanted.place.entry.end());
  Result<std::shared_ptr<StoreFile>> file = OpenPack(run.front().place.pack);
  Buffer buffer = TakeBuffer();
  if (buffer.size() < end - start) buffer.resize(end - start);
  Status read = file.ok() ? (*file)->ReadAt(std::span(buffer).first(end - start), start) : file.status();
  const KeySource key = [&] { return core->KeyOf(run.front().place.pack, **file); };
  Status result;
  for (const Wanted& wanted : run) {
    const Piece& piece = pieces[wanted.piece];
    const PackEntry& entry = wanted.place.entry;
    const std::span<const std::byte> bytes(buffer);
    Status status = read.ok() ? CheckRecord(wanted.place, piece.hash,
                                            bytes.subspan(entry.offset - start, entry.end() - entry.offset),
                                            key, piece.out)
                              : ReadOne(wanted.place, piece);
    if (!status.ok()) status = ReadElsewhere(wanted.place, piece, std::move(status));
    if (result.ok()) result = std::move(status);
  }
  GiveBuffer(std::move(buffer));
  return result;
}

StoreReader::StoreReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
StoreReader::~StoreReader() = default;

Result<std::unique_ptr<StoreReader>> StoreReader::Begin(std::shared_ptr<Store> store,
                                                        std::span<const Hash128> hashes,
                                                        std::shared_ptr<const ChunkNames> names) {
  auto state = std::make_unique<State>();
  state->names = std::move(names);
  state->core = store->state_->core;
  state->store = std::move(store);
  ASSIGN_OR_RETURN(state->locks, state->core->OpenLocks());
  for (;;) {
    Hash128 missing;
    ASSIGN_OR_RETURN(bool all, state->HoldAll(hashes, &missing));
    if (all) return std::unique_ptr<StoreReader>(new StoreReader(std::move(state)));
    // Packs may have been written, or rewritten, since the index was loaded. When looking brings nothing new,
    // the chunk is in none.
    std::vector<uint64_t> before = state->core->Packs();
    RETURN_IF_ERROR(state->core->Refresh());
    if (state->core->Packs() == before && state->Find(missing).empty()) {
      return Status(StatusCode::kCorrupt, "chunk " + HashText(missing) + " is in no pack");
    }
  }
}

Status StoreReader::Read(std::span<const Piece> pieces) const {
  std::vector<Wanted> wanted;
  wanted.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::vector<ChunkPlace> places = state_->Places(pieces[i].hash);
    if (places.empty()) {
      return Status(StatusCode::kCorrupt,
                    "chunk " + HashText(pieces[i].hash) + " is not held by this reader");
    }
    wanted.push_back({places.front(), i});
  }
  std::sort(wanted.begin(), wanted.end(), ByPlace);
  for (size_t first = 0; first < wanted.size();) {
    const ChunkPlace& begin = wanted[first].place;
    uint64_t end = begin.entry.end();
    size_t last = first + 1;
    for (; last < wanted.size(); ++last) {
      const ChunkPlace& next = wanted[last].place;
      if (next.pack != begin.pack || next.entry.offset > end + kMaxGap) break;
      if (next.entry.end() > begin.entry.offset + kMaxRun) break;
      end = std::max(end, next.entry.end());
    }
    RETURN_IF_ERROR(state_->ReadRun(std::span(wanted).subspan(first, last - first), pieces));
    first = last;
  }
  return Status();
}

Result<std::vector<std::byte>> StoreReader::ReadRecord(const Hash128& hash) const {
  Status damage(StatusCode::kCorrupt, "chunk " + HashText(hash) + " is not held by this reader");
  for (const ChunkPlace& place : state_->Places(hash)) {
    Result<std::vector<std::byte>> record = state_->ReadStored(place, hash);
    if (record.ok()) return record;
    damage = std::move(record).status();
    if (damage.code() == StatusCode::kCorrupt) state_->core->MarkDamaged(place.pack);
  }
  return damage;
}

}  // namespace stasis

#include "dedup/store_core.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/files.h"
#include "dedup/json.h"

namespace stasis {
namespace {

constexpr uint64_t kMinChunkBytes = 4 << 10;
constexpr uint64_t kFormatVersion = 1;
constexpr char kFormatName[] = "stasis image store";
constexpr uint64_t kMaxFormatBytes = 4096;

bool IsChunkSize(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinChunkBytes && bytes <= kMaxChunkBytes;
}

Result<std::vector<std::byte>> ReadWhole(const StoreFile& file, uint64_t limit) {
  ASSIGN_OR_RETURN(uint64_t size, file.Size());
  if (size > limit) return Status(StatusCode::kCorrupt, "longer than it can be");
  std::vector<std::byte> bytes(size);
  RETURN_IF_ERROR(file.ReadAt(bytes, 0));
  return bytes;
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One line of JSON and a line with its sum, in every version.
std::string WithSum(const std::string& line) {
  return line + "\n" + HashText(HashBytes(std::as_bytes(std::span(line)))) + "\n";
}

std::string FormatText(uint64_t chunk_bytes) {
  return WithSum(
      JsonText(Json{{"name", kFormatName}, {"version", kFormatVersion}, {"chunk_bytes", chunk_bytes}}));
}

Result<uint64_t> ParseFormat(std::string_view text) {
  const std::string line(text.substr(0, text.find('\n')));
  if (text != WithSum(line)) return CorruptAt("format", 0, "its sum does not fit");
  ASSIGN_OR_RETURN(Json json, ParseJsonObject(line));
  JsonFields fields(json, "the store's format");
  std::string name = fields.String("name");
  uint64_t version = fields.Number("version");
  RETURN_IF_ERROR(fields.Finish());
  if (name != kFormatName) return Status(StatusCode::kCorrupt, "the format of something else");
  if (version != kFormatVersion) {
    return Errorf(StatusCode::kUnsupported, "a store of version %llu; this program knows version %llu",
                  static_cast<unsigned long long>(version), static_cast<unsigned long long>(kFormatVersion));
  }
  uint64_t chunk_bytes = fields.Number("chunk_bytes");
  RETURN_IF_ERROR(fields.Finish());
  if (!IsChunkSize(chunk_bytes)) return Status(StatusCode::kCorrupt, "a chunk size that cannot be");
  return chunk_bytes;
}

}  // namespace

StoreCore::StoreCore(std::string root, StoreOptions options)
    : root_(std::move(root)),
      options_(options),
      files_(options.files != nullptr ? *options.files : RealFileSystem()),
      keyring_(options.keys, options.identity) {
  options_.files = &files_;
}

Status StoreCore::Open() {
  if (!IsChunkSize(options_.chunk_bytes) || options_.pack_bytes == 0) {
    return Status(StatusCode::kInvalidArgument, "a size that chunks or packs cannot have");
  }
  RETURN_IF_ERROR(files_.MakeFolders(root_));
  RETURN_IF_ERROR(OpenFormat().WithContext(root_));
  // The format is on stable storage before anything else is, whoever wrote it and did not live to sync it.
  if (!files_.Exists(packs_folder())) RETURN_IF_ERROR(files_.SyncFolder(root_));
  RETURN_IF_ERROR(files_.MakeFolders(packs_folder()));
  RETURN_IF_ERROR(files_.MakeFolders(images_folder()));
  return Refresh();
}

Status StoreCore::OpenFormat() {
  const std::string path = root_ + "/format";
  if (!files_.Exists(path)) RETURN_IF_ERROR(WriteFormat());
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files_.Open(path));
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadWhole(*file, kMaxFormatBytes));
  ASSIGN_OR_RETURN(options_.chunk_bytes, ParseFormat(Text(bytes)));
  return Status();
}

Status StoreCore::WriteFormat() {
  ASSIGN_OR_RETURN(std::unique_ptr<LockFile> locks, OpenLocks());
  ASSIGN_OR_RETURN(bool alone, locks->TryLock(kCreatorLock, true));
  if (!alone) RETURN_IF_ERROR(locks->LockShared(kCreatorLock));
  const std::string path = root_ + "/format", fresh = path + ".new";
  if (files_.Exists(path)) return Status();
  if (!alone) return Status(StatusCode::kUnavailable, "another process failed to create the store");
  if (files_.Exists(packs_folder())) {
    return Status(StatusCode::kCorrupt, "the file 'format' is missing, and there are packs");
  }
  RETURN_IF_ERROR(files_.Remove(fresh));
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files_.Create(fresh));
  std::string text = FormatText(options_.chunk_bytes);
  Status status = file->WriteAt(std::as_bytes(std::span(text)), 0);
  if (status.ok()) status = file->Sync();
  if (status.ok()) status = files_.Rename(fresh, path);
  if (!status.ok()) {
    (void)files_.Remove(fresh).ok();  // the first error is what counts
  }
  return status;
}

Status StoreCore::Refresh() {
  std::lock_guard refreshing(refresh_mutex_);
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(packs_folder()));
  std::vector<uint64_t> there;
  for (const std::string& name : names) {
    if (std::optional<uint64_t> id = PackIdOfName(name, ".pack")) there.push_back(*id);
    if (std::optional<uint64_t> id = PackIdOfName(name, ".bad")) {
      std::unique_lock lock(mutex_);
      damaged_packs_.insert(*id);
    }
  }
  std::sort(there.begin(), there.end());
  for (uint64_t id : Packs()) {
    // One that became visible after the list was made is none that vanished.
    if (!std::binary_search(there.begin(), there.end(), id) && !files_.Exists(PackPath(id))) ForgetPack(id);
  }
  for (uint64_t id : there) {
    bool known = [&] {
      std::shared_lock lock(mutex_);
      return index_.Has(id);
    }();
    if (!known) RETURN_IF_ERROR(LoadPack(id).WithContext(PackLabel(id)));
  }
  return Status();
}

Status StoreCore::LoadPack(uint64_t id) {
  Result<std::unique_ptr<StoreFile>> pack = files_.Open(PackPath(id));
  if (!pack.ok() && pack.status().code() == StatusCode::kNotFound) return Status();  // collected meanwhile
  if (!pack.ok()) return pack.status();
  uint64_t size = 0;
  Result<std::vector<PackEntry>> entries = ReadIndex(id, &size);
  if (entries.ok()) {
    Status ends = CheckPackEnds(**pack, PackLabel(id), id, entries->size());
    if (ends.code() == StatusCode::kCorrupt) {
      Note(std::string(ends.message()));
      MarkDamaged(id);
    }
  }
  if (!entries.ok()) {
    StatusCode code = entries.status().code();
    if (code != StatusCode::kNotFound && code != StatusCode::kCorrupt) return entries.status();
    entries = RebuildIndex(id, **pack, entries.status());
    if (!entries.ok()) return entries.status();
  }
  AddPack(id, std::move(entries).value());
  return Status();
}

Result<std::vector<PackEntry>> StoreCore::ReadIndex(uint64_t id, uint64_t* pack_size) const {
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> index, files_.Open(IndexPath(id)));
  // A forged one takes no more memory than one of the largest pack.
  constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;
  ASSIGN_OR_RETURN(std::vector<std::byte> bytes, ReadWhole(*index, kMaxIndexBytes));
  return DecodeIndex(bytes, id, pack_size);
}

Result<std::vector<PackEntry>> StoreCore::RebuildIndex(uint64_t id, const StoreFile& pack,
                                                       const Status& why) {
  PackWalk walk;
  bool whole = true;
  walk.damaged = [&](uint64_t offset, std::string_view what) {
    whole = false;
    Note(std::string(CorruptAt(PackLabel(id), offset, what).message()));
  };
  ASSIGN_OR_RETURN(std::vector<PackEntry> entries, WalkPack(pack, id, walk));
  if (why.code() == StatusCode::kCorrupt) {
    Note(std::string(CorruptAt(IndexLabel(id), 0, why.message()).message()) + "; rebuilt from the pack");
    std::unique_lock lock(mutex_);
    index_damages_.push_back({IndexLabel(id), 0, std::string(why.message())});
  } else {
    Note(IndexLabel(id) + " was missing; rebuilt from the pack");
  }
  if (!whole) {
    // The disk keeps what it has.
    MarkDamaged(id);
    std::unique_lock lock(mutex_);
    unread_packs_.insert(id);
    return entries;
  }
  ASSIGN_OR_RETURN(uint64_t size, pack.Size());
  Status replaced = ReplaceIndex(id, size, entries);
  if (!replaced.ok()) Note(IndexLabel(id) + " could not be written: " + replaced.ToString());
  return entries;
}

Status StoreCore::ReplaceIndex(uint64_t id, uint64_t pack_size, std::span<const PackEntry> entries) const {
  ASSIGN_OR_RETURN(std::unique_ptr<LockFile> locks, OpenLocks());
  const uint64_t temp = RandomPackId();
  ASSIGN_OR_RETURN(bool locked, locks->TryLock(temp, true));
  if (!locked) return Status(StatusCode::kInternal, "a random number is in use");
  Status status = WriteIndex(TempPath(temp), id, pack_size, entries);
  if (status.ok()) status = files_.Rename(TempPath(temp), IndexPath(id));
  if (!status.ok()) DropTemp(*locks, temp);
  return status;
}

Status StoreCore::WriteIndex(const std::string& path, uint64_t id, uint64_t pack_size,
                             std::span<const PackEntry> entries) const {
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files_.Create(path));
  RETURN_IF_ERROR(file->WriteAt(EncodeIndex(id, pack_size, entries), 0));
  return file->Sync();
}

void StoreCore::DropTemp(LockFile& locks, uint64_t id) const {
  (void)files_.Remove(TempPath(id)).ok();
  (void)locks.Unlock(id).ok();
}

void StoreCore::AddPack(uint64_t id, std::vector<PackEntry> entries) {
  std::unique_lock lock(mutex_);
  index_.Add(id, std::move(entries));
}

void StoreCore::ForgetPack(uint64_t id) {
  std::unique_lock lock(mutex_);
  index_.Remove(id);
}

std::vector<ChunkPlace> StoreCore::Find(const Hash128& name) const {
  std::shared_lock lock(mutex_);
  return index_.Find(name);
}

std::vector<ChunkPlace> StoreCore::FindAny(const Hash128& hash) const {
  std::vector<ChunkPlace> places = Find(hash);
  for (const std::shared_ptr<const ChunkNames>& names : keyring_.Known()) {
    std::vector<ChunkPlace> more = Find(names->Of(hash));
    places.insert(places.end(), more.begin(), more.end());
  }
  return places;
}

Result<std::shared_ptr<const DataKey>> StoreCore::KeyOf(uint64_t pack, const StoreFile& file) {
  {
    std::lock_guard lock(keys_mutex_);
    auto found = keys_.find(pack);
    if (found != keys_.end()) return found->second;
  }
  Result<std::vector<std::byte>> block = ReadPackKey(file, pack);
  if (!block.ok() && block.status().code() == StatusCode::kCorrupt)
    return CorruptAt(PackLabel(pack), 0, block.status().message());
  if (!block.ok()) return block.status();
  std::shared_ptr<const DataKey> key;
  if (!block->empty()) {
    Result<std::shared_ptr<const DataKey>> opened = keyring_.Open(*block);
    if (!opened.ok() && opened.status().code() == StatusCode::kCorrupt)
      return CorruptAt(PackLabel(pack), kPackHeaderBytes, opened.status().message());
    if (!opened.ok()) return opened.status();
    key = *std::move(opened);
  }
  std::lock_guard lock(keys_mutex_);
  return keys_[pack] = std::move(key);
}

std::vector<uint64_t> StoreCore::Packs() const {
  std::shared_lock lock(mutex_);
  return index_.Packs();
}

std::vector<PackEntry> StoreCore::Entries(uint64_t pack) const {
  std::shared_lock lock(mutex_);
  std::span<const PackEntry> entries = index_.Entries(pack);
  return {entries.begin(), entries.end()};
}

bool StoreCore::IsUnread(uint64_t pack) const {
  std::shared_lock lock(mutex_);
  return unread_packs_.contains(pack);
}

bool StoreCore::IsDamaged(uint64_t pack) const {
  std::shared_lock lock(mutex_);
  return damaged_packs_.contains(pack);
}

void StoreCore::MarkDamaged(uint64_t pack) {
  {
    std::unique_lock lock(mutex_);
    damaged_packs_.insert(pack);
  }
  (void)files_.Create(MarkPath(pack)).ok();  // it may be there already, and nothing depends on it
}

StoreCounts StoreCore::counts() const {
  std::shared_lock lock(mutex_);
  return index_.counts();
}

std::vector<std::string> StoreCore::notes() const {
  std::shared_lock lock(mutex_);
  return notes_;
}

std::vector<Damage> StoreCore::TakeIndexDamages() {
  std::unique_lock lock(mutex_);
  return std::exchange(index_damages_, {});
}

void StoreCore::Note(std::string text) {
  std::unique_lock lock(mutex_);
  notes_.push_back(std::move(text));
}

}  // namespace stasis

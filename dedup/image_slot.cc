#include "dedup/image_slot.h"

#include "dedup/hash.h"
#include "dedup/image_manifest.h"
#include "dedup/live_chunks.h"

namespace stasis {
namespace {

constexpr std::string_view kTemporary = ".tmp";

// A file of its own: the numbers in ROOT/locks are packs.
std::string LocksPath(const std::string& root) { return root + "/image-locks"; }

std::string FolderOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Two names of one number only keep each other waiting for the next id.
uint64_t LockNumber(const std::string& name) {
  return HashBytes(std::as_bytes(std::span(name))).low & ((1ull << 62) - 1);
}

}  // namespace

ImageSlot::ImageSlot(std::shared_ptr<Store> store, std::string path)
    : store_(std::move(store)),
      path_(std::move(path)),
      temporary_(path_.substr(0, path_.rfind('.')) + std::string(kTemporary)) {}

Result<std::unique_ptr<ImageSlot>> ImageSlot::Take(std::shared_ptr<Store> store, const std::string& task,
                                                   const std::string& id) {
  ASSIGN_OR_RETURN(std::string path, ManifestPath(store->root(), task, id));
  std::unique_ptr<ImageSlot> slot(new ImageSlot(std::move(store), std::move(path)));
  std::string name = task + "/" + id;
  RETURN_IF_ERROR(slot->Lock(name));
  if (slot->store_->files().Exists(slot->path_)) {
    return Status(StatusCode::kAlreadyExists, "there is an image " + name + " already");
  }
  return slot;
}

Status ImageSlot::Lock(const std::string& name) {
  ASSIGN_OR_RETURN(locks_, store_->files().OpenLocks(LocksPath(store_->root())));
  ASSIGN_OR_RETURN(bool locked, locks_->TryLock(LockNumber(name), /*exclusive=*/true));
  if (locked) return Status();
  return Status(StatusCode::kAlreadyExists, "the image " + name + " is being written");
}

ImageSlot::~ImageSlot() {
  if (written_) (void)store_->files().Remove(temporary_);
}

Status ImageSlot::WriteTemporary(std::span<const std::byte> manifest) {
  FileSystem& files = store_->files();
  RETURN_IF_ERROR(files.MakeFolders(FolderOf(path_)));
  // Also when it was there: who made it may not have lived to sync its name.
  RETURN_IF_ERROR(files.SyncFolder(FolderOf(FolderOf(path_))));
  RETURN_IF_ERROR(files.Remove(temporary_));
  written_ = true;
  ASSIGN_OR_RETURN(std::unique_ptr<StoreFile> file, files.Create(temporary_));
  RETURN_IF_ERROR(file->WriteAt(manifest, 0));
  return file->Sync();
}

// The manifest is written out before the packs become visible, so that a full disk is noticed while the
// writer can still take everything back; it gets its name after them.
Status ImageSlot::Prepare(StoreWriter* writer, std::span<const std::byte> manifest) {
  RETURN_IF_ERROR(WriteTemporary(manifest));
  return writer->Finish();
}

Status ImageSlot::Publish() {
  FileSystem& files = store_->files();
  RETURN_IF_ERROR(files.Rename(temporary_, path_));
  written_ = false;
  Status synced = files.SyncFolder(FolderOf(path_));
  if (!synced.ok()) (void)files.Remove(path_);
  return synced;
}

Status ImageSlot::Commit(StoreWriter* writer, std::span<const std::byte> manifest) {
  RETURN_IF_ERROR(Prepare(writer, manifest));
  return Publish();
}

Result<uint64_t> RemoveAbandonedManifests(FileSystem& files, const std::string& root) {
  uint64_t removed = 0;
  ASSIGN_OR_RETURN(std::unique_ptr<LockFile> locks, files.OpenLocks(LocksPath(root)));
  ASSIGN_OR_RETURN(std::vector<std::string> tasks, ListTaskFolders(files, root));
  for (const std::string& task : tasks) {
    ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(root + "/images/" + task));
    for (const std::string& name : names) {
      if (!name.ends_with(kTemporary)) continue;
      const uint64_t number = LockNumber(task + "/" + name.substr(0, name.size() - kTemporary.size()));
      ASSIGN_OR_RETURN(bool locked, locks->TryLock(number, /*exclusive=*/true));
      if (!locked) continue;
      RETURN_IF_ERROR(files.Remove(root + "/images/" + task + "/" + name));
      RETURN_IF_ERROR(locks->Unlock(number));
      ++removed;
    }
  }
  return removed;
}

}  // namespace stasis

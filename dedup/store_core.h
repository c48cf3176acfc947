// What Store, its sessions and the collector share: names of files, the index, and the order in which a pack
// becomes visible. Internal to the store.
//
// A pack is written as ID.tmp under an exclusive lock on ID and gets its name when its session finishes:
// nobody relies on a pack whose writer may still take it back.
#ifndef DEDUP_STORE_CORE_H_
#define DEDUP_STORE_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/crypt.h"
#include "dedup/file_system.h"
#include "dedup/store.h"
#include "dedup/store_index.h"

namespace stasis {

// Thread-safe.
class StoreCore {
 public:
  StoreCore(std::string root, StoreOptions options);

  const std::string& root() const { return root_; }
  const StoreOptions& options() const { return options_; }
  FileSystem& files() const { return files_; }
  Keyring& keyring() { return keyring_; }

  std::string packs_folder() const { return root_ + "/packs"; }
  std::string images_folder() const { return root_ + "/images"; }
  std::string PackPath(uint64_t id) const { return packs_folder() + "/" + PackName(id); }
  std::string IndexPath(uint64_t id) const { return packs_folder() + "/" + PackIdText(id) + ".idx"; }
  std::string MarkPath(uint64_t id) const { return packs_folder() + "/" + PackIdText(id) + ".bad"; }
  std::string TempPath(uint64_t id) const { return packs_folder() + "/" + PackIdText(id) + ".tmp"; }
  static std::string PackName(uint64_t id) { return PackIdText(id) + ".pack"; }
  // Relative to the root, as people are told.
  static std::string PackLabel(uint64_t id) { return "packs/" + PackName(id); }
  static std::string IndexLabel(uint64_t id) { return "packs/" + PackIdText(id) + ".idx"; }

  Result<std::unique_ptr<LockFile>> OpenLocks() const { return files_.OpenLocks(root_ + "/locks"); }

  // Makes the folders, reads or writes the format file, loads all indexes.
  Status Open();
  Status Refresh();
  // Of a pack that has become visible, or is gone.
  void AddPack(uint64_t id, std::vector<PackEntry> entries);
  void ForgetPack(uint64_t id);

  // By the name that the chunk has in packs.
  std::vector<ChunkPlace> Find(const Hash128& name) const;
  // By its hash, under whatever name that is known.
  std::vector<ChunkPlace> FindAny(const Hash128& hash) const;
  // What a pack is encrypted with; null when it is not. As Keyring::Open().
  Result<std::shared_ptr<const DataKey>> KeyOf(uint64_t pack, const StoreFile& file);
  std::vector<uint64_t> Packs() const;
  std::vector<PackEntry> Entries(uint64_t pack) const;
  StoreCounts counts() const;
  std::vector<std::string> notes() const;
  // Indexes that were found damaged, and rebuilt, since the last call.
  std::vector<Damage> TakeIndexDamages();

  // Of a pack without a good index a part could not be read: it may hold more than is known.
  bool IsUnread(uint64_t pack) const;
  // A damage of the pack is known: nothing new relies on it, and the collector replaces it as soon as it can.
  bool IsDamaged(uint64_t pack) const;
  // Tells it to those who open the store later as well, as far as the disk lets it: by a file ID.bad.
  void MarkDamaged(uint64_t pack);
  // What is on disk. kNotFound, kCorrupt.
  Result<std::vector<PackEntry>> ReadIndex(uint64_t id, uint64_t* pack_size) const;
  // Writes what a pack's index says, on stable storage but for its name. Replaces nothing.
  Status WriteIndex(const std::string& path, uint64_t id, uint64_t pack_size,
                    std::span<const PackEntry> entries) const;
  // Takes `id`'s temporary file away and gives up its lock. For what failed: reports nothing.
  void DropTemp(LockFile& locks, uint64_t id) const;

 private:
  Status OpenFormat();
  Status WriteFormat();
  Status LoadPack(uint64_t id);
  Result<std::vector<PackEntry>> RebuildIndex(uint64_t id, const StoreFile& pack, const Status& why);
  Status ReplaceIndex(uint64_t id, uint64_t pack_size, std::span<const PackEntry> entries) const;
  void Note(std::string text);

  const std::string root_;
  StoreOptions options_;
  FileSystem& files_;

  Keyring keyring_;
  std::mutex keys_mutex_;
  std::map<uint64_t, std::shared_ptr<const DataKey>> keys_;  // of packs; guarded by keys_mutex_

  std::mutex refresh_mutex_;  // one Refresh() at a time
  mutable std::shared_mutex mutex_;
  StoreIndex index_;  // guarded by mutex_, as what follows
  std::set<uint64_t> unread_packs_;
  std::set<uint64_t> damaged_packs_;  // those as well
  std::vector<std::string> notes_;
  std::vector<Damage> index_damages_;
};

struct Store::State {
  std::shared_ptr<StoreCore> core;
};

}  // namespace stasis

#endif  // DEDUP_STORE_CORE_H_

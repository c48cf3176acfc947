// A disk in memory for tests, as strict as the rules of POSIX allow: what was written is in the page cache,
// and on stable storage only once its file was synced; a name that was made, changed or removed only once its
// folder was. The power can be cut, or the process killed, at any operation that changes something.
//
// Thread-safe.
#ifndef DEDUP_CRASH_FILE_SYSTEM_H_
#define DEDUP_CRASH_FILE_SYSTEM_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "dedup/file_system.h"

namespace stasis {

class CrashFileSystem final : public FileSystem {
 public:
  enum class Keep {
    kNothing,  // of what was not synced
    kEverything,
    kSome,  // any part of it: writes torn or missing under later ones, names of folders out of order
  };

  CrashFileSystem() = default;

  // From the `operation`-th change on (1: the next) nothing happens any more and every call fails. That
  // change itself may or may not reach the disk. 0: never.
  void StopAt(uint64_t operation);
  bool stopped() const;
  uint64_t changes() const;  // since the last StopAt()
  // The `operation`-th change fails with `error`, once, and all goes on.
  void FailAt(uint64_t operation, Status error);
  // Writes beyond this many bytes in all files fail like a full disk. UINT64_MAX: none do.
  void SetCapacity(uint64_t bytes);
  uint64_t used() const;

  // The disk as the next boot finds it.
  std::unique_ptr<CrashFileSystem> AfterPowerCut(Keep keep, uint64_t seed) const;
  // As the next process finds it: everything is there that was done, on stable storage or not; locks are
  // gone.
  std::unique_ptr<CrashFileSystem> AfterKill() const;
  // Every file, with its path.
  std::vector<std::string> AllFiles() const;
  // Changes one bit, or the size, of a file on stable storage and in the page cache.
  void FlipBit(const std::string& path, uint64_t bit);
  void Truncate(const std::string& path, uint64_t size);
  uint64_t SizeOf(const std::string& path) const;

  Result<std::unique_ptr<StoreFile>> Create(const std::string& path) override;
  Result<std::unique_ptr<StoreFile>> Open(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  Status MakeFolders(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& path) override;
  bool Exists(const std::string& path) override;
  Result<std::unique_ptr<LockFile>> OpenLocks(const std::string& path) override;

 private:
  class File;
  class Locks;
  using Bytes = std::vector<std::byte>;
  struct Inode {
    Bytes stable;
    Bytes cached;
    std::vector<std::pair<uint64_t, Bytes>> unsynced;  // writes, in order
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  // One change of names in one folder: it happens as a whole or not at all. Null: the name goes.
  using NameChange = std::vector<std::pair<std::string, std::shared_ptr<Inode>>>;
  struct LockTable {
    std::map<uint64_t, std::map<const void*, bool>> holders;  // exclusive or not
  };

  // What follows needs mutex_.
  Status Change();
  Status Running() const;
  void ChangeNames(const std::string& folder, NameChange change);
  uint64_t UsedLocked() const;
  std::unique_ptr<CrashFileSystem> CopyLocked() const;

  mutable std::mutex mutex_;
  std::condition_variable unlocked_;
  Names stable_names_;
  Names names_;
  std::map<std::string, std::vector<NameChange>> unsynced_names_;  // of folders
  std::set<std::string> folders_;
  std::map<std::string, std::shared_ptr<LockTable>> locks_;
  uint64_t changes_ = 0;
  uint64_t stop_at_ = 0;
  uint64_t fail_at_ = 0;
  Status failure_;
  bool stopped_ = false;
  uint64_t capacity_ = UINT64_MAX;
};

}  // namespace stasis

#endif  // DEDUP_CRASH_FILE_SYSTEM_H_

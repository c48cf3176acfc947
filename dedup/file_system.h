// What a store does to files and folders, as an interface: tests put between the store and the disk what
// drops unsynced writes, ends the process at the n-th call or runs out of space.
//
// Thread-safe unless said otherwise. Paths are whole paths. Errors name the path.
#ifndef DEDUP_FILE_SYSTEM_H_
#define DEDUP_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

class StoreFile {
 public:
  virtual ~StoreFile() = default;
  virtual Status WriteAt(std::span<const std::byte> bytes, uint64_t offset) = 0;
  // kCorrupt when the file ends before.
  virtual Status ReadAt(std::span<std::byte> bytes, uint64_t offset) const = 0;
  // Begins to bring these bytes to stable storage, so that Sync() is short. A hint; waits for nothing.
  virtual void StartSync(uint64_t offset, uint64_t size) {
    (void)offset;
    (void)size;
  }
  // Content and size are on stable storage when it returns. The name is not: see SyncFolder().
  virtual Status Sync() = 0;
  virtual Result<uint64_t> Size() const = 0;
};

// Locks on numbers, shared among processes, gone with the process that holds them (fcntl(2), open file
// description locks on single bytes of one file). Two LockFiles of one process exclude each other like those
// of two. Thread-safe.
class LockFile {
 public:
  virtual ~LockFile() = default;
  // At once or not at all: false when another holder is in the way. `number` is below 2^62. Locking what this
  // LockFile holds changes its kind.
  virtual Result<bool> TryLock(uint64_t number, bool exclusive) = 0;
  // Waits for an exclusive holder to go, and takes a shared lock. Whoever holds an exclusive lock must not
  // wait here.
  virtual Status LockShared(uint64_t number) = 0;
  virtual Status Unlock(uint64_t number) = 0;
  // Another holder is in the way of an exclusive lock. Takes nothing.
  virtual Result<bool> IsLocked(uint64_t number) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new file, mode 0600; kAlreadyExists when there is one.
  virtual Result<std::unique_ptr<StoreFile>> Create(const std::string& path) = 0;
  // For reading; no link is followed. kNotFound.
  virtual Result<std::unique_ptr<StoreFile>> Open(const std::string& path) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // A file. OK when there is none.
  virtual Status Remove(const std::string& path) = 0;
  // The names in the folder are on stable storage when it returns.
  virtual Status SyncFolder(const std::string& path) = 0;
  // What is missing of the path, each folder mode 0700, on stable storage.
  virtual Status MakeFolders(const std::string& path) = 0;
  // Sorted; empty when there is no such folder.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // Creates the file when it is missing.
  virtual Result<std::unique_ptr<LockFile>> OpenLocks(const std::string& path) = 0;
};

// The machine's own. Lives for ever.
FileSystem& RealFileSystem();

}  // namespace stasis

#endif  // DEDUP_FILE_SYSTEM_H_

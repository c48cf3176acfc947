#include "dedup/crash_file_system.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

namespace stasis {
namespace {

constexpr uint64_t kSector = 512;  // what a disk writes as a whole

std::string FolderOf(const std::string& path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

void Apply(uint64_t offset, std::span<const std::byte> bytes, std::vector<std::byte>* to) {
  if (to->size() < offset + bytes.size()) to->resize(offset + bytes.size());
  if (!bytes.empty()) std::memcpy(to->data() + offset, bytes.data(), bytes.size());
}

}  // namespace

class CrashFileSystem::File final : public StoreFile {
 public:
  File(CrashFileSystem* files, std::shared_ptr<Inode> inode, std::string path)
      : files_(files), inode_(std::move(inode)), path_(std::move(path)) {}

  Status WriteAt(std::span<const std::byte> bytes, uint64_t offset) override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Running());
    Status status = files_->Change();
    if (!status.ok() && !files_->stopped_) return status;
    if (files_->UsedLocked() + bytes.size() > files_->capacity_) {
      return Status(StatusCode::kResourceExhausted, path_ + ": No space left on device");
    }
    // The write during which the power fails may have reached the disk as well.
    inode_->unsynced.emplace_back(offset, Bytes(bytes.begin(), bytes.end()));
    Apply(offset, bytes, &inode_->cached);
    return status;
  }
  Status ReadAt(std::span<std::byte> bytes, uint64_t offset) const override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Running());
    if (offset > inode_->cached.size() || bytes.size() > inode_->cached.size() - offset) {
      return Status(StatusCode::kCorrupt, path_ + ": the file ends too early");
    }
    if (!bytes.empty()) std::memcpy(bytes.data(), inode_->cached.data() + offset, bytes.size());
    return Status();
  }
  Status Sync() override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Change());
    inode_->stable = inode_->cached;
    inode_->unsynced.clear();
    return Status();
  }
  Result<uint64_t> Size() const override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Running());
    return static_cast<uint64_t>(inode_->cached.size());
  }

 private:
  CrashFileSystem* const files_;
  const std::shared_ptr<Inode> inode_;
  const std::string path_;
};

class CrashFileSystem::Locks final : public LockFile {
 public:
  Locks(CrashFileSystem* files, std::shared_ptr<LockTable> table) : files_(files), table_(std::move(table)) {}
  ~Locks() override {
    std::lock_guard lock(files_->mutex_);
    for (auto& [number, holders] : table_->holders) holders.erase(this);
    files_->unlocked_.notify_all();
  }

  Result<bool> TryLock(uint64_t number, bool exclusive) override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Running());
    if (InTheWay(number, exclusive)) return false;
    table_->holders[number][this] = exclusive;
    files_->unlocked_.notify_all();
    return true;
  }
  Status LockShared(uint64_t number) override {
    std::unique_lock lock(files_->mutex_);
    files_->unlocked_.wait(lock, [&] { return files_->stopped_ || !InTheWay(number, false); });
    RETURN_IF_ERROR(files_->Running());
    table_->holders[number][this] = false;
    return Status();
  }
  Status Unlock(uint64_t number) override {
    std::lock_guard lock(files_->mutex_);
    table_->holders[number].erase(this);
    files_->unlocked_.notify_all();
    return files_->Running();
  }
  Result<bool> IsLocked(uint64_t number) override {
    std::lock_guard lock(files_->mutex_);
    RETURN_IF_ERROR(files_->Running());
    return InTheWay(number, true);
  }

 private:
  bool InTheWay(uint64_t number, bool exclusive) {
    for (const auto& [holder, held_exclusively] : table_->holders[number]) {
      if (holder != this && (exclusive || held_exclusively)) return true;
    }
    return false;
  }

  CrashFileSystem* const files_;
  const std::shared_ptr<LockTable> table_;
};

void CrashFileSystem::StopAt(uint64_t operation) {
  std::lock_guard lock(mutex_);
  changes_ = 0;
  stop_at_ = operation;
}

bool CrashFileSystem::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

uint64_t CrashFileSystem::changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}

void CrashFileSystem::FailAt(uint64_t operation, Status error) {
  std::lock_guard lock(mutex_);
  changes_ = 0;
  fail_at_ = operation;
  failure_ = std::move(error);
}

void CrashFileSystem::SetCapacity(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

uint64_t CrashFileSystem::used() const {
  std::lock_guard lock(mutex_);
  return UsedLocked();
}

uint64_t CrashFileSystem::UsedLocked() const {
  uint64_t used = 0;
  for (const auto& [path, inode] : names_) used += inode->cached.size();
  return used;
}

Status CrashFileSystem::Running() const {
  return stopped_ ? Status(StatusCode::kUnavailable, "the machine is off") : Status();
}

// The change during which the machine stops is an error too, but the caller makes it: it may reach the disk.
Status CrashFileSystem::Change() {
  RETURN_IF_ERROR(Running());
  ++changes_;
  if (changes_ == fail_at_) return failure_;
  if (changes_ == stop_at_) {
    stopped_ = true;
    unlocked_.notify_all();
  }
  return Running();
}

void CrashFileSystem::ChangeNames(const std::string& folder, NameChange change) {
  for (const auto& [path, inode] : change) {
    if (inode) {
      names_[path] = inode;
    } else {
      names_.erase(path);
    }
  }
  unsynced_names_[folder].push_back(std::move(change));
}

Result<std::unique_ptr<StoreFile>> CrashFileSystem::Create(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  if (names_.contains(path)) return Status(StatusCode::kAlreadyExists, path + " exists");
  if (!folders_.contains(FolderOf(path))) return Status(StatusCode::kNotFound, path + ": no such folder");
  Status status = Change();
  if (!status.ok() && !stopped_) return status;
  auto inode = std::make_shared<Inode>();
  ChangeNames(FolderOf(path), {{path, inode}});
  if (!status.ok()) return status;
  return std::unique_ptr<StoreFile>(std::make_unique<File>(this, std::move(inode), path));
}

Result<std::unique_ptr<StoreFile>> CrashFileSystem::Open(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  auto found = names_.find(path);
  if (found == names_.end()) return Status(StatusCode::kNotFound, path + ": no such file");
  return std::unique_ptr<StoreFile>(std::make_unique<File>(this, found->second, path));
}

Status CrashFileSystem::Rename(const std::string& from, const std::string& to) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  auto found = names_.find(from);
  if (found == names_.end()) return Status(StatusCode::kNotFound, from + ": no such file");
  STASIS_CHECK(FolderOf(from) == FolderOf(to));
  Status status = Change();
  if (status.ok() || stopped_) ChangeNames(FolderOf(from), {{to, found->second}, {from, nullptr}});
  return status;
}

Status CrashFileSystem::Remove(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  if (!names_.contains(path)) return Status();
  Status status = Change();
  if (status.ok() || stopped_) ChangeNames(FolderOf(path), {{path, nullptr}});
  return status;
}

Status CrashFileSystem::SyncFolder(const std::string& path) {
  std::lock_guard lock(mutex_);
  if (!folders_.contains(path)) return Status(StatusCode::kNotFound, path + ": no such folder");
  RETURN_IF_ERROR(Change());
  for (const NameChange& change : std::exchange(unsynced_names_[path], {})) {
    for (const auto& [name, inode] : change) {
      if (inode) {
        stable_names_[name] = inode;
      } else {
        stable_names_.erase(name);
      }
    }
  }
  return Status();
}

Status CrashFileSystem::MakeFolders(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  if (folders_.contains(path)) return Status();
  RETURN_IF_ERROR(Change());
  for (std::string folder = path; folders_.insert(folder).second && folder != "/";) folder = FolderOf(folder);
  return Status();
}

Result<std::vector<std::string>> CrashFileSystem::List(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  std::set<std::string> found;
  for (const auto& [name, inode] : names_) {
    if (FolderOf(name) == path) found.insert(name.substr(path.size() + 1));
  }
  for (const std::string& folder : folders_) {
    if (folder != "/" && FolderOf(folder) == path) found.insert(folder.substr(path.size() + 1));
  }
  return std::vector<std::string>(found.begin(), found.end());
}

bool CrashFileSystem::Exists(const std::string& path) {
  std::lock_guard lock(mutex_);
  return !stopped_ && (names_.contains(path) || folders_.contains(path));
}

Result<std::unique_ptr<LockFile>> CrashFileSystem::OpenLocks(const std::string& path) {
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(Running());
  std::shared_ptr<LockTable>& table = locks_[path];
  if (!table) table = std::make_shared<LockTable>();
  return std::unique_ptr<LockFile>(std::make_unique<Locks>(this, table));
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::CopyLocked() const {
  auto copy = std::make_unique<CrashFileSystem>();
  std::map<const Inode*, std::shared_ptr<Inode>> inodes;
  auto copied = [&](const std::shared_ptr<Inode>& inode) {
    if (!inode) return inode;
    std::shared_ptr<Inode>& twin = inodes[inode.get()];
    if (!twin) twin = std::make_shared<Inode>(*inode);
    return twin;
  };
  for (const auto& [path, inode] : names_) copy->names_[path] = copied(inode);
  for (const auto& [path, inode] : stable_names_) copy->stable_names_[path] = copied(inode);
  for (const auto& [folder, changes] : unsynced_names_) {
    for (const NameChange& change : changes) {
      NameChange twin;
      for (const auto& [path, inode] : change) twin.emplace_back(path, copied(inode));
      copy->unsynced_names_[folder].push_back(std::move(twin));
    }
  }
  copy->folders_ = folders_;
  copy->capacity_ = capacity_;
  return copy;
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::AfterKill() const {
  std::lock_guard lock(mutex_);
  return CopyLocked();
}

std::unique_ptr<CrashFileSystem> CrashFileSystem::AfterPowerCut(Keep keep, uint64_t seed) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<CrashFileSystem> next = CopyLocked();
  std::mt19937_64 random(seed);
  auto kept = [&] { return keep == Keep::kEverything || (keep == Keep::kSome && random() % 2 == 0); };
  for (auto& [folder, changes] : std::exchange(next->unsynced_names_, {})) {
    for (const NameChange& change : changes) {
      if (!kept()) continue;
      for (const auto& [path, inode] : change) {
        if (inode) {
          next->stable_names_[path] = inode;
        } else {
          next->stable_names_.erase(path);
        }
      }
    }
  }
  next->names_ = next->stable_names_;
  std::set<Inode*> seen;
  for (auto& [path, inode] : next->names_) {
    if (!seen.insert(inode.get()).second) continue;
    for (const auto& [offset, bytes] : std::exchange(inode->unsynced, {})) {
      if (keep == Keep::kEverything) Apply(offset, bytes, &inode->stable);
      if (keep != Keep::kSome) continue;
      for (uint64_t at = 0; at < bytes.size(); at += kSector) {
        auto sector = std::span(bytes).subspan(at, std::min<uint64_t>(kSector, bytes.size() - at));
        if (kept()) Apply(offset + at, sector, &inode->stable);
      }
    }
    inode->cached = inode->stable;
  }
  return next;
}

std::vector<std::string> CrashFileSystem::AllFiles() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> paths;
  for (const auto& [path, inode] : names_) paths.push_back(path);
  return paths;
}

void CrashFileSystem::FlipBit(const std::string& path, uint64_t bit) {
  std::lock_guard lock(mutex_);
  Inode& inode = *names_.at(path);
  inode.cached.at(bit / 8) ^= static_cast<std::byte>(1 << (bit % 8));
  inode.stable = inode.cached;
}

void CrashFileSystem::Truncate(const std::string& path, uint64_t size) {
  std::lock_guard lock(mutex_);
  Inode& inode = *names_.at(path);
  inode.cached.resize(size);
  inode.stable = inode.cached;
}

uint64_t CrashFileSystem::SizeOf(const std::string& path) const {
  std::lock_guard lock(mutex_);
  return names_.at(path)->cached.size();
}

}  // namespace stasis

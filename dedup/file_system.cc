#include "dedup/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/files.h"

namespace stasis {
namespace {

class RealFile final : public StoreFile {
 public:
  RealFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status WriteAt(std::span<const std::byte> bytes, uint64_t offset) override {
    return stasis::WriteAt(fd_.get(), bytes, offset).WithContext(path_);
  }
  Status ReadAt(std::span<std::byte> bytes, uint64_t offset) const override {
    return stasis::ReadAt(fd_.get(), bytes, offset).WithContext(path_);
  }
  void StartSync(uint64_t offset, uint64_t size) override {
    sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size), SYNC_FILE_RANGE_WRITE);
  }
  Status Sync() override {
    return fdatasync(fd_.get()) == 0 ? Status() : ErrnoStatus(errno, "sync " + path_);
  }
  Result<uint64_t> Size() const override {
    struct stat info;
    if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path_);
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  const Fd fd_;
  const std::string path_;
};

class RealLocks final : public LockFile {
 public:
  RealLocks(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<bool> TryLock(uint64_t number, bool exclusive) override {
    struct flock lock = OneByte(number, exclusive ? F_WRLCK : F_RDLCK);
    if (Control(F_OFD_SETLK, &lock) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    return ErrnoStatus(errno, "lock " + path_);
  }
  Status LockShared(uint64_t number) override {
    struct flock lock = OneByte(number, F_RDLCK);
    return Control(F_OFD_SETLKW, &lock) == 0 ? Status() : ErrnoStatus(errno, "lock " + path_);
  }
  Status Unlock(uint64_t number) override {
    struct flock lock = OneByte(number, F_UNLCK);
    return Control(F_OFD_SETLK, &lock) == 0 ? Status() : ErrnoStatus(errno, "unlock " + path_);
  }
  Result<bool> IsLocked(uint64_t number) override {
    struct flock lock = OneByte(number, F_WRLCK);
    if (Control(F_OFD_GETLK, &lock) != 0) return ErrnoStatus(errno, "look at locks of " + path_);
    return lock.l_type != F_UNLCK;
  }

 private:
  static struct flock OneByte(uint64_t number, short type) {
    STASIS_CHECK(number < uint64_t{1} << 62);
    struct flock lock {};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = static_cast<off_t>(number);
    lock.l_len = 1;
    return lock;
  }
  int Control(int command, struct flock* lock) {
    for (;;) {
      int result = fcntl(fd_.get(), command, lock);
      if (result == 0 || errno != EINTR) return result;
    }
  }

  const Fd fd_;
  const std::string path_;
};

class RealFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<StoreFile>> Create(const std::string& path) override {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW));
    return std::unique_ptr<StoreFile>(std::make_unique<RealFile>(std::move(fd), path));
  }
  Result<std::unique_ptr<StoreFile>> Open(const std::string& path) override {
    // O_NONBLOCK: nobody is waited for should a pipe lie there.
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    struct stat info;
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
    if (!S_ISREG(info.st_mode)) return Status(StatusCode::kCorrupt, path + " is no regular file");
    return std::unique_ptr<StoreFile>(std::make_unique<RealFile>(std::move(fd), path));
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? Status() : ErrnoStatus(errno, "rename " + from);
  }
  Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return Status();
    return ErrnoStatus(errno, "remove " + path);
  }
  Status SyncFolder(const std::string& path) override { return stasis::SyncFolder(path); }
  Status MakeFolders(const std::string& path) override {
    if (Exists(path)) return stasis::MakeFolders(path);  // says so when it is no folder
    size_t slash = path.rfind('/');
    std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
    RETURN_IF_ERROR(MakeFolders(parent));
    RETURN_IF_ERROR(stasis::MakeFolders(path));
    return stasis::SyncFolder(parent);
  }
  Result<std::vector<std::string>> List(const std::string& path) override { return ListFolder(path); }
  bool Exists(const std::string& path) override { return stasis::Exists(path); }
  Result<std::unique_ptr<LockFile>> OpenLocks(const std::string& path) override {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK));
    return std::unique_ptr<LockFile>(std::make_unique<RealLocks>(std::move(fd), path));
  }
};

}  // namespace

FileSystem& RealFileSystem() {
  static RealFiles* const files = new RealFiles;
  return *files;
}

}  // namespace stasis

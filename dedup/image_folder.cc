#include "dedup/image_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "base/parallel.h"

namespace stasis {
namespace {

Result<Fd> OpenFolder(const std::string& path) { return OpenFile(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW); }

// The name may come from outside.
Result<Fd> OpenInside(int folder, const std::string& path, const std::string& name, int flags) {
  if (!IsPlainName(name)) return Status(StatusCode::kCorrupt, path + ": '" + name + "' is no plain name");
  Fd fd(openat(folder, name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path + "/" + name);
  return fd;
}

}  // namespace

void AppendPieces(size_t file, const StreamLayout& layout, std::vector<FilePiece>* pieces) {
  for (const Piece& piece : layout.pieces()) pieces->push_back({file, piece});
}

Result<std::vector<Segment>> FileSegments(
    const std::string& file, uint64_t size,
    const std::function<std::vector<Segment>(const std::string& file, uint64_t size)>& segments_of) {
  std::vector<Segment> segments;
  if (segments_of) segments = segments_of(file, size);
  if (segments.empty() && size > 0) segments.push_back({0, size});
  uint64_t rest = size;
  for (const Segment& segment : segments) {
    if (segment.size > rest) return Status(StatusCode::kInvalidArgument, file + ": segments beyond its end");
    rest -= segment.size;
  }
  if (rest > 0) return Status(StatusCode::kInvalidArgument, file + ": segments do not reach its end");
  return segments;
}

Result<SourceFolder> SourceFolder::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Fd fd, OpenFolder(path));
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  SourceFolder folder(path, std::move(fd));
  for (std::string& name : names) {
    struct stat info;
    if (fstatat(folder.fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, path + "/" + name);
    }
    if (!S_ISREG(info.st_mode)) {
      return Status(StatusCode::kInvalidArgument, path + "/" + name + " is no regular file");
    }
    folder.files_.push_back({std::move(name), static_cast<uint64_t>(info.st_size)});
  }
  return folder;
}

Status SourceFolder::CheckSize(int fd, const File& file) const {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, path_ + "/" + file.name);
  if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) == file.size) return Status();
  return Status(StatusCode::kFailedPrecondition, path_ + "/" + file.name + " changed while it was read");
}

Status SourceFolder::ReadPiece(const FilePiece& piece, std::span<std::byte> out) const {
  const File& file = files_[piece.file];
  ASSIGN_OR_RETURN(Fd fd, OpenInside(fd_.get(), path_, file.name, O_RDONLY));
  RETURN_IF_ERROR(CheckSize(fd.get(), file));
  RETURN_IF_ERROR(ReadAt(fd.get(), out, piece.piece.offset).WithContext(path_ + "/" + file.name));
  return CheckSize(fd.get(), file);
}

Status SourceFolder::ReadPieces(
    const std::vector<FilePiece>& pieces,
    const std::function<Status(const FilePiece&, std::span<const std::byte>)>& take) const {
  std::vector<std::vector<std::byte>> buffers(CopyThreads());
  return ParallelFor(pieces.size(), buffers.size(), [&](size_t i, size_t worker) {
    buffers[worker].resize(pieces[i].piece.size);
    RETURN_IF_ERROR(ReadPiece(pieces[i], buffers[worker]));
    return take(pieces[i], buffers[worker]);
  });
}

Result<TargetFolder> TargetFolder::Open(const std::string& path) {
  ASSIGN_OR_RETURN(Fd fd, OpenFolder(path));
  return TargetFolder(path, std::move(fd));
}

Status TargetFolder::Create(const std::string& name, uint64_t size) const {
  ASSIGN_OR_RETURN(Fd fd, OpenInside(fd_.get(), path_, name, O_WRONLY | O_CREAT | O_EXCL));
  if (ftruncate(fd.get(), static_cast<off_t>(size)) == 0) return Status();
  return ErrnoStatus(errno, "size " + path_ + "/" + name);
}

Status TargetFolder::Write(const std::string& name, std::span<const std::byte> bytes, uint64_t offset) const {
  ASSIGN_OR_RETURN(Fd fd, OpenInside(fd_.get(), path_, name, O_WRONLY));
  return WriteAt(fd.get(), bytes, offset).WithContext(path_ + "/" + name);
}

}  // namespace stasis

// The plain files of a folder on disk, read and written by pieces on several threads. Nothing outside of the
// folder is ever touched, whatever the names: the folder is held open, and no link is followed.
#ifndef DEDUP_IMAGE_FOLDER_H_
#define DEDUP_IMAGE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "dedup/image.h"

namespace stasis {

// A piece of the `file`-th file of some list.
struct FilePiece {
  size_t file = 0;
  Piece piece;
};
void AppendPieces(size_t file, const StreamLayout& layout, std::vector<FilePiece>* pieces);

// What `segments_of` (may be null) says of a file, or one segment of its own offsets. kInvalidArgument: the
// segments are not of the file's size.
Result<std::vector<Segment>> FileSegments(
    const std::string& file, uint64_t size,
    const std::function<std::vector<Segment>(const std::string& file, uint64_t size)>& segments_of);

class SourceFolder {
 public:
  struct File {
    std::string name;
    uint64_t size = 0;
  };
  // kInvalidArgument: something in it is no plain file.
  static Result<SourceFolder> Open(const std::string& path);
  const std::vector<File>& files() const { return files_; }
  // Calls `take` for each piece, on several threads. kFailedPrecondition: a file has changed its size.
  Status ReadPieces(const std::vector<FilePiece>& pieces,
                    const std::function<Status(const FilePiece&, std::span<const std::byte>)>& take) const;

 private:
  SourceFolder(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status ReadPiece(const FilePiece& piece, std::span<std::byte> out) const;
  Status CheckSize(int fd, const File& file) const;

  std::string path_;
  Fd fd_;
  std::vector<File> files_;
};

class TargetFolder {
 public:
  static Result<TargetFolder> Open(const std::string& path);
  // A new file, mode 0600, all zero. kAlreadyExists.
  Status Create(const std::string& name, uint64_t size) const;
  Status Write(const std::string& name, std::span<const std::byte> bytes, uint64_t offset) const;

 private:
  TargetFolder(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;
};

}  // namespace stasis

#endif  // DEDUP_IMAGE_FOLDER_H_

// One image: named streams of bytes in chunks, folders of files, and a manifest, committed all at once.
//
// On disk an image is a folder: manifest.json, manifest.sum (its hash), streams/NAME, and one folder for each
// AddFolder(). It is written as ID.partial and becomes visible by one rename, after everything in it is on
// stable storage. Every byte is covered: the manifest by its sum, streams by a hash a chunk, files by a hash
// each; what was read is checked before it is handed out. Nothing outside this file knows the layout, so that
// another store can take its place.
#ifndef GHOST_IMAGE_H_
#define GHOST_IMAGE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "dedup/hash.h"
#include "dedup/json.h"

namespace stasis {

inline constexpr uint64_t kImageVersion = 1;
inline constexpr uint64_t kImageChunk = 4 << 20;  // bytes; the last chunk of a stream may be shorter

class FolderImageWriter {
 public:
  // Starts `folder`/`id`.partial, mode 0700, replacing what an interrupted writer left there. kAlreadyExists
  // when `id` is already committed.
  static Result<std::unique_ptr<FolderImageWriter>> Create(const std::string& folder, const std::string& id);
  // Removes what was written unless it was committed.
  ~FolderImageWriter();
  FolderImageWriter(const FolderImageWriter&) = delete;
  FolderImageWriter& operator=(const FolderImageWriter&) = delete;

  // A stream of `size` bytes; every chunk of it is to be written once.
  Status AddStream(const std::string& name, uint64_t size);
  // Thread-safe, also for chunks of one stream. `bytes` is the whole chunk.
  Status WriteChunk(const std::string& name, uint64_t index, std::span<const std::byte> bytes);
  // The path of a new folder in the image. What plain files are in it at Commit() belong to the image.
  Result<std::string> AddFolder(const std::string& name);
  // Hashes, syncs, renames. `meta` is what Reader::meta() will give. Once; after an error the image is gone.
  Status Commit(const Json& meta);

  const std::string& id() const { return id_; }
  // Bytes that the image takes, so far.
  uint64_t bytes() const { return bytes_; }

 private:
  struct Stream {
    uint64_t size = 0;
    Fd fd;
    std::vector<std::string> chunks;  // hash texts; "" not written yet, "0" all zero
  };
  FolderImageWriter(std::string folder, std::string id) : folder_(std::move(folder)), id_(std::move(id)) {}
  Result<Json> DescribeStreams();
  Result<Json> DescribeFolder(const std::string& name);
  Status WriteManifest(const Json& manifest);

  const std::string folder_;
  const std::string id_;
  std::string partial_;
  std::map<std::string, Stream> streams_;  // its shape is constant while chunks are written
  std::vector<std::string> folders_;
  std::atomic<uint64_t> bytes_{0};
  bool committed_ = false;
};

class FolderImageReader {
 public:
  struct Stream {
    uint64_t size = 0;
    Fd fd;
    std::vector<Hash128> hashes;
    std::vector<bool> zero;
  };
  struct File {
    std::string name;
    uint64_t size = 0;
    Hash128 hash;
  };

  // Reads and checks the manifest, and that all it names is there in the right size. kNotFound: no such
  // image; kUnsupported: of a version that we do not know; kCorrupt: damaged.
  static Result<std::unique_ptr<FolderImageReader>> Open(const std::string& folder, const std::string& id);

  const std::string& id() const { return id_; }
  const Json& meta() const { return meta_; }
  const std::map<std::string, Stream>& streams() const { return streams_; }
  // 0 for a stream that is not there.
  uint64_t StreamSize(const std::string& name) const;
  // One chunk, checked. `out` is as long as the chunk. Thread-safe.
  Status ReadChunk(const std::string& name, uint64_t index, std::span<std::byte> out) const;
  // Checks every file of a folder. Its files may be used afterwards.
  Status VerifyFolder(const std::string& name) const;
  // Checks every byte of the image.
  Status VerifyAll() const;
  std::string FolderPath(const std::string& name) const { return path_ + "/" + name; }
  uint64_t bytes() const { return bytes_; }

 private:
  FolderImageReader() = default;
  Status ReadStreams(const Json& list);
  Status ReadFolder(const Json& folder);

  std::string id_;
  std::string path_;
  Json meta_;
  std::map<std::string, Stream> streams_;
  std::map<std::string, std::vector<File>> folders_;
  uint64_t bytes_ = 0;
};

// The manifest's text, checked as far as it can be without the files beside it. For the reader and fuzzing.
Result<Json> ParseImageManifest(std::string_view text);

// Ids of committed images, ascending. Six digits each; anything else in the folder is ignored.
Result<std::vector<std::string>> ListImages(const std::string& folder);
// One more than the newest, "000001" in an empty folder. Removes nothing.
Result<std::string> NextImageId(const std::string& folder);
// Removes what interrupted writers left in the folder.
Status RemovePartialImages(const std::string& folder);

}  // namespace stasis

#endif  // GHOST_IMAGE_H_

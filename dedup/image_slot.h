// The place of one image in a store while it is being written: ROOT/images/TASK/ID.tmp, then ID.image.
//
// Who holds the slot holds an exclusive lock for the name, gone with its process. So two writers of one id
// cannot meet: the second is refused before it has copied anything, and the rename finds nothing in its way.
// A hard link would be atomic without a lock, but would let both write everything first, and not every file
// system has it. What an interrupted writer left as ID.tmp is replaced by the next writer of that id, which
// is the next one of that task.
//
// Not thread-safe.
#ifndef DEDUP_IMAGE_SLOT_H_
#define DEDUP_IMAGE_SLOT_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "dedup/file_system.h"
#include "dedup/store.h"

namespace stasis {

class ImageSlot {
 public:
  // kInvalidArgument: no names; kAlreadyExists: there is such an image, or somebody is writing it.
  static Result<std::unique_ptr<ImageSlot>> Take(std::shared_ptr<Store> store, const std::string& task,
                                                 const std::string& id);
  // Removes what was not committed.
  ~ImageSlot();
  ImageSlot(const ImageSlot&) = delete;
  ImageSlot& operator=(const ImageSlot&) = delete;

  // Makes all that `writer` was given durable and visible, and the manifest durable. Once.
  Status Prepare(StoreWriter* writer, std::span<const std::byte> manifest);
  // The manifest becomes visible. Once, after Prepare(); after an error of either there is no image.
  Status Publish();
  // Both.
  Status Commit(StoreWriter* writer, std::span<const std::byte> manifest);

 private:
  ImageSlot(std::shared_ptr<Store> store, std::string path);
  Status Lock(const std::string& name);
  Status WriteTemporary(std::span<const std::byte> manifest);

  const std::shared_ptr<Store> store_;
  const std::string path_;
  const std::string temporary_;
  std::unique_ptr<LockFile> locks_;
  bool written_ = false;  // there may be a temporary file of ours
};

// Removes what writers that are gone have left of images; how many.
Result<uint64_t> RemoveAbandonedManifests(FileSystem& files, const std::string& root);

}  // namespace stasis

#endif  // DEDUP_IMAGE_SLOT_H_

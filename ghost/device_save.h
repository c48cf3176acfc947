// Writes streams whose bytes lie on devices into an image: asks the devices for the hashes of all chunks
// first, where that is worth it, and copies only what the store lacks.
#ifndef GHOST_DEVICE_SAVE_H_
#define GHOST_DEVICE_SAVE_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dedup/image.h"
#include "ghost/device_hash.h"
#include "ghost/gpu.h"

namespace stasis {

struct DevicePlace {
  int device = 0;
  CUdeviceptr address = 0;
};

// How a stream's bytes are reached. Both are called by several threads at once.
struct DeviceBytes {
  // Fills `out` from `offset` of the stream.
  std::function<Status(uint64_t offset, std::span<std::byte> out)> read;
  // Where [offset, offset + size) is when it is in one piece on a device.
  std::function<std::optional<DevicePlace>(uint64_t offset, uint64_t size)> locate;
};

class DeviceSaver {
 public:
  // What is given must outlive the saver. `shared`: others write what they have in common with this image, so
  // that hashing pays more often.
  DeviceSaver(Gpu& gpu, ImageWriter& image, DeviceHashMode mode, bool shared = false)
      : gpu_(gpu), image_(image), mode_(mode), shared_(shared) {}
  ~DeviceSaver();
  DeviceSaver(const DeviceSaver&) = delete;
  DeviceSaver& operator=(const DeviceSaver&) = delete;

  // A stream that the image has been told of. Hashes it, in the calling thread. One at a time, before pieces
  // are saved. kAuto measures on the first stream of each device whether it is worth it. Afterwards the bytes
  // need not lie where they were located, but must be the same.
  Status AddStream(const std::string& name, DeviceBytes bytes);
  // Its hashes are known: SavePiece() is for such streams only.
  bool Knows(const std::string& name) const;
  // Thread-safe. `staging` has room for the piece.
  Status SavePiece(const std::string& name, size_t piece, std::span<std::byte> staging);

  // What was read to hash or to write it.
  uint64_t copied_bytes() const { return copied_; }
  // What was hashed where it lies.
  uint64_t hashed_bytes() const { return hashed_; }
  // Why a device that was to hash did not, for people.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Stream {
    DeviceBytes bytes;
    std::vector<Hash128> hashes;  // of all chunks; empty: not known
  };
  // The chunks of one stream that lie on one device.
  struct Part {
    std::vector<DeviceRange> ranges;
    std::vector<size_t> chunks;
    uint64_t bytes = 0;
  };
  using Parts = std::map<int, Part>;

  Parts Locate(const StreamLayout& layout, const DeviceBytes& bytes) const;
  Status SaveChunks(const std::string& name, const Stream& stream, size_t begin, size_t end,
                    std::span<std::byte> staging);
  Status HashParts(const Parts& parts, Stream* stream);
  Status HashOthers(const StreamLayout& layout, const Parts& parts, Stream* stream);
  // Null: the host hashes what is on this device.
  Result<DeviceHasher*> HasherFor(int device, const Part& part, const StreamLayout& layout,
                                  const Stream& stream);
  Result<bool> IsWorthIt(DeviceHasher& hasher, const Part& part, const StreamLayout& layout,
                         const Stream& stream);

  Gpu& gpu_;
  ImageWriter& image_;
  const DeviceHashMode mode_;
  const bool shared_;
  std::map<int, std::unique_ptr<DeviceHasher>> hashers_;  // null: decided against
  std::map<std::string, Stream> streams_;
  std::vector<std::string> notes_;
  std::atomic<uint64_t> copied_{0};
  uint64_t hashed_ = 0;
};

}  // namespace stasis

#endif  // GHOST_DEVICE_SAVE_H_

// The store's hash, computed on the device that holds the bytes: what the store already has need not be
// copied to know so.
#ifndef GHOST_DEVICE_HASH_H_
#define GHOST_DEVICE_HASH_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "dedup/hash.h"

namespace stasis {

enum class DeviceHashMode : int { kAuto = 0, kOn, kOff };
// "auto", "on", "off"
bool FindDeviceHashMode(const std::string& name, DeviceHashMode* mode);

// Bytes in device memory.
struct DeviceRange {
  CUdeviceptr address = 0;
  uint64_t size = 0;
};

// Belongs to the context that was current when it was created; that context is current in the thread that
// uses or destroys it. Used by one thread at a time. Takes no device memory but its code.
class DeviceHasher {
 public:
  // kDriver, kResourceExhausted: this device cannot; the host can.
  static Result<std::unique_ptr<DeviceHasher>> Create();
  ~DeviceHasher();
  DeviceHasher(const DeviceHasher&) = delete;
  DeviceHasher& operator=(const DeviceHasher&) = delete;

  // hashes[i] = HashBytes() of ranges[i], but zero when all its bytes are zero (kZeroChunk of dedup/image.h).
  // Any addresses and sizes; those of at most kHostBytes are copied and hashed here. Fast where the address
  // is a multiple of 16 and there are thousands of ranges. `hashes` is as long as `ranges`.
  Status Hash(std::span<const DeviceRange> ranges, std::span<Hash128> hashes);

  // The algorithm has other forms for inputs so short; chunks so short are rare.
  static constexpr uint64_t kHostBytes = 240;

 private:
  struct Slot;
  DeviceHasher() = default;
  Status HashBatch(std::span<const DeviceRange> ranges, std::span<Hash128> hashes);

  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUstream stream_ = nullptr;
  // Pinned memory that the device reads ranges from and writes hashes to.
  void* shared_ = nullptr;
};

}  // namespace stasis

#endif  // GHOST_DEVICE_HASH_H_

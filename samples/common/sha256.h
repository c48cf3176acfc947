// SHA-256 (FIPS 180-4).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace sample {

class Sha256 {
 public:
  void Update(const void* data, size_t size);
  template <typename T>
  void Update(const std::vector<T>& values) {
    Update(values.data(), values.size() * sizeof(T));
  }

  // The digest as 64 hexadecimal digits. The object must not be used afterwards.
  std::string HexDigest();

 private:
  void Compress(const uint8_t* block);

  uint32_t state_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t pending_[64] = {};
  size_t pending_size_ = 0;
  uint64_t total_size_ = 0;
};

}  // namespace sample

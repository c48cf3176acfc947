// What a run of the ring does, and its two implementations.
#pragma once

#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

namespace nccl_ring {

struct Config {
  int ranks = 2;
  int rank = -1;  // -1: all of them in this process
  std::string id_file;
  std::string init = "all";
  int elements = 1 << 16;
  int rounds = 20;
  uint64_t seed = 1;
  int device = -1;  // -1: 0 for rank 0, and so on
  int pace_ms = 0;
  bool reference = false;
};

// Every rank has a vector x of 32-bit numbers, at the start Start(). In a round it sends x to the next rank
// and receives y from the one before; x becomes Mix(x, y); all ranks sum their x; x becomes Fold(x, sum). All
// arithmetic is modulo 2^32, so that the order of a sum does not matter.
std::vector<uint32_t> Start(const Config& config, int rank);

#ifdef __CUDACC__
#define NCCL_RING_BOTH __host__ __device__
#else
#define NCCL_RING_BOTH
#endif
NCCL_RING_BOTH inline uint32_t Mix(uint32_t x, uint32_t y) {
  return (x ^ (y >> 7)) * 1664525u + y + 1013904223u;
}
NCCL_RING_BOTH inline uint32_t Fold(uint32_t x, uint32_t sum) { return (x << 5 | x >> 27) ^ sum; }

class Ring {
 public:
  virtual ~Ring() = default;
  // One round of all ranks of this process; the sum that each of them has then.
  virtual std::vector<uint32_t> Round() = 0;
  // The vectors x of all ranks, one after the other.
  virtual std::vector<uint32_t> Gather() = 0;
};

std::unique_ptr<Ring> MakeDeviceRing(const Config& config);
std::unique_ptr<Ring> MakeHostRing(const Config& config);

}  // namespace nccl_ring

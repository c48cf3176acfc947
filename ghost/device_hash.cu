// XXH3-128 with seed 0 and the default secret, as its specification says it, for inputs longer than 240 bytes
// in device memory. One warp a chunk.
//
// The stripes of 64 bytes within a block of 1024 only add to the accumulators, so a warp takes eight of them
// at once: lane = 4 * stripe + pair, where `pair` names two neighbouring accumulators (they swap their
// inputs). The eight partial sums are added up at the end of each block, before the accumulators are
// scrambled.
#include <cstdint>

namespace {

using u64 = unsigned long long;

constexpr u64 kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
constexpr u64 kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F,
              kPrime64_3 = 0x165667B19E3779F9, kPrime64_4 = 0x85EBCA77C2B2AE63,
              kPrime64_5 = 0x27D4EB2F165667C5;
constexpr u64 kAvalanche = 0x165667919E3779F9;
constexpr u64 kStripe = 64, kBlock = 1024;
constexpr unsigned kAllLanes = 0xffffffff;
// Offsets in the secret.
constexpr unsigned kScrambleSecret = 128, kLastSecret = 121, kLowSecret = 11, kHighSecret = 117;

// Little-endian words of the 192 bytes.
__constant__ u64 kSecret[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb,
    0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c, 0xa32e531b8b65d088,
    0x4ef90da297486471, 0xd8acdea946ef1938, 0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
    0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};
__constant__ u64 kStart[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                              kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};

struct Pair {
  u64 x, y;
};

// 8 bytes at any offset of the secret.
__device__ u64 SecretAt(unsigned offset) {
  const unsigned word = offset / 8, shift = offset % 8 * 8;
  return shift == 0 ? kSecret[word] : kSecret[word] >> shift | kSecret[word + 1] << (64 - shift);
}
__device__ Pair SecretPair(unsigned offset) { return {SecretAt(offset), SecretAt(offset + 8)}; }

__device__ Pair LoadPair(const unsigned char* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 == 0) {
    const ulonglong2 data = *reinterpret_cast<const ulonglong2*>(at);
    return {data.x, data.y};
  }
  Pair data = {0, 0};
  for (int i = 7; i >= 0; --i) {
    data.x = data.x << 8 | at[i];
    data.y = data.y << 8 | at[i + 8];
  }
  return data;
}

__device__ u64 LowTimesHigh(u64 key) { return (key & 0xffffffff) * (key >> 32); }

struct Accumulators {
  Pair sum;
  u64 bits;  // whatever was set in the input

  __device__ void Add(Pair data, Pair secret) {
    sum.x += data.y + LowTimesHigh(data.x ^ secret.x);
    sum.y += data.x + LowTimesHigh(data.y ^ secret.y);
    bits |= data.x | data.y;
  }
  // Every lane gets the sums over all stripes.
  __device__ void Gather() {
    for (int distance = 4; distance < 32; distance *= 2) {
      sum.x += __shfl_xor_sync(kAllLanes, sum.x, distance);
      sum.y += __shfl_xor_sync(kAllLanes, sum.y, distance);
    }
  }
};

__device__ u64 Scrambled(u64 value, u64 secret) { return (value ^ value >> 47 ^ secret) * kPrime32_1; }

__device__ u64 FoldedProduct(u64 a, u64 b) { return a * b ^ __umul64hi(a, b); }

// The four pairs of accumulators as one word.
__device__ u64 Merged(Pair sum, Pair secret, u64 start) {
  u64 value = FoldedProduct(sum.x ^ secret.x, sum.y ^ secret.y);
  value += __shfl_xor_sync(kAllLanes, value, 1);
  value += __shfl_xor_sync(kAllLanes, value, 2);
  value += start;
  value = (value ^ value >> 37) * kAvalanche;
  return value ^ value >> 32;
}

struct Chunk {
  const unsigned char* at;
  u64 size;
};
struct Hash {
  u64 high, low;
};

}  // namespace

// hashes[i] = the hash of chunks[i]; zero when all its bytes are. The block is a multiple of 32 threads.
extern "C" __global__ void HashChunks(const Chunk* chunks, Hash* hashes, unsigned count) {
  const unsigned index = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (index >= count) return;
  const unsigned lane = threadIdx.x % 32, stripe = lane / 4, pair = lane % 4;
  const unsigned char* const begin = chunks[index].at;
  const u64 size = chunks[index].size;
  const Pair early = SecretPair(stripe * 8 + pair * 16), late = SecretPair((stripe + 8) * 8 + pair * 16);
  const Pair scramble = SecretPair(kScrambleSecret + pair * 16);
  const Pair nothing = {0, 0};
  Accumulators all = {stripe == 0 ? Pair{kStart[pair * 2], kStart[pair * 2 + 1]} : nothing, 0};

  const unsigned char* at = begin + stripe * kStripe + pair * 16;
  const unsigned char* const blocks_end = at + (size - 1) / kBlock * kBlock;
  for (; at != blocks_end; at += kBlock) {
    const Pair first = LoadPair(at), second = LoadPair(at + kBlock / 2);
    all.Add(first, early);
    all.Add(second, late);
    all.Gather();
    const Pair mixed = {Scrambled(all.sum.x, scramble.x), Scrambled(all.sum.y, scramble.y)};
    all.sum = stripe == 0 ? mixed : nothing;
  }
  const unsigned stripes = (size - 1) % kBlock / kStripe;
  if (stripe < stripes) all.Add(LoadPair(at), early);
  if (stripe + 8 < stripes) all.Add(LoadPair(at + kBlock / 2), late);
  if (stripe == 0) {
    all.Add(LoadPair(begin + size - kStripe + pair * 16), SecretPair(kLastSecret + pair * 16));
  }
  all.Gather();
  const u64 low = Merged(all.sum, SecretPair(kLowSecret + pair * 16), size * kPrime64_1);
  const u64 high = Merged(all.sum, SecretPair(kHighSecret + pair * 16), ~(size * kPrime64_2));
  const bool zero = !__any_sync(kAllLanes, all.bits != 0);
  if (lane == 0) hashes[index] = zero ? Hash{0, 0} : Hash{high, low};
}

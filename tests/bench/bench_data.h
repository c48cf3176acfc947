// What the store is measured on: bytes as they are in device memory.
#ifndef TESTS_BENCH_BENCH_DATA_H_
#define TESTS_BENCH_BENCH_DATA_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace stasis::bench {

class XorShift {
 public:
  explicit XorShift(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 + 1) {}
  uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }

 private:
  uint64_t state_;
};

inline void FillRandom(std::span<std::byte> out, XorShift& random) {
  for (size_t i = 0; i + 8 <= out.size(); i += 8) {
    uint64_t word = random();
    std::memcpy(out.data() + i, &word, 8);
  }
}

// float32, normally distributed (a sum of four) with the spread of a layer's weights.
inline void FillWeights(std::span<std::byte> out, XorShift& random) {
  for (size_t i = 0; i + 4 <= out.size(); i += 4) {
    uint64_t word = random();
    float sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<float>(word >> (16 * part) & 0xffff) - 32767.5f;
    float weight = sum * (0.02f / 37837.0f);
    std::memcpy(out.data() + i, &weight, 4);
  }
}

// Nine pages of ten are zero.
inline void FillMostlyZero(std::span<std::byte> out, XorShift& random) {
  constexpr size_t kPage = 4096;
  for (size_t i = 0; i < out.size(); i += kPage) {
    std::span<std::byte> page = out.subspan(i, std::min(kPage, out.size() - i));
    if (random() % 10 == 0) {
      FillWeights(page, random);
    } else {
      std::memset(page.data(), 0, page.size());
    }
  }
}

// "incompressible", "weights", "mostly-zero"; false for anything else.
inline bool Fill(const std::string& kind, uint64_t seed, std::span<std::byte> out) {
  XorShift random(seed);
  if (kind == "incompressible")
    FillRandom(out, random);
  else if (kind == "weights")
    FillWeights(out, random);
  else if (kind == "mostly-zero")
    FillMostlyZero(out, random);
  else
    return false;
  return true;
}

}  // namespace stasis::bench

#endif  // TESTS_BENCH_BENCH_DATA_H_

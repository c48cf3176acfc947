#include "softgpu/dnn/dropout.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace softgpu::dnn {
namespace {

// SplitMix64 (Steele, Lea and Flood, 2014): one step of a lane.
constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

void SeedStates(uint64_t seed, DropoutStates* states) {
  for (size_t i = 0; i < DropoutStates::kLanes; ++i) states->lane[i] = Mix(Mix(seed) + kStep * (i + 1));
}

size_t ReserveBytes(const Shape& x) { return (x.Count() + 63) / 64 * 8; }

void DrawMask(float dropout, size_t count, DropoutStates* states, uint8_t* reserve) {
  // Of 2^32 draws, those below the limit drop their element.
  const uint64_t limit = static_cast<uint64_t>(std::llround(static_cast<double>(dropout) * 0x1p32));
  std::memset(reserve, 0, (count + 7) / 8);
  for (size_t i = 0; i < count; ++i) {
    uint64_t& lane = states->lane[i % DropoutStates::kLanes];
    lane += kStep;
    if ((Mix(lane) >> 32) >= limit) reserve[i / 8] |= static_cast<uint8_t>(1u << (i % 8));
  }
}

void ApplyMask(float dropout, const Source& x, const uint8_t* reserve, const Target& y, Arena* arena) {
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T scale = dropout < 1 ? T(1) / (T(1) - static_cast<T>(dropout)) : T(0);
    const T* in = Values<T>(x, arena);
    const Results<T> out(y, {}, arena);
    for (size_t i = 0; i < x.shape.Count(); ++i) {
      out.data()[i] = (reserve[i / 8] >> (i % 8)) & 1 ? in[i] * scale : T(0);
    }
    out.Commit();
  });
}

}  // namespace softgpu::dnn

// Texture fetches (CUDA C++ Programming Guide, texture fetching) and surface accesses.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "softgpu/ptx/exec/half.h"
#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

using Format = TextureView::Format;
using AddressMode = TextureView::Address;

struct Texel {
  float f[4] = {0, 0, 0, 0};
  uint32_t bits[4] = {0, 0, 0, 0};
};

bool IsLayered(Geometry g) { return g == Geometry::kA1d || g == Geometry::kA2d; }

float SrgbToLinear(float v) { return v <= 0.04045f ? v / 12.92f : std::pow((v + 0.055f) / 1.055f, 2.4f); }

// One texture as one lane sees it.
class Sampler {
 public:
  Sampler(const AccessMap& access, const TextureView& view) : access_(access), view_(view) {
    size_[0] = std::max(view.width, 1u);
    size_[1] = std::max(view.height, 1u);
    size_[2] = std::max(view.depth, 1u);
  }

  // False when the texel's memory is not accessible.
  bool Fetch(Geometry g, const int32_t* integers, const float* floats, bool use_floats, Texel* out) {
    unsigned first = IsLayered(g) ? 1 : 0, count = kCoordinates[static_cast<unsigned>(g)] - first;
    layer_ = 0;
    if (first) layer_ = std::clamp<int64_t>(integers[0], 0, std::max<int64_t>(view_.layers, 1) - 1);
    if (!use_floats) {
      int64_t at[3] = {0, 0, 0};
      for (unsigned d = 0; d < count; ++d) at[d] = integers[first + d];
      return Load(at, count, out);
    }
    double position[3] = {0, 0, 0};
    for (unsigned d = 0; d < count; ++d) {
      double v = floats[first + d];
      if (std::isnan(v)) v = 0;
      if (view_.normalized_coords) v = Normalized(v, d);
      position[d] = std::clamp(v, -1e9, 1e9);
    }
    return view_.linear_filter ? Linear(position, count, out) : Nearest(position, count, out);
  }

 private:
  double Normalized(double v, unsigned d) const { return v * size_[d]; }

  bool Nearest(const double* position, unsigned count, Texel* out) {
    int64_t at[3] = {0, 0, 0};
    for (unsigned d = 0; d < count; ++d) at[d] = static_cast<int64_t>(std::floor(position[d]));
    return Load(at, count, out);
  }

  // The fractions have 8 bits, as the guide says.
  bool Linear(const double* position, unsigned count, Texel* out) {
    int64_t base[3] = {0, 0, 0};
    double fraction[3] = {0, 0, 0};
    for (unsigned d = 0; d < count; ++d) {
      double v = position[d] - 0.5;
      base[d] = static_cast<int64_t>(std::floor(v));
      fraction[d] = std::round((v - static_cast<double>(base[d])) * 256) / 256;
    }
    double sum[4] = {0, 0, 0, 0};
    for (unsigned corner = 0; corner < (1u << count); ++corner) {
      int64_t at[3] = {0, 0, 0};
      double weight = 1;
      for (unsigned d = 0; d < count; ++d) {
        bool upper = corner >> d & 1;
        at[d] = base[d] + upper;
        weight *= upper ? fraction[d] : 1 - fraction[d];
      }
      Texel texel;
      if (weight == 0) continue;
      if (!Load(at, count, &texel)) return false;
      for (unsigned c = 0; c < 4; ++c) sum[c] += weight * texel.f[c];
    }
    for (unsigned c = 0; c < 4; ++c) {
      out->f[c] = static_cast<float>(sum[c]);
      std::memcpy(&out->bits[c], &out->f[c], 4);
    }
    return true;
  }

  // Maps a texel index into the texture; false: it lies on the border.
  bool Wrap(int64_t* v, unsigned d) const {
    int64_t n = size_[d];
    if (*v >= 0 && *v < n) return true;
    AddressMode mode = view_.address[d];
    // Wrap and mirror are offered for normalized coordinates only; others are clamped.
    if (!view_.normalized_coords && mode != AddressMode::kBorder) mode = AddressMode::kClamp;
    switch (mode) {
      case AddressMode::kWrap:
        *v = (*v % n + n) % n;
        return true;
      case AddressMode::kMirror: {
        int64_t period = (*v % (2 * n) + 2 * n) % (2 * n);
        *v = period < n ? period : 2 * n - 1 - period;
        return true;
      }
      case AddressMode::kClamp:
        *v = std::clamp<int64_t>(*v, 0, n - 1);
        return true;
      case AddressMode::kBorder:
        return false;
    }
    return false;
  }

  bool Load(const int64_t* where, unsigned count, Texel* out) {
    int64_t at[3] = {where[0], where[1], where[2]};
    bool inside = true;
    for (unsigned d = 0; d < count; ++d) {
      if (view_.linear_memory) {
        inside &= at[d] >= 0 && at[d] < size_[d];
      } else {
        inside &= Wrap(&at[d], d);
      }
    }
    if (!inside) {
      for (unsigned c = 0; c < 4; ++c) {
        out->f[c] = view_.linear_memory ? 0 : view_.border[c];
        out->bits[c] = 0;
        if (view_.format == Format::kFloat) std::memcpy(&out->bits[c], &out->f[c], 4);
      }
      return true;
    }
    unsigned bytes = unsigned{view_.channels} * view_.channel_bytes;
    int64_t slice = IsSliced() ? (view_.layers ? layer_ : at[2]) : 0;
    uint64_t address = view_.data + static_cast<uint64_t>(slice) * view_.slice_pitch +
                       static_cast<uint64_t>(at[1]) * view_.row_pitch + static_cast<uint64_t>(at[0]) * bytes;
    if (!access_.Allows(address, bytes, false)) return false;
    Decode(reinterpret_cast<const uint8_t*>(address), out);
    return true;
  }

  bool IsSliced() const { return view_.layers != 0 || view_.depth != 0; }

  void Decode(const uint8_t* p, Texel* out) const {
    for (unsigned c = 0; c < view_.channels && c < 4; ++c, p += view_.channel_bytes) {
      uint32_t bits = 0;
      std::memcpy(&bits, p, view_.channel_bytes);
      int shift = 32 - 8 * view_.channel_bytes;
      int32_t extended = static_cast<int32_t>(bits << shift) >> shift;
      switch (view_.format) {
        case Format::kFloat:
          out->f[c] = view_.channel_bytes == 2 ? HalfToFloat(static_cast<uint16_t>(bits)) : BitsToFloat(bits);
          std::memcpy(&out->bits[c], &out->f[c], 4);
          continue;
        case Format::kUint:
          out->bits[c] = bits;
          out->f[c] = static_cast<float>(bits);
          if (view_.read_as_float) out->f[c] /= view_.channel_bytes == 1 ? 255.0f : 65535.0f;
          if (view_.srgb && c < 3) out->f[c] = SrgbToLinear(out->f[c]);
          break;
        case Format::kSint:
          out->bits[c] = static_cast<uint32_t>(extended);
          out->f[c] = static_cast<float>(extended);
          if (view_.read_as_float) {
            out->f[c] = std::max(out->f[c] / (view_.channel_bytes == 1 ? 127.0f : 32767.0f), -1.0f);
          }
          break;
      }
    }
  }

  static float BitsToFloat(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return f;
  }

  const AccessMap& access_;
  const TextureView& view_;
  int64_t size_[3];
  int64_t layer_ = 0;
};

const Inst* BadHandle(Warp& w, const Inst* i, unsigned lane, uint64_t handle) {
  char text[80];
  std::snprintf(text, sizeof text, "invalid texture or surface handle 0x%llx",
                static_cast<unsigned long long>(handle));
  return w.Fault(FaultKind::kIllegalAddress, i, lane, text);
}

uint64_t HandleOf(const Warp& w, const Inst* i, unsigned lane) {
  return reinterpret_cast<const uint64_t*>(w.Row(i->refs[0]))[lane];
}

// Where a surface access lies. kOutside: beyond the edges.
enum class Place : uint8_t { kInside, kOutside, kBad };

Place LocateSurface(const Warp& w, const Inst* i, unsigned lane, const TextureView& view, unsigned bytes,
                    uint64_t* address) {
  auto g = static_cast<Geometry>(i->x);
  int64_t c[3] = {0, 0, 0};
  unsigned count = kCoordinates[i->x], first = IsLayered(g) ? 1 : 0;
  for (unsigned n = 0; n < count; ++n) c[n] = reinterpret_cast<const int32_t*>(w.Row(i->refs[1 + n]))[lane];
  int64_t x = c[first], y = count - first > 1 ? c[first + 1] : 0, z = first ? c[0] : count > 2 ? c[2] : 0;
  int64_t row = int64_t{view.width} * view.channels * view.channel_bytes;
  int64_t height = std::max(view.height, 1u);
  int64_t slices = std::max({view.depth, view.layers, 1u});
  if (static_cast<SurfaceMode>(i->z) == SurfaceMode::kClamp && row >= bytes) {
    x = std::clamp<int64_t>(x, 0, row - bytes);
    y = std::clamp<int64_t>(y, 0, height - 1);
    z = std::clamp<int64_t>(z, 0, slices - 1);
  }
  if (x < 0 || x + bytes > row || y < 0 || y >= height || z < 0 || z >= slices) return Place::kOutside;
  *address = view.data + static_cast<uint64_t>(z) * view.slice_pitch +
             static_cast<uint64_t>(y) * view.row_pitch + static_cast<uint64_t>(x);
  return *address % i->y != 0 ? Place::kBad : Place::kInside;
}

const Inst* SurfaceAccess(Warp& w, const Inst* i, bool store) {
  unsigned elements = static_cast<unsigned>(i->imm), bytes = elements * i->y;
  unsigned lane_bytes = std::max<unsigned>(i->y, 2);
  const Ref* values = i->refs + 1 + kCoordinates[i->x];
  for (uint32_t m = w.mask; m != 0; m &= m - 1) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(m));
    uint64_t handle = HandleOf(w, i, lane), address = 0;
    const TextureView* view = w.grid->config().services->FindSurface(handle);
    if (!view) return BadHandle(w, i, lane, handle);
    Place place = LocateSurface(w, i, lane, *view, bytes, &address);
    bool trap = static_cast<SurfaceMode>(i->z) == SurfaceMode::kTrap;
    bool denied = place == Place::kInside && !w.access->Allows(address, bytes, store);
    if (place == Place::kBad || denied || (place == Place::kOutside && trap)) {
      return w.Fault(place == Place::kBad ? FaultKind::kMisalignedAddress : FaultKind::kIllegalAddress, i,
                     lane,
                     store ? "surface write outside of the surface" : "surface read outside of the surface");
    }
    for (unsigned e = 0; e < elements; ++e) {
      auto* at = reinterpret_cast<uint8_t*>(w.Row(values[e])) + lane * lane_bytes;
      auto* texel = reinterpret_cast<uint8_t*>(address) + e * i->y;
      if (store) {
        if (place == Place::kInside) std::memcpy(texel, at, i->y);
        continue;
      }
      std::memset(at, 0, lane_bytes);
      if (place == Place::kInside) std::memcpy(at, texel, i->y);
    }
  }
  return i + 1;
}

}  // namespace

const Inst* OpTexture(Warp& w, const Inst* i) {
  unsigned count = kCoordinates[i->x];
  const Ref* results = i->refs + 1 + count;
  for (uint32_t m = w.mask; m != 0; m &= m - 1) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(m));
    uint64_t handle = HandleOf(w, i, lane);
    const TextureView* view = w.grid->config().services->FindTexture(handle);
    if (!view) return BadHandle(w, i, lane, handle);
    int32_t integers[3] = {0, 0, 0};
    float floats[3] = {0, 0, 0};
    for (unsigned n = 0; n < count; ++n) {
      std::memcpy(&integers[n], reinterpret_cast<const uint8_t*>(w.Row(i->refs[1 + n])) + 4 * lane, 4);
      std::memcpy(&floats[n], &integers[n], 4);
    }
    Texel texel;
    if (!Sampler(*w.access, *view).Fetch(static_cast<Geometry>(i->x), integers, floats, i->y, &texel)) {
      return w.Fault(FaultKind::kIllegalAddress, i, lane, "texture fetch from memory that is not accessible");
    }
    for (unsigned c = 0; c < 4; ++c) {
      auto* at = reinterpret_cast<uint8_t*>(w.Row(results[c])) + 4 * lane;
      if (i->z) {
        std::memcpy(at, &texel.bits[c], 4);
      } else {
        std::memcpy(at, &texel.f[c], 4);
      }
    }
  }
  return i + 1;
}

const Inst* OpSurfaceLoad(Warp& w, const Inst* i) { return SurfaceAccess(w, i, false); }

const Inst* OpSurfaceStore(Warp& w, const Inst* i) { return SurfaceAccess(w, i, true); }

}  // namespace softgpu::exec

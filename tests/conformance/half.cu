// Half and bfloat16: device arithmetic against one rounding of the exact (double) result, bit for bit;
// conversions over all 65536 patterns.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "check.h"

using namespace check;

// Rounds to nearest even into a format with `precision` significant bits and the exponent range of IEEE
// binary16 or bfloat16, independent of the toolkit's own host code. Exact because every operand product and
// sum fits in a double, except for sums of values far apart, where double's own rounding cannot reach a tie.
uint16_t RoundTo(double value, int precision, int min_exponent, int max_exponent, int exponent_bits) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int mantissa_bits = precision - 1;
  uint16_t infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  if (std::isnan(value)) return 0x7fff;
  double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < min_exponent) exponent = min_exponent;
  double scaled = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  if (scaled == std::ldexp(1.0, precision)) {
    scaled /= 2;
    ++exponent;
  }
  if (exponent > max_exponent) return sign | infinity;
  uint32_t integer = static_cast<uint32_t>(scaled);
  if (integer < (1u << mantissa_bits)) return sign | static_cast<uint16_t>(integer);
  uint32_t biased = static_cast<uint32_t>(exponent - min_exponent + 1);
  return sign | static_cast<uint16_t>(biased << mantissa_bits | (integer & ((1u << mantissa_bits) - 1)));
}

struct HalfFormat {
  using Type = __half;
  static constexpr const char* kName = "f16";
  static uint16_t Round(double value) { return RoundTo(value, 11, -14, 15, 5); }
  static double Value(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                       : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                      : std::ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
  }
};
struct Bf16Format {
  using Type = __nv_bfloat16;
  static constexpr const char* kName = "bf16";
  static uint16_t Round(double value) { return RoundTo(value, 8, -126, 127, 8); }
  static double Value(uint16_t bits) {
    uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
};

template <typename Type>
__device__ Type FromBits(uint16_t bits) {
  Type value;
  memcpy(&value, &bits, 2);
  return value;
}
template <typename Type>
__device__ uint16_t ToBits(Type value) {
  uint16_t bits;
  memcpy(&bits, &value, 2);
  return bits;
}

struct Eight {
  uint16_t v[8];
};
template <typename Format>
struct Arithmetic {
  __device__ Eight operator()(uint16_t x, uint16_t y) const {
    using Type = typename Format::Type;
    Type a = FromBits<Type>(x), b = FromBits<Type>(y);
    Eight r;
    r.v[0] = ToBits<Type>(__hadd(a, b));
    r.v[1] = ToBits<Type>(__hsub(a, b));
    r.v[2] = ToBits<Type>(__hmul(a, b));
    r.v[3] = ToBits<Type>(__hfma(a, b, a));
    r.v[4] = ToBits<Type>(__hneg(a));
    r.v[5] = ToBits<Type>(__habs(b));
    r.v[6] = __hlt(a, b) | __hle(a, b) << 1 | __hgt(a, b) << 2 | __hge(a, b) << 3 | __heq(a, b) << 4 |
             __hne(a, b) << 5;
    r.v[7] = ToBits<Type>(__hmax(a, b));
    return r;
  }
};

bool IsNanBits(double value) { return std::isnan(value); }

template <typename Format>
void SameBits(const char* what, uint16_t got, double want, const std::string& input) {
  bool same = IsNanBits(want) ? IsNanBits(Format::Value(got)) : got == Format::Round(want);
  Report(same, std::string(what) + "." + Format::kName,
         "got " + Text(got) + ", want " + Text(Format::Round(want)) + " for " + input);
}

template <typename Format>
void CheckArithmetic() {
  std::vector<uint16_t> a, b;
  std::mt19937 random(7);
  uint16_t edges[] = {0,      0x8000, 1,      0x8001, 0x3c00, 0xbc00, 0x3f80, 0xbf80, 0x7bff, 0xfbff, 0x7c00,
                      0xfc00, 0x7e00, 0x0400, 0x03ff, 0x7f80, 0xff80, 0x7fc0, 0x0080, 0x007f, 0x4200, 0x4248};
  for (uint16_t x : edges) {
    for (uint16_t y : edges) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  for (int i = 0; i < 20000; ++i) {
    a.push_back(static_cast<uint16_t>(random()));
    uint16_t near = static_cast<uint16_t>((a.back() & 0x7c00) | (random() & 0x83ff));
    b.push_back(i % 2 ? static_cast<uint16_t>(random()) : near);
  }
  std::vector<Eight> got = RunTwo<Arithmetic<Format>, Eight>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    double x = Format::Value(a[i]), y = Format::Value(b[i]);
    std::string input = Text(a[i]) + ", " + Text(b[i]);
    SameBits<Format>("add", got[i].v[0], x + y, input);
    SameBits<Format>("sub", got[i].v[1], x - y, input);
    SameBits<Format>("mul", got[i].v[2], x * y, input);
    // The exact a*b+a may not fit a double; where |b| is moderate a long double holds it, and those that
    // narrow without loss are compared.
    long double exact = static_cast<long double>(x) * y + x;
    double narrowed = static_cast<double>(exact);
    if (!(std::fabs(y) > 0x1p40) && (narrowed == exact || std::isnan(narrowed)))
      SameBits<Format>("fma", got[i].v[3], narrowed, input);
    if (!std::isnan(x))
      Same(std::string("neg.") + Format::kName, got[i].v[4], static_cast<uint16_t>(a[i] ^ 0x8000), input);
    if (!std::isnan(y))
      Same(std::string("abs.") + Format::kName, got[i].v[5], static_cast<uint16_t>(b[i] & 0x7fff), input);
    uint16_t order =
        static_cast<uint16_t>((x < y) | (x <= y) << 1 | (x > y) << 2 | (x >= y) << 3 | (x == y) << 4 |
                              ((x != y) && !std::isnan(x) && !std::isnan(y)) << 5);
    Same(std::string("compare.") + Format::kName, got[i].v[6], order, input);
    if (x != y && !std::isnan(x) && !std::isnan(y))
      SameBits<Format>("max", got[i].v[7], std::fmax(x, y), input);
  }
}

template <typename Format>
struct Widen {
  __device__ float operator()(uint16_t bits) const {
    return static_cast<float>(FromBits<typename Format::Type>(bits));
  }
};
template <typename Format>
struct Narrow {
  __device__ uint16_t operator()(float value) const {
    if constexpr (std::is_same_v<Format, HalfFormat>)
      return ToBits(__float2half_rn(value));
    else
      return ToBits(__float2bfloat16_rn(value));
  }
};
template <typename Format>
void CheckConversions() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  std::vector<float> wide = RunOne<Widen<Format>, float>(all);
  for (size_t i = 0; i < all.size(); ++i)
    Same(std::string("widen.") + Format::kName, wide[i], static_cast<float>(Format::Value(all[i])),
         Text(all[i]));
  std::vector<float> values = Values<float>(20000, 9);
  for (int i = 0; i < 65536; i += 3)
    values.push_back(static_cast<float>(Format::Value(static_cast<uint16_t>(i)) * 1.00048828125));
  std::vector<uint16_t> narrow = RunOne<Narrow<Format>, uint16_t>(values);
  for (size_t i = 0; i < values.size(); ++i)
    SameBits<Format>("narrow", narrow[i], values[i], Text(values[i]));
}

// Packed pairs and integers.
struct Packed {
  __device__ uint4 operator()(unsigned x, unsigned y) const {
    __half2 a, b;
    memcpy(&a, &x, 4);
    memcpy(&b, &y, 4);
    __half2 results[3] = {__hadd2(a, b), __hmul2(a, b), __hfma2(a, b, b)};
    uint4 r;
    memcpy(&r.x, &results[0], 4);
    memcpy(&r.y, &results[1], 4);
    memcpy(&r.z, &results[2], 4);
    r.w = static_cast<unsigned>(__half2int_rz(__low2half(a))) ^
          static_cast<unsigned>(__half2int_rn(__high2half(b)));
    return r;
  }
};
void CheckPacked() {
  std::vector<unsigned> a, b;
  std::mt19937 random(13);
  for (int i = 0; i < 6000; ++i) {
    a.push_back(random());
    b.push_back(random());
  }
  std::vector<uint4> got = RunTwo<Packed, uint4>(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    for (int half = 0; half < 2; ++half) {
      int shift = 16 * half;
      double x = HalfFormat::Value(static_cast<uint16_t>(a[i] >> shift)),
             y = HalfFormat::Value(static_cast<uint16_t>(b[i] >> shift));
      std::string input = Text(a[i]) + ", " + Text(b[i]);
      SameBits<HalfFormat>("add2", static_cast<uint16_t>(got[i].x >> shift), x + y, input);
      SameBits<HalfFormat>("mul2", static_cast<uint16_t>(got[i].y >> shift), x * y, input);
    }
    double low = HalfFormat::Value(static_cast<uint16_t>(a[i])),
           high = HalfFormat::Value(static_cast<uint16_t>(b[i] >> 16));
    if (std::isfinite(low) && std::isfinite(high)) {
      Same("half2int", got[i].w,
           static_cast<unsigned>(static_cast<int>(std::trunc(low))) ^
               static_cast<unsigned>(static_cast<int>(std::nearbyint(high))));
    }
  }
}

int main() {
  CheckArithmetic<HalfFormat>();
  CheckConversions<HalfFormat>();
  CheckArithmetic<Bf16Format>();
  CheckConversions<Bf16Format>();
  CheckPacked();
  return Finish("half");
}

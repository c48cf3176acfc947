// Conversions against long double, in which every source is exact, and against tables of the small formats:
// all 65536 patterns of the 16-bit types, edges and random values of the others.
#include <gtest/gtest.h>

#include "softgpu/ptx/exec/alu_reference.h"

namespace softgpu::exec {
namespace {

using Exact = long double;

// The source types: how a lane becomes an exact value, and which lanes are tried.
struct HalfLane {
  uint16_t code;
};
struct BfloatLane {
  uint16_t code;
};
template <typename T>
Exact Value(T v) {
  return v;
}
template <>
Exact Value(HalfLane v) {
  return HalfFormat().Value(v.code);
}
template <>
Exact Value(BfloatLane v) {
  return BfloatFormat().Value(v.code);
}
template <typename T>
std::string Name() {
  if constexpr (std::is_same_v<T, HalfLane>)
    return ".f16";
  else if constexpr (std::is_same_v<T, BfloatLane>)
    return ".bf16";
  else
    return std::string(std::is_floating_point_v<T> ? ".f"
                       : std::is_signed_v<T>       ? ".s"
                                                   : ".u") +
           std::to_string(8 * sizeof(T));
}
// 8-bit values in their 16-bit lanes, with rubbish above on input.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 1, uint16_t, T>;
template <typename T>
Lane<T> ToLane(T v) {
  if constexpr (sizeof(T) == 1)
    return static_cast<uint16_t>(0xa500 | static_cast<uint8_t>(v));
  else
    return v;
}
template <typename T>
T FromLane(Lane<T> l) {
  return static_cast<T>(l);
}
template <>
HalfLane FromLane<HalfLane>(HalfLane l) {
  return l;
}
template <>
BfloatLane FromLane<BfloatLane>(BfloatLane l) {
  return l;
}

template <typename T>
std::vector<T> Values() {
  std::vector<T> values;
  if constexpr (std::is_same_v<T, HalfLane> || std::is_same_v<T, BfloatLane>) {
    for (uint32_t code = 0; code < 65536; ++code) values.push_back(T{static_cast<uint16_t>(code)});
  } else {
    values = Edges<T>(3000);
    if constexpr (std::is_floating_point_v<T>) {
      // Around integers' ends and halves, and around every half-precision value and the middles between them.
      for (int e = 0; e <= 64; ++e) {
        for (T offset : {T(0), T(0.25), T(0.5), T(0.75), T(1), T(1.5), T(2.5), T(-0.5), T(-1), T(-1.5)}) {
          for (T sign : {T(1), T(-1)}) values.push_back(sign * (std::ldexp(T(1), e) + offset));
        }
      }
      for (uint32_t code = 0; code < 0x7c00; code += 3) {
        T low = static_cast<T>(HalfFormat().Value(code)), high = static_cast<T>(HalfFormat().Value(code + 1));
        T middle = (low + high) / 2;
        for (T v : {low, middle, std::nextafter(middle, T(0)), std::nextafter(middle, T(INFINITY))})
          values.push_back(code & 1 ? -v : v);
      }
    }
  }
  return values;
}
template <typename T>
bool Flushes(T v) {
  if constexpr (std::is_same_v<T, float>)
    return std::fpclassify(v) == FP_SUBNORMAL;
  else
    return false;
}

// Runs `name` on all values of From; expect(value) gives the destination's lane.
template <typename D, typename From, typename Expect>
void Check(const std::string& name, Expect expect) {
  static const std::vector<From> values = Values<From>();
  Batch<D, Lane<From>, Lane<From>, Lane<From>> batch(name);
  auto check = [&](D got, Lane<From> a, Lane<From>, Lane<From>) {
    D expected = expect(FromLane<From>(a));
    ASSERT_EQ(std::memcmp(&got, &expected, sizeof got), 0)
        << name << " of " << Value(FromLane<From>(a)) << " got " << +got << " not " << +expected;
  };
  for (From v : values) {
    batch.Add(ToLane(v), Lane<From>{}, Lane<From>{}, check);
    if (testing::Test::HasFatalFailure()) return;
  }
  batch.Flush(check);
}

Exact Integral(Exact v, int fe) {
  switch (fe) {
    case FE_TOWARDZERO:
      return std::trunc(v);
    case FE_DOWNWARD:
      return std::floor(v);
    case FE_UPWARD:
      return std::ceil(v);
    default:
      return std::nearbyint(v);
  }
}
std::string IntegralWord(const Mode& mode) { return std::string(mode.word) + "i"; }

// --- Integers.
template <typename To>
std::conditional_t<sizeof(To) == 1, LaneOf<To>, To> Widened(To v) {
  return v;
}

template <typename To, typename From>
void CheckIntegers() {
  if constexpr (std::is_integral_v<From>) {
    using D = decltype(Widened(To{}));
    Check<D, From>("cvt" + Name<To>() + Name<From>(), [](From v) { return Widened(static_cast<To>(v)); });
    Check<D, From>("cvt.sat" + Name<To>() + Name<From>(), [](From v) {
      return Widened(static_cast<To>(
          std::clamp<__int128>(v, std::numeric_limits<To>::min(), std::numeric_limits<To>::max())));
    });
  } else {
    using D = decltype(Widened(To{}));
    for (const Mode& mode : kModes) {
      for (bool flush : {false, true}) {
        if (flush && !std::is_same_v<From, float>) continue;
        Check<D, From>(
            "cvt" + IntegralWord(mode) + (flush ? ".ftz" : "") + Name<To>() + Name<From>(), [&](From v) {
              Exact exact = Value(v);
              if (std::isnan(exact)) {
                bool zero = !std::is_same_v<From, double> && sizeof(To) != 8;
                return Widened(zero ? To{0} : static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1)));
              }
              if (flush && Flushes(v)) exact = 0;
              exact = Integral(exact, mode.fe);
              if (exact >= static_cast<Exact>(std::numeric_limits<To>::max()))
                return Widened(std::numeric_limits<To>::max());
              if (exact <= static_cast<Exact>(std::numeric_limits<To>::min()))
                return Widened(std::numeric_limits<To>::min());
              return Widened(static_cast<To>(exact));
            });
      }
    }
  }
}
template <typename From>
void CheckToAllIntegers() {
  CheckIntegers<uint8_t, From>();
  CheckIntegers<int8_t, From>();
  CheckIntegers<uint16_t, From>();
  CheckIntegers<int16_t, From>();
  CheckIntegers<uint32_t, From>();
  CheckIntegers<int32_t, From>();
  CheckIntegers<uint64_t, From>();
  CheckIntegers<int64_t, From>();
}

// --- Floating point results.
uint32_t Single(Exact v, int fe) {
  if (std::isnan(v)) return kNanF32;
  volatile Exact from = v;
  InRounding rounding(fe);
  volatile float r = static_cast<float>(from);
  return Bits<uint32_t>(float{r});
}
uint64_t Double(Exact v, int fe) {
  volatile Exact from = v;
  InRounding rounding(fe);
  volatile double r = static_cast<double>(from);
  return Bits<uint64_t>(double{r});
}
uint16_t Small(const SmallFormat& format, Exact v, int fe, bool satfinite = false) {
  return static_cast<uint16_t>(format.Round(v, fe, satfinite, std::signbit(v)));
}
Exact Unit(Exact v) { return v > 0 ? std::min<Exact>(v, 1) : 0; }
Exact Relu(Exact v) { return v > 0 || std::isnan(v) ? v : 0; }

template <typename From>
void CheckIntegerToFloats() {
  for (const Mode& mode : kModes) {
    std::string w = std::string("cvt") + mode.word;
    Check<uint32_t, From>(w + ".f32" + Name<From>(), [&](From v) { return Single(Value(v), mode.fe); });
    Check<uint64_t, From>(w + ".f64" + Name<From>(), [&](From v) { return Double(Value(v), mode.fe); });
    Check<uint16_t, From>(w + ".f16" + Name<From>(),
                          [&](From v) { return Small(HalfFormat(), Value(v), mode.fe); });
    Check<uint16_t, From>(w + ".bf16" + Name<From>(),
                          [&](From v) { return Small(BfloatFormat(), Value(v), mode.fe); });
  }
  Check<uint32_t, From>("cvt.rn.sat.f32" + Name<From>(),
                        [&](From v) { return Single(Unit(Value(v)), FE_TONEAREST); });
}
template <typename From>
void CheckInteger() {
  CheckToAllIntegers<From>();
  CheckIntegerToFloats<From>();
}
TEST(AluConvertTest, FromBytes) {
  CheckInteger<uint8_t>();
  CheckInteger<int8_t>();
}
TEST(AluConvertTest, FromShorts) {
  CheckInteger<uint16_t>();
  CheckInteger<int16_t>();
}
TEST(AluConvertTest, FromWords) {
  CheckInteger<uint32_t>();
  CheckInteger<int32_t>();
}
TEST(AluConvertTest, FromLongs) {
  CheckInteger<uint64_t>();
  CheckInteger<int64_t>();
}
TEST(AluConvertTest, ToIntegersFromAllHalves) { CheckToAllIntegers<HalfLane>(); }
TEST(AluConvertTest, ToIntegersFromAllBfloats) { CheckToAllIntegers<BfloatLane>(); }
TEST(AluConvertTest, ToIntegersFromSingle) { CheckToAllIntegers<float>(); }
TEST(AluConvertTest, ToIntegersFromDouble) { CheckToAllIntegers<double>(); }

TEST(AluConvertTest, WideningOfAllHalves) {
  Check<uint32_t, HalfLane>("cvt.f32.f16", [](HalfLane v) { return Single(Value(v), FE_TONEAREST); });
  Check<uint32_t, BfloatLane>("cvt.f32.bf16", [](BfloatLane v) { return Single(Value(v), FE_TONEAREST); });
  Check<uint32_t, HalfLane>("cvt.sat.f32.f16",
                            [](HalfLane v) { return Single(Unit(Value(v)), FE_TONEAREST); });
  Check<uint16_t, HalfLane>("cvt.sat.f16.f16",
                            [](HalfLane v) { return Small(HalfFormat(), Unit(Value(v)), FE_TONEAREST); });
  Batch<uint64_t, uint16_t, uint16_t, uint16_t> wide("cvt.f64.f16");
  auto check = [](uint64_t got, uint16_t a, uint16_t, uint16_t) {
    double expected = HalfFormat().Value(a);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(Bits<double>(got)));
    else
      ASSERT_EQ(got, Bits<uint64_t>(expected));
  };
  for (uint32_t code = 0; code < 65536; ++code) wide.Add(static_cast<uint16_t>(code), 0, 0, check);
}

// To one format from another in all modes; relu and satfinite where PTX has them.
template <typename From>
void CheckNarrowing(const std::string& name, const SmallFormat& format) {
  for (const Mode& mode : kModes) {
    std::string w = std::string("cvt") + mode.word;
    Check<uint16_t, From>(w + name + Name<From>(), [&](From v) { return Small(format, Value(v), mode.fe); });
    Check<uint16_t, From>(w + ".relu" + name + Name<From>(),
                          [&](From v) { return Small(format, Relu(Value(v)), mode.fe); });
    Check<uint16_t, From>(w + ".satfinite" + name + Name<From>(),
                          [&](From v) { return Small(format, Value(v), mode.fe, true); });
    Check<uint16_t, From>(w + ".sat" + name + Name<From>(),
                          [&](From v) { return Small(format, Unit(Value(v)), mode.fe); });
  }
}
TEST(AluConvertTest, Narrowing) {
  CheckNarrowing<float>(".f16", HalfFormat());
  CheckNarrowing<float>(".bf16", BfloatFormat());
  CheckNarrowing<double>(".f16", HalfFormat());
  CheckNarrowing<double>(".bf16", BfloatFormat());
  CheckNarrowing<BfloatLane>(".f16", HalfFormat());
  CheckNarrowing<HalfLane>(".bf16", BfloatFormat());
}
TEST(AluConvertTest, BetweenSingleAndDouble) {
  for (const Mode& mode : kModes) {
    for (bool flush : {false, true}) {
      std::string w = std::string("cvt") + mode.word + (flush ? ".ftz" : "");
      auto single = [&](Exact v) {
        uint32_t r = Single(v, mode.fe);
        return flush ? Bits<uint32_t>(FlushF32(Bits<float>(r))) : r;
      };
      Check<uint32_t, double>(w + ".f32.f64", [&](double v) { return single(v); });
      Check<uint32_t, double>(w + ".sat.f32.f64", [&](double v) { return single(Unit(v)); });
    }
  }
  auto wide = [](float v) {
    return std::isnan(v) ? Bits<uint64_t>(double{v}) | uint64_t{1} << 51 : Double(v, FE_TONEAREST);
  };
  Check<uint64_t, float>("cvt.f64.f32", wide);
  Check<uint64_t, float>("cvt.ftz.f64.f32", [&](float v) { return wide(FlushF32(v)); });
}

TEST(AluConvertTest, ToIntegralValues) {
  for (const Mode& mode : kModes) {
    std::string w = "cvt" + IntegralWord(mode);
    auto rounded = [&](Exact v) { return std::copysign(Integral(v, mode.fe), v); };
    Check<uint16_t, HalfLane>(
        w + ".f16.f16", [&](HalfLane v) { return Small(HalfFormat(), rounded(Value(v)), FE_TONEAREST); });
    Check<uint16_t, BfloatLane>(w + ".bf16.bf16", [&](BfloatLane v) {
      return Small(BfloatFormat(), rounded(Value(v)), FE_TONEAREST);
    });
    Check<uint32_t, float>(w + ".f32.f32", [&](float v) { return Single(rounded(v), FE_TONEAREST); });
    Check<uint32_t, float>(w + ".ftz.f32.f32",
                           [&](float v) { return Single(rounded(FlushF32(v)), FE_TONEAREST); });
    Check<uint32_t, float>(w + ".sat.f32.f32",
                           [&](float v) { return Single(Unit(rounded(v)), FE_TONEAREST); });
    Check<uint64_t, double>(w + ".f64.f64", [&](double v) {
      return std::isnan(v) ? Bits<uint64_t>(v) | uint64_t{1} << 51 : Double(rounded(v), FE_TONEAREST);
    });
  }
  Check<uint32_t, float>("cvt.sat.f32.f32", [](float v) { return Single(Unit(v), FE_TONEAREST); });
  Check<uint32_t, float>("cvt.ftz.sat.f32.f32",
                         [](float v) { return Single(Unit(FlushF32(v)), FE_TONEAREST); });
}

TEST(AluConvertTest, Tf32) {
  // tf32 is single precision with 10 mantissa bits: the single is cut at a multiple of 2^13 units.
  auto expect = [](float v, int fe, bool away, bool relu, bool finite) {
    if (std::isnan(v)) return kNanF32;
    if (relu && std::signbit(v)) return 0u;
    uint32_t magnitude = Bits<uint32_t>(std::fabs(v)), low = magnitude / 8192 * 8192, rest = magnitude - low;
    if (std::isfinite(v)) {
      bool up =
          away ? rest >= 4096 : fe == FE_TONEAREST && (rest > 4096 || (rest == 4096 && low / 8192 % 2 == 1));
      magnitude = low + (up ? 8192 : 0);
    }
    if (finite && magnitude >= 0x7f800000) magnitude = 0x7f800000 - 8192;
    return magnitude | (std::signbit(v) ? 0x80000000u : 0u);
  };
  Check<uint32_t, float>("cvt.rna.tf32.f32", [&](float v) { return expect(v, 0, true, false, false); });
  Check<uint32_t, float>("cvt.rna.satfinite.tf32.f32",
                         [&](float v) { return expect(v, 0, true, false, true); });
  Check<uint32_t, float>("cvt.rn.tf32.f32",
                         [&](float v) { return expect(v, FE_TONEAREST, false, false, false); });
  Check<uint32_t, float>("cvt.rn.relu.tf32.f32",
                         [&](float v) { return expect(v, FE_TONEAREST, false, true, false); });
  Check<uint32_t, float>("cvt.rz.satfinite.tf32.f32",
                         [&](float v) { return expect(v, FE_TOWARDZERO, false, false, true); });
}

// --- Packed.
void CheckPair(const std::string& name, const SmallFormat& format, int fe, bool relu, bool satfinite) {
  static const std::vector<float> values = Values<float>();
  Batch<uint32_t, float, float, float> batch(name);
  auto check = [&](uint32_t got, float a, float b, float) {
    uint32_t high = Small(format, relu ? Relu(a) : a, fe, satfinite),
             low = Small(format, relu ? Relu(b) : b, fe, satfinite);
    ASSERT_EQ(got, high << 16 | low) << name << " " << a << " " << b;
  };
  for (size_t i = 0; i < values.size(); ++i) batch.Add(values[i], values[values.size() - 1 - i], 0, check);
  batch.Flush(check);
}
TEST(AluConvertTest, PairsOfHalves) {
  for (bool relu : {false, true}) {
    for (bool finite : {false, true}) {
      for (const Mode& mode : {kModes[0], kModes[1]}) {
        std::string w = std::string("cvt") + mode.word + (relu ? ".relu" : "") + (finite ? ".satfinite" : "");
        CheckPair(w + ".f16x2.f32", HalfFormat(), mode.fe, relu, finite);
        CheckPair(w + ".bf16x2.f32", BfloatFormat(), mode.fe, relu, finite);
      }
    }
  }
}
TEST(AluConvertTest, EightBitFloats) {
  struct Format {
    const char* name;
    SmallFormat values;
  };
  const Format formats[] = {{"e4m3x2", SmallFormat(8, 4, true)}, {"e5m2x2", SmallFormat(8, 5, false)}};
  static const std::vector<float> values = Values<float>();
  for (const Format& f : formats) {
    EXPECT_EQ(f.values.Value(f.values.largest()), std::string(f.name) == "e4m3x2" ? 448 : 57344);
    for (bool relu : {false, true}) {
      std::string w = std::string("cvt.rn.satfinite") + (relu ? ".relu." : ".") + f.name;
      auto code = [&](Exact v) {
        return f.values.Round(relu ? Relu(v) : v, FE_TONEAREST, true, std::signbit(v) && !relu);
      };
      Batch<uint16_t, float, float, float> from_single(w + ".f32");
      auto check_single = [&](uint16_t got, float a, float b, float) {
        ASSERT_EQ(got, code(a) << 8 | code(b)) << w << " " << a << " " << b;
      };
      for (size_t i = 0; i < values.size(); ++i)
        from_single.Add(values[i], values[values.size() - 1 - i], 0, check_single);
      from_single.Flush(check_single);
      Batch<uint16_t, uint32_t, uint32_t, uint32_t> from_half(w + ".f16x2");
      Batch<uint32_t, uint16_t, uint16_t, uint16_t> to_half(std::string("cvt.rn") + (relu ? ".relu" : "") +
                                                            ".f16x2." + f.name);
      auto check_half = [&](uint16_t got, uint32_t a, uint32_t, uint32_t) {
        ASSERT_EQ(got, code(HalfFormat().Value(a >> 16)) << 8 | code(HalfFormat().Value(a & 0xffff)));
      };
      auto half = [&](uint32_t c) {
        Exact v = f.values.Value(c);
        return uint32_t{Small(HalfFormat(), relu ? Relu(v) : v, FE_TONEAREST)};
      };
      auto check_to = [&](uint32_t got, uint16_t a, uint16_t, uint16_t) {
        ASSERT_EQ(got, half(a >> 8) << 16 | half(a & 0xff)) << a;
      };
      for (uint32_t c = 0; c < 65536; ++c) {
        from_half.Add(c << 16 | (c ^ 0x8421), 0, 0, check_half);
        to_half.Add(static_cast<uint16_t>(c), 0, 0, check_to);
      }
      from_half.Flush(check_half);
      to_half.Flush(check_to);
    }
  }
}

TEST(AluConvertTest, PackedIntegers) {
  auto check = [](const std::string& name, auto type, int bits) {
    using T = decltype(type);
    Batch<uint32_t, int32_t, int32_t, uint32_t> batch(name);
    auto expect = [&](uint32_t got, int32_t a, int32_t b, uint32_t c) {
      auto cut = [&](int32_t v) {
        int32_t s = std::clamp<int32_t>(v, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
        return static_cast<uint32_t>(s) & ((1u << bits) - 1);
      };
      uint32_t low = cut(a) << bits | cut(b);
      ASSERT_EQ(got, bits == 8 ? c << 16 | low : low) << name << " " << a << " " << b;
    };
    for (int32_t a : Edges<int32_t>(20)) {
      for (int32_t b : Edges<int32_t>(20)) batch.Add(a, b, static_cast<uint32_t>(a ^ b), expect);
    }
    batch.Flush(expect);
  };
  check("cvt.pack.sat.u8.s32.b32", uint8_t{}, 8);
  check("cvt.pack.sat.s8.s32.b32", int8_t{}, 8);
  check("cvt.pack.sat.u16.s32", uint16_t{}, 16);
  check("cvt.pack.sat.s16.s32", int16_t{}, 16);
}

}  // namespace
}  // namespace softgpu::exec

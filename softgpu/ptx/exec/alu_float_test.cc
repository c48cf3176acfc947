// Single and double precision against the host's arithmetic, one value at a time, in the host's rounding
// modes.
#include <gtest/gtest.h>

#include <functional>

#include "softgpu/ptx/exec/alu_reference.h"

namespace softgpu::exec {
namespace {

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
constexpr bool kNoFlush = false;

// What a result becomes: NaN rules, flushing, saturation.
float Finish(float r, float, float, float, bool flush, bool sat) {
  if (r != r) return sat ? 0.0f : Bits<float>(kNanF32);
  if (flush) r = FlushF32(r);
  return sat ? (r <= 0 ? 0.0f : std::min(r, 1.0f)) : r;
}
double Finish(double r, double a, double b, double c, bool, bool) {
  for (double v : {a, b, c}) {
    if (v != v) return Bits<double>(Bits<uint64_t>(v) | uint64_t{1} << 51);
  }
  return r != r ? Bits<double>(uint64_t{0xfff8} << 48) : r;
}
float Flush(float v, bool flush) { return flush ? FlushF32(v) : v; }
double Flush(double v, bool) { return v; }

template <typename T>
struct Operation {
  const char* opcode;
  unsigned sources;
  bool saturates;
  T (*compute)(T, T, T);
};
template <typename T>
const std::vector<Operation<T>>& Operations() {
  static const std::vector<Operation<T>> operations = {
      {"add", 2, true,
       [](T a, T b, T) {
         volatile T x = a, y = b;
         volatile T r = x + y;
         return T{r};
       }},
      {"sub", 2, true,
       [](T a, T b, T) {
         volatile T x = a, y = b;
         volatile T r = x - y;
         return T{r};
       }},
      {"mul", 2, true,
       [](T a, T b, T) {
         volatile T x = a, y = b;
         volatile T r = x * y;
         return T{r};
       }},
      {"div", 2, false,
       [](T a, T b, T) {
         volatile T x = a, y = b;
         volatile T r = x / y;
         return T{r};
       }},
      {"fma", 3, true,
       [](T a, T b, T c) {
         volatile T x = a, y = b, z = c;
         volatile T r = std::fma(x, y, z);
         return T{r};
       }},
      {"sqrt", 1, false,
       [](T a, T, T) {
         volatile T x = a;
         volatile T r = std::sqrt(x);
         return T{r};
       }},
      {"rcp", 1, false,
       [](T a, T, T) {
         volatile T x = a, one = 1;
         volatile T r = one / x;
         return T{r};
       }},
  };
  return operations;
}

template <typename T>
void CheckOperation(const Operation<T>& o, const Mode& mode, bool flush, bool sat) {
  std::string name = std::string(o.opcode) + mode.word + (flush ? ".ftz" : "") + (sat ? ".sat" : "") +
                     (sizeof(T) == 4 ? ".f32" : ".f64");
  std::vector<T> as = Edges<T>(o.sources == 3 ? 4 : 60), one = {0};
  std::vector<T> few;
  for (size_t i = 0; i < as.size(); i += 7) few.push_back(as[i]);
  const std::vector<T>& bs = o.sources == 3 ? few : o.sources == 2 ? as : one;
  const std::vector<T>& cs = o.sources == 3 ? few : one;
  Batch<T, T, T, T> batch(name);
  auto check = [&](T got, T a, T b, T c) {
    T expected;
    {
      InRounding rounding(mode.fe);
      expected = o.compute(Flush(a, flush), Flush(b, flush), Flush(c, flush));
    }
    expected = Finish(expected, a, o.sources > 1 ? b : T{0}, o.sources > 2 ? c : T{0}, flush, sat);
    ASSERT_EQ(Bits<BitsOf<T>>(got), Bits<BitsOf<T>>(expected))
        << name << std::hexfloat << " " << a << " " << b << " " << c;
  };
  for (T a : as) {
    for (T b : bs) {
      for (T c : cs) batch.Add(a, b, c, check);
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  batch.Flush(check);
}

TEST(AluFloatTest, SingleInAllModes) {
  for (const Operation<float>& o : Operations<float>()) {
    for (const Mode& mode : kModes) {
      for (bool flush : {false, true}) {
        CheckOperation(o, mode, flush, false);
        if (o.saturates) CheckOperation(o, mode, flush, true);
      }
    }
  }
}
TEST(AluFloatTest, DoubleInAllModes) {
  for (const Operation<double>& o : Operations<double>()) {
    for (const Mode& mode : kModes) CheckOperation(o, mode, kNoFlush, false);
  }
}
TEST(AluFloatTest, NoWordMeansNearest) {
  for (const char* opcode : {"add", "sub", "mul"}) {
    for (const Operation<float>& o : Operations<float>()) {
      if (std::string(opcode) == o.opcode) CheckOperation(o, Mode{"", FE_TONEAREST}, false, false);
    }
  }
}

// A fused operation rounds once: by integers, a case in which two roundings differ.
TEST(AluFloatTest, FmaIsFused) {
  for (Isa isa : RunningIsas()) {
    AluOp op = Resolved("fma.rn.f32", isa);
    Row a, b, c, d;
    a.Set(0, 1.0f + 0x1p-12f);
    b.Set(0, 1.0f + 0x1p-12f);
    c.Set(0, -(1.0f + 0x1p-11f));
    op.lane(d.bytes, a.bytes, b.bytes, c.bytes, 1);
    EXPECT_EQ(d.Get<float>(0), 0x1p-24f);
  }
}

// The mode that the caller had is there afterwards.
TEST(AluFloatTest, ModeIsRestored) {
  for (const std::string& name : AllMnemonics()) {
    for (Isa isa : RunningIsas()) {
      AluOp op = Resolved(name, isa);
      if (op.shape != AluOp::Shape::kLane) continue;
      Row a, d;
      op.lane(d.bytes, a.bytes, a.bytes, a.bytes, kAllLanes);
      ASSERT_EQ(__builtin_ia32_stmxcsr() & 0xffc0, 0x1f80u) << name;
    }
  }
}

template <typename T>
T Extreme(bool min, bool nan, bool xorsign, bool flush, T a, T b) {
  a = Flush(a, flush);
  b = Flush(b, flush);
  bool sign = std::signbit(a) != std::signbit(b);
  if (xorsign) {
    a = std::fabs(a);
    b = std::fabs(b);
  }
  const T canonical = Bits<T>(static_cast<BitsOf<T>>(~BitsOf<T>{0} >> 1));
  if (std::isnan(a) && std::isnan(b)) return canonical;
  if (nan && (std::isnan(a) || std::isnan(b))) return canonical;
  T r;
  if (std::isnan(a))
    r = b;
  else if (std::isnan(b))
    r = a;
  else if (a == b)
    r = std::signbit(a) == min ? a : b;  // -0 < +0
  else
    r = (a < b) == min ? a : b;
  return xorsign ? std::copysign(r, sign ? T{-1} : T{1}) : r;
}
template <typename T>
void CheckExtremes(bool flush, bool nan, bool xorsign) {
  for (bool min : {false, true}) {
    std::string name = std::string(min ? "min" : "max") + (flush ? ".ftz" : "") + (nan ? ".NaN" : "") +
                       (xorsign ? ".xorsign.abs" : "") + (sizeof(T) == 4 ? ".f32" : ".f64");
    Batch<T, T, T, T> batch(name);
    auto check = [&](T got, T a, T b, T) {
      ASSERT_EQ(Bits<BitsOf<T>>(got), Bits<BitsOf<T>>(Extreme(min, nan, xorsign, flush, a, b)))
          << name << " " << a << " " << b;
    };
    for (T a : Edges<T>(20)) {
      for (T b : Edges<T>(20)) batch.Add(a, b, T{0}, check);
      if (testing::Test::HasFatalFailure()) return;
    }
    batch.Flush(check);
  }
}
TEST(AluFloatTest, MinMax) {
  for (bool flush : {false, true}) {
    for (bool nan : {false, true}) {
      for (bool xorsign : {false, true}) CheckExtremes<float>(flush, nan, xorsign);
    }
  }
  CheckExtremes<double>(false, false, false);
}

template <typename T>
void CheckSigns(bool flush) {
  std::string t = std::string(flush ? ".ftz" : "") + (sizeof(T) == 4 ? ".f32" : ".f64");
  const BitsOf<T> sign = BitsOf<T>{1} << (8 * sizeof(T) - 1);
  Batch<T, T, T, T> abs("abs" + t), neg("neg" + t);
  auto check_abs = [&](T got, T a, T, T) {
    ASSERT_EQ(Bits<BitsOf<T>>(got), Bits<BitsOf<T>>(Flush(a, flush)) & ~sign);
  };
  auto check_neg = [&](T got, T a, T, T) {
    ASSERT_EQ(Bits<BitsOf<T>>(got), Bits<BitsOf<T>>(Flush(a, flush)) ^ sign);
  };
  for (T a : Edges<T>(100)) {
    abs.Add(a, T{0}, T{0}, check_abs);
    neg.Add(a, T{0}, T{0}, check_neg);
  }
  abs.Flush(check_abs);
  neg.Flush(check_neg);
}
TEST(AluFloatTest, AbsNegCopysign) {
  CheckSigns<float>(false);
  CheckSigns<float>(true);
  CheckSigns<double>(false);
  Batch<float, float, float, float> copysign("copysign.f32");
  auto check = [](float got, float a, float b, float) {
    ASSERT_EQ(Bits<uint32_t>(got), Bits<uint32_t>(std::copysign(b, a)));
  };
  for (float a : Edges<float>(0)) {
    for (float b : Edges<float>(0)) copysign.Add(a, b, 0, check);
  }
  copysign.Flush(check);
}

struct Relation {
  const char* word;
  bool less, equal, greater, unordered;  // for which outcomes it holds
};
constexpr Relation kRelations[] = {
    {"eq", false, true, false, false}, {"ne", true, false, true, false},   {"lt", true, false, false, false},
    {"le", true, true, false, false},  {"gt", false, false, true, false},  {"ge", false, true, true, false},
    {"equ", false, true, false, true}, {"neu", true, false, true, true},   {"ltu", true, false, false, true},
    {"leu", true, true, false, true},  {"gtu", false, false, true, true},  {"geu", false, true, true, true},
    {"num", true, true, true, false},  {"nan", false, false, false, true},
};
template <typename T>
void CheckRelations(bool flush) {
  std::string t = std::string(flush ? ".ftz" : "");
  std::string type = sizeof(T) == 4 ? ".f32" : ".f64";
  for (const Relation& r : kRelations) {
    auto holds = [&](T a, T b) {
      a = Flush(a, flush);
      b = Flush(b, flush);
      return std::isunordered(a, b) ? r.unordered : a < b ? r.less : a > b ? r.greater : r.equal;
    };
    std::string word = std::string(".") + r.word + t;
    Batch<uint32_t, T, T, T> ones("set" + word + ".u32" + type), one("set" + word + ".f32" + type);
    auto check_ones = [&](uint32_t got, T a, T b, T) {
      ASSERT_EQ(got, holds(a, b) ? 0xffffffffu : 0u) << word << " " << a << " " << b;
    };
    auto check_one = [&](uint32_t got, T a, T b, T) {
      ASSERT_EQ(got, holds(a, b) ? 0x3f800000u : 0u) << word << " " << a << " " << b;
    };
    std::vector<T> edges = Edges<T>(0);
    for (size_t i = 0; i < edges.size(); ++i) {
      Row a, b;
      for (unsigned l = 0; l < kWarpSize; ++l) {
        a.Set(l, edges[i]);
        b.Set(l, edges[(i + l * l) % edges.size()]);
        ones.Add(a.template Get<T>(l), b.template Get<T>(l), T{0}, check_ones);
        one.Add(a.template Get<T>(l), b.template Get<T>(l), T{0}, check_one);
      }
      for (Isa isa : RunningIsas()) {
        uint32_t bits = Resolved("setp" + word + type, isa).compare(a.bytes, b.bytes);
        for (unsigned l = 0; l < kWarpSize; ++l) {
          ASSERT_EQ(bits >> l & 1, holds(a.template Get<T>(l), b.template Get<T>(l)))
              << word << " " << a.template Get<T>(l) << " " << b.template Get<T>(l);
        }
      }
    }
  }
}
TEST(AluFloatTest, Relations) {
  CheckRelations<float>(false);
  CheckRelations<float>(true);
  CheckRelations<double>(false);
}

template <typename T>
void CheckProperties() {
  struct Property {
    const char* word;
    bool (*holds)(int);
  };
  static constexpr Property kProperties[] = {
      {"finite", [](int c) { return c != FP_NAN && c != FP_INFINITE; }},
      {"infinite", [](int c) { return c == FP_INFINITE; }},
      {"number", [](int c) { return c != FP_NAN; }},
      {"notanumber", [](int c) { return c == FP_NAN; }},
      {"normal", [](int c) { return c == FP_NORMAL || c == FP_ZERO; }},
      {"subnormal", [](int c) { return c == FP_SUBNORMAL; }},
  };
  for (const Property& p : kProperties) {
    AluOp op = Resolved(std::string("testp.") + p.word + (sizeof(T) == 4 ? ".f32" : ".f64"));
    for (T v : Edges<T>(0)) {
      Row a;
      a.Set(13, v);
      ASSERT_EQ(op.test(a.bytes) >> 13 & 1, p.holds(std::fpclassify(v))) << p.word << " " << v;
    }
  }
}
TEST(AluFloatTest, Properties) {
  CheckProperties<float>();
  CheckProperties<double>();
}

}  // namespace
}  // namespace softgpu::exec

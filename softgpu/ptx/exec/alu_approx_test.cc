// The .approx instructions against long double functions: the manual's special values, and errors far below
// its bounds.
#include <gtest/gtest.h>

#include <cfloat>

#include "softgpu/ptx/exec/alu_reference.h"

namespace softgpu::exec {
namespace {

using Exact = long double;

struct Function {
  const char* name;
  Exact (*exact)(Exact);
  Exact relative;  // bound of the relative error, or
  Exact absolute;  // of the absolute one
  float low, high;
  bool subnormal_in = true;
};
constexpr Exact kHalfUnit = 0x1.01p-24L;
const Function kFunctions[] = {
    {"ex2.approx.f32", [](Exact x) { return std::exp2(x); }, kHalfUnit, 0, -126, 127.9999f},
    {"lg2.approx.f32", [](Exact x) { return std::log2(x); }, kHalfUnit, 0x1p-40L, FLT_TRUE_MIN, FLT_MAX},
    {"sin.approx.f32", [](Exact x) { return std::sin(x); }, kHalfUnit, 0x1p-30L, -320, 320},
    {"cos.approx.f32", [](Exact x) { return std::cos(x); }, kHalfUnit, 0x1p-30L, -320, 320},
    {"tanh.approx.f32", [](Exact x) { return std::tanh(x); }, kHalfUnit, 0, -FLT_MAX, FLT_MAX},
    {"rcp.approx.f32", [](Exact x) { return 1 / x; }, kHalfUnit, 0, 0x1p-125f, 0x1p125f},
    {"rsqrt.approx.f32", [](Exact x) { return 1 / std::sqrt(x); }, kHalfUnit, 0, FLT_TRUE_MIN, FLT_MAX},
    {"sqrt.approx.f32", [](Exact x) { return std::sqrt(x); }, kHalfUnit, 0, FLT_TRUE_MIN, FLT_MAX},
};

std::vector<float> Inputs(const Function& f) {
  std::vector<float> inputs;
  std::mt19937 engine(11);
  for (float v : Edges<float>(20000)) {
    if (v >= f.low && v <= f.high) inputs.push_back(v);
  }
  std::uniform_real_distribution<float> uniform(std::max(f.low, -1e6f), std::min(f.high, 1e6f));
  for (int i = 0; i < 20000; ++i) inputs.push_back(uniform(engine));
  return inputs;
}

TEST(AluApproxTest, ErrorsStayWithinHalfAUnit) {
  for (const Function& f : kFunctions) {
    Batch<float, float, float, float> batch(f.name);
    auto check = [&](float got, float x, float, float) {
      Exact exact = f.exact(x), error = std::fabs(got - exact);
      Exact smallest = std::fabs(exact) < 0x1p-126L ? 0x1.01p-150L : 0;  // half a unit of subnormal results
      ASSERT_LE(error, std::max({std::fabs(exact) * f.relative, f.absolute, smallest}))
          << f.name << " of " << std::hexfloat << x;
    };
    for (float x : Inputs(f)) batch.Add(x, 0, 0, check);
    batch.Flush(check);
    if (HasFatalFailure()) return;
  }
}

TEST(AluApproxTest, HugeAnglesStayOnTheCircle) {
  for (const char* name : {"sin.approx.f32", "cos.approx.f32", "sin.approx.ftz.f32"}) {
    Batch<float, float, float, float> batch(name);
    auto check = [&](float got, float x, float, float) {
      ASSERT_LE(std::fabs(got), 1.0f) << name << " of " << x;
    };
    for (float x : Edges<float>(5000)) {
      if (std::isfinite(x)) batch.Add(x, 0, 0, check);
    }
    batch.Flush(check);
  }
}

struct Special {
  const char* name;
  float in;
  float out;
};
constexpr float kInf = INFINITY;
constexpr float kSub = 0x1p-140f;
// The manual's tables; NaN stands for the canonical one.
const Special kSpecials[] = {
    {"ex2.approx.f32", -kInf, 0.0f},
    {"ex2.approx.f32", kInf, kInf},
    {"ex2.approx.f32", -0.0f, 1.0f},
    {"ex2.approx.f32", 0.0f, 1.0f},
    {"ex2.approx.f32", -kSub, 1.0f},
    {"ex2.approx.f32", 128, kInf},
    {"ex2.approx.f32", -140, 0x1p-140f},
    {"ex2.approx.ftz.f32", -140, 0.0f},
    {"ex2.approx.f32", 3, 8},
    {"ex2.approx.f32", -1000, 0},
    {"lg2.approx.f32", -kInf, NAN},
    {"lg2.approx.f32", -0.0f, -kInf},
    {"lg2.approx.f32", 0.0f, -kInf},
    {"lg2.approx.f32", kInf, kInf},
    {"lg2.approx.f32", kSub, -140},
    {"lg2.approx.ftz.f32", kSub, -kInf},
    {"lg2.approx.ftz.f32", -kSub, -kInf},
    {"lg2.approx.f32", -1, NAN},
    {"lg2.approx.f32", 1, 0},
    {"lg2.approx.f32", 1024, 10},
    {"sin.approx.f32", -kInf, NAN},
    {"sin.approx.f32", -0.0f, -0.0f},
    {"sin.approx.f32", 0.0f, 0.0f},
    {"sin.approx.f32", kInf, NAN},
    {"sin.approx.f32", kSub, kSub},
    {"sin.approx.ftz.f32", -kSub, -0.0f},
    {"cos.approx.f32", -kInf, NAN},
    {"cos.approx.f32", 0.0f, 1},
    {"cos.approx.f32", -0.0f, 1},
    {"cos.approx.f32", kInf, NAN},
    {"tanh.approx.f32", -kInf, -1},
    {"tanh.approx.f32", kInf, 1},
    {"tanh.approx.f32", -0.0f, -0.0f},
    {"tanh.approx.f32", kSub, kSub},
    {"rcp.approx.f32", -kInf, -0.0f},
    {"rcp.approx.f32", -0.0f, -kInf},
    {"rcp.approx.f32", 0.0f, kInf},
    {"rcp.approx.f32", kInf, 0},
    {"rcp.approx.ftz.f32", -kSub, -kInf},
    {"rcp.approx.ftz.f32", 0x1p127f, 0},
    {"rcp.approx.f32", 0x1p127f, 0x1p-127f},
    {"sqrt.approx.f32", -kInf, NAN},
    {"sqrt.approx.f32", -0.0f, -0.0f},
    {"sqrt.approx.f32", -1, NAN},
    {"sqrt.approx.f32", kInf, kInf},
    {"sqrt.approx.ftz.f32", -kSub, -0.0f},
    {"sqrt.approx.f32", 4, 2},
    {"rsqrt.approx.f32", -kInf, NAN},
    {"rsqrt.approx.f32", -0.0f, -kInf},
    {"rsqrt.approx.f32", 0.0f, kInf},
    {"rsqrt.approx.f32", kInf, 0},
    {"rsqrt.approx.f32", -1, NAN},
    {"rsqrt.approx.ftz.f32", kSub, kInf},
    {"rsqrt.approx.f32", 4, 0.5f},
};
TEST(AluApproxTest, SpecialValues) {
  for (const Special& s : kSpecials) {
    for (Isa isa : RunningIsas()) {
      Row a, d;
      a.Set(1, s.in);
      Resolved(s.name, isa).lane(d.bytes, a.bytes, nullptr, nullptr, kAllLanes);
      EXPECT_EQ(d.Get<uint32_t>(1), std::isnan(s.out) ? kNanF32 : Bits<uint32_t>(s.out))
          << s.name << " of " << s.in;
    }
  }
  for (const Function& f : kFunctions) {
    Row a, d;
    a.Set(1, Bits<float>(0xff800001u));
    Resolved(f.name).lane(d.bytes, a.bytes, nullptr, nullptr, kAllLanes);
    EXPECT_EQ(d.Get<uint32_t>(1), kNanF32) << f.name;
  }
}

TEST(AluApproxTest, Division) {
  for (bool flush : {false, true}) {
    for (bool full : {false, true}) {
      std::string name = std::string("div") + (full ? ".full" : ".approx") + (flush ? ".ftz.f32" : ".f32");
      Batch<float, float, float, float> batch(name);
      auto check = [&](float got, float a, float b, float) {
        if (flush) {
          a = FlushF32(a);
          b = FlushF32(b);
        }
        float expected = a / b;
        if (!full && std::fabs(b) > 0x1p126f && std::isfinite(b))
          expected = std::isinf(a) ? NAN : a * std::copysign(0.0f, b);
        if (flush) expected = FlushF32(expected);
        ASSERT_EQ(Bits<uint32_t>(got), std::isnan(expected) ? kNanF32 : Bits<uint32_t>(expected))
            << name << " " << a << " / " << b;
      };
      for (float a : Edges<float>(30)) {
        for (float b : Edges<float>(30)) batch.Add(a, b, 0, check);
        if (HasFatalFailure()) return;
      }
      batch.Flush(check);
    }
  }
}

TEST(AluApproxTest, Doubles) {
  for (const char* name : {"rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", "rsqrt.approx.f64"}) {
    bool root = name[1] == 's', gross = std::string(name).find("ftz") != std::string::npos;
    Batch<double, double, double, double> batch(name);
    auto check = [&](double got, double x, double, double) {
      Exact in = gross && std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(Exact{0}, x) : x;
      Exact exact = root ? 1 / std::sqrt(in) : 1 / in;
      ASSERT_EQ(Bits<uint64_t>(got) & (gross ? 0xffffffff : 0), 0u) << name;
      if (std::isnan(exact)) {
        ASSERT_TRUE(std::isnan(got)) << name << " " << x;
      } else if (std::isinf(exact) || exact == 0) {
        ASSERT_EQ(got, static_cast<double>(exact)) << name << " " << x;
      } else if (gross && std::fabs(exact) < 0x1p-1022L) {
        ASSERT_EQ(got, std::copysign(0.0, x)) << name << " " << x;
      } else {
        ASSERT_LE(std::fabs(got - exact), std::fabs(exact) * (gross ? 0x1.01p-20L : 0x1p-51L) + 0x1p-1074L)
            << name << " " << x;
      }
    };
    for (double x : Edges<double>(5000)) batch.Add(x, 0, 0, check);
    batch.Flush(check);
  }
}

TEST(AluApproxTest, Halves) {
  struct Case {
    const char* name;
    const SmallFormat& format;
    Exact (*exact)(Exact);
    bool flush;
  };
  for (const Case& c :
       {Case{"ex2.approx.f16", HalfFormat(), [](Exact x) { return std::exp2(x); }, false},
        Case{"tanh.approx.f16", HalfFormat(), [](Exact x) { return std::tanh(x); }, false},
        Case{"ex2.approx.ftz.bf16", BfloatFormat(), [](Exact x) { return std::exp2(x); }, true},
        Case{"tanh.approx.bf16", BfloatFormat(), [](Exact x) { return std::tanh(x); }, false}}) {
    Batch<uint16_t, uint16_t, uint16_t, uint16_t> batch(c.name);
    auto check = [&](uint16_t got, uint16_t code, uint16_t, uint16_t) {
      Exact x = c.format.Value(code), exact = c.exact(x);
      uint32_t expected = c.format.Round(exact, FE_TONEAREST, false, std::signbit(exact));
      if (c.flush && (expected & 0x7fff) < 0x80) expected &= 0x8000;
      ASSERT_EQ(got, expected) << c.name << " of " << static_cast<double>(x);
    };
    for (uint32_t code = 0; code < 65536; ++code) batch.Add(static_cast<uint16_t>(code), 0, 0, check);
    batch.Flush(check);
  }
}

}  // namespace
}  // namespace softgpu::exec
